/* SPDX-License-Identifier: ISC */
/*
 * SAE checkpoints, by the names of their tensors and their config: man/sae.5.
 */
#ifndef CORE_FORMAT_SAE_H
#define CORE_FORMAT_SAE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/format/matrix.h"
#include "core/format/sae_without.h"
#include "core/format/saev_mask.h"
#include "core/hash.h"

/* Which latents of a row are active: of all whose pre-activation is over 0, */
enum sae_activation {
    SAE_TOPK,      /* the k largest */
    SAE_BATCHTOPK, /* the k largest, a mean of the rows it was trained on */
    SAE_JUMPRELU,  /* those over their thresholds */
    SAE_RELU,      /* each */
};

/* What a row is made before it is encoded, x' = (x - m) s; its reconstruction
 * y' becomes y' / s + m.  SAELens's normalize_activations. */
enum sae_input {
    SAE_INPUT_PLAIN,
    SAE_INPUT_LAYER, /* m the mean, s = 1 / (std + 1e-5), but y' std + m */
    SAE_INPUT_NORM,  /* s = sqrt(d) / |x| */
    SAE_INPUT_FACTOR /* s = norm_scaling_factor */
};

struct sae {
    char *path;            /* the file with the tensors */
    struct sae_file *file; /* private */
    size_t n, in;
    enum sae_activation activation;
    size_t k;               /* 0: it does not say */
    bool centered;          /* encodes x - decoder_bias */
    bool unsure;            /* of that: nothing says so */
    bool ignores_threshold; /* a tensor that its encoding does not use */
    bool uses_threshold;    /* the tensor decides which latents are active */
    bool batchtopk;         /* k is the mean of a batch's rows; where it has
                             * thresholds, too, 'activation' is JUMPRELU */
    bool scaled; /* activations, by the norms of the decoder's rows */
    struct matrix encoder_weight, encoder_bias; /* [n, in], [1, n] */
    struct matrix decoder_weight, decoder_bias; /* [n, in], [1, in] */
    double *norms; /* [n] of decoder_weight's rows, which scale activations; or
                    * NULL: see sae_fold() */
    enum sae_input input;
    double factor;    /* of INPUT_FACTOR */
    bool mean_off;    /* center_writing_weights: x - mean(x) is what is made so,
                       * and the mean is added to y, by autoencoder_centers() */
    char *transform;  /* what the configuration says of these; or NULL */
    bool prepend_bos; /* the texts that it was trained on began with bos */
    char *hook;       /* where in the model its inputs are, as its library names
                       * places; or NULL */
    float *thresholds; /* [n], >= 0, of JUMPRELU: latent i is active where its
                        * pre-activation is greater; or NULL */
    double threshold;  /* of all latents; -1: they have none, or differ */
    struct sae_without without; /* rows that it was trained without */
};

/*
 * sae_open() opens a checkpoint as sae_is_one() or sae_path() finds it.
 * 0, or -1 with 'err' set: EX_NOINPUT, EX_IOERR, EX_CANTCREAT (scratch for what
 * an archive has compressed), EX_DATAERR for all that is damaged or that would
 * compute something else.  Who does not change rows before they are encoded
 * opens it by core/model/autoencoder.h's sae_open_plain().
 * Owner: the caller, until sae_close(); the matrices are in the mapped file and
 * die with it.
 */
int sae_open(struct sae *sae, const char *path, struct err *err);
void sae_close(struct sae *sae); /* a zeroed struct is fine */

/*
 * sae_fold() makes row i of the encoder's weight, or of the decoder's, what it
 * is in the same SAE without norms: pre-activations n_i times as large, and
 * directions of length 1.  A latent without a direction is never active.
 */
void sae_fold(const struct sae *sae, size_t i, bool decoder, float *row);

/* sae_is_one(): 1 if that is a checkpoint, 0 if a directory with one for each
 * layer, or -1 with 'err' set (EX_NOINPUT; EX_DATAERR: it has two, or files in
 * it say that inputs are transformed).
 * sae_path() is that of a layer in the directory, by either of its names, NULL
 * if there is none, or with 'err' set. */
int sae_is_one(const char *path, struct err *err);
char *sae_path(const char *dir, const char *layer, const char *or_name,
               struct err *err);

/* sae_hash() adds the configuration next to a file with tensors, then that
 * file, as metadata name an SAE; sae_xxh3() is the digest of these alone.  0,
 * or -1 with 'err' set. */
int sae_hash(struct hash *hash, const char *file, struct err *err);
int sae_xxh3(const char *file, char hex[HASH_MAX_HEX], struct err *err);

#define SAE_SPARSIFY_FILE "sae.safetensors"
#define SAE_SAELENS_FILE  "sae_weights.safetensors"

enum sae_format { SAE_SPARSIFY, SAE_SAELENS };

struct sae_write {
    size_t n, in, k;
    const float *encoder_weight, *encoder_bias; /* [n, in], [n] */
    const float *decoder_weight, *decoder_bias; /* [n, in], [in] */
    const char *activation;                     /* "topk" or "batchtopk" */
    bool normalize;   /* rows of decoder_weight have norm 1 */
    double threshold; /* of batchtopk; < 0: there is none */
    const char *hook; /* where in the model its inputs are; or NULL */
    const struct saev_mask
        *mask; /* rows that it was trained without; or NULL */
    enum sae_format format;
};

/*
 * sae_write() writes cfg.json and the tensors, F32, into a directory that
 * exists, each file whole or not at all: who finds the tensors finds both.  An
 * SAE that is replaced, of either form, stays until the tensors are on the
 * disk. What SAELens reads is "topk", or "jumprelu" for batchtopk, which must
 * have a threshold then (EX_SOFTWARE).  'out_flags' as for out_open(). 0, or -1
 * with 'err' set as by out_open(), out_write(), out_commit(). Memory: of
 * SAELens's form, 64 bytes for each of the n latents.
 */
int sae_write(const char *dir, const struct sae_write *s, int out_flags,
              struct err *err);

#endif
