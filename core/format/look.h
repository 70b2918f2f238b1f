/* SPDX-License-Identifier: ISC */
/*
 * A RUN of sae-look: how often and how strongly each latent of an SAE was
 * active in some rows, and its examples.  RUN/look.json says of what it is,
 * RUN/look.safetensors has the numbers: man/sae-look.5.
 */
#ifndef CORE_FORMAT_LOOK_H
#define CORE_FORMAT_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/format/saev_mask.h"
#include "core/format/st.h"
#include "core/str.h"

#define LOOK_JSON    "look.json" /* files of a RUN; written in this order */
#define LOOK_TENSORS "look.safetensors"
#define LOOK_FORMAT  1

enum {
    LOOK_BINS = 64,  /* of a histogram */
    LOOK_LIMBS = 11, /* of an exact sum */
    LOOK_MAX_LATENTS = 1 << 24,
    LOOK_MAX_TOKENS = 1 << 20, /* of a sequence */
    LOOK_MAX_EXAMPLES = 4096,  /* of a latent: top and sample */
};

/* The examples of each of m latents, best first, c places each: of a file,
 * only look_example() has looked at acts and ids. */
struct look_examples {
    size_t n;     /* of a latent, at most */
    float *value; /* [m, n]; 0 where there are fewer */
    int64_t *row; /* [m, n]; -1 where there are fewer */
    float *acts;  /* [m, n, c]; 0: not active; -1: not in its sequence, left
                   * out, or no example */
    int32_t *ids; /* [m, n, c], -1: none; NULL: the rows have no ids */
};

/* Rows and latents count from 0; a row r is token r % n_tokens of sequence
 * r / n_tokens.  The same struct is filled by who makes a RUN. */
struct look {
    char *path; /* RUN; NULL: it is not from a file */

    /* look.json */
    char *sae, *sae_xxh3;    /* as given; the SAE's digest */
    char *hook, *ids_sha256; /* or NULL; all ids have that SHA-256 */
    size_t n, d;             /* latents of the SAE, numbers of a row */
    uint64_t rows, left_out; /* rows that count, and the others */
    uint64_t sequences;      /* with a row that counts */
    size_t n_tokens;         /* T, of a sequence */
    uint64_t (*input)[2];    /* [n_input] rows from [0] up to, without, [1],
                              * ascending, whole sequences */
    size_t n_input;
    size_t context[2], c;  /* places before a row, after it; and all */
    bool per_row;          /* "per" is "row", not "sequence" */
    uint64_t seed;         /* of the sample, under 2^63 */
    struct saev_mask mask; /* ids, resolved, positions and max_norm */

    /* look.safetensors */
    size_t m;                           /* latents with statistics */
    int32_t *latent;                    /* [m] which, ascending */
    int64_t *rows_active, *seqs_active; /* [m] */
    int64_t *sum_limbs; /* [m, LOOK_LIMBS] the exact sum: that of
                         * limb_j 2^(32 j - 149) */
    double *sum;        /* [m] it, rounded once */
    float *max;         /* [m] 0 if it is never active */
    int64_t *hist;      /* [m, LOOK_BINS]: look_bin() */
    struct look_examples top, sample;
    size_t p;
    int32_t *pair_latent; /* [p] which, ascending */
    int64_t *pairs;       /* [p, n] rows with both active */

    /* For look_write(), if acts and ids are not in 'top' and 'sample': puts c
     * acts, or ids, of example 'at' of the m * n that 'of' has. */
    void (*put_acts)(const void *ctx, const struct look_examples *of, size_t at,
                     float *to);
    void (*put_ids)(const void *ctx, const struct look_examples *of, size_t at,
                    int32_t *to);
    const void *put_ctx;

    struct json_t *json; /* LOOK_JSON of a file, or NULL */
    struct st st;        /* private, as what follows */
    void **copies;
    size_t n_copies;
};

/* A tensor of a RUN: its name, its type, and where it is in the struct. */
struct look_tensor {
    const char *name;
    enum dtype dtype;
    size_t at;        /* offset of the pointer in struct look */
    const char *dims; /* a letter each: look_shape() */
};
#define LOOK_N_TENSORS 17
extern const struct look_tensor look_tensors[LOOK_N_TENSORS];

/* look_shape() sets the shape of a tensor in a RUN and returns its dims; 0:
 * this RUN is without it. */
size_t look_shape(const struct look *l, const struct look_tensor *t,
                  uint64_t shape[3]);

/*
 * look_open() reads RUN, the directory 'path', and checks all of it but acts
 * and ids: shapes; latents, rows and counts in range; finite values; a
 * histogram's sum.  The arrays are read-only.
 * 0, or -1 with 'err' set: EX_NOINPUT, EX_IOERR, EX_SOFTWARE, EX_DATAERR.
 * Owner: the caller, until look_close(), also after an error.
 */
int look_open(struct look *l, const char *path, struct err *err);

/* look_write() writes both files of a RUN into a directory that exists, the
 * JSON first.  0, or -1 with 'err' set. */
int look_write(const struct look *l, const char *dir, struct err *err);

/* look_close() frees what look_open() has made, and of a struct that was filled
 * by others its strings, 'input' and 'mask.ids'; a zeroed struct is fine. */
void look_close(struct look *l);

/* look_bin() is the bin of a histogram for an f over 0: two bins an octave,
 * [1, 1.5) is bin 32.  look_bin_low() is where a bin begins, the first at 0. */
static inline int
look_bin(float f)
{
    int bin = (int)(f32_bits(f) >> 22) - 222;

    return bin < 0 ? 0 : bin >= LOOK_BINS ? LOOK_BINS - 1 : bin;
}
double look_bin_low(int bin);

/* look_sum() is the exact sum of LOOK_LIMBS carried limbs, rounded once. */
double look_sum(const int64_t *limb);

/* look_key() is an example's key: those of a sample have the lowest.  The words
 * of a latent's stream, of which the last four are kept, start as
 * { { l->seed, latent }, UINT64_MAX, { 0 } }. */
struct look_keys {
    uint64_t key[2];
    uint64_t block; /* UINT64_MAX: none yet */
    uint64_t word[4];
};
uint64_t look_key(const struct look *l, struct look_keys *k, int64_t row);

/* look_find(): which of the m is a latent?  SIZE_MAX: none is. */
size_t look_find(const struct look *l, int64_t latent);

/* look_density() and look_mean(), of active rows, of the i-th of m; 0 of a dead
 * latent. */
double look_density(const struct look *l, size_t i);
double look_mean(const struct look *l, size_t i);

/* An example, with the places of its own sequence alone. */
struct look_example {
    float value;
    int64_t row;
    size_t n, at;       /* places, and which of them is the row's */
    const float *acts;  /* [n], acts[at] is the value; -1: left out */
    const int32_t *ids; /* [n], or NULL */
};

/* look_example() is example j of the i-th of m, checked: 1, 0 if there are
 * fewer, or -1 with 'err' set (EX_DATAERR).  look_check_examples() checks all
 * of them. */
int look_example(const struct look *l, const struct look_examples *of, size_t i,
                 size_t j, struct look_example *e, struct err *err);
int look_check_examples(const struct look *l, const struct look_examples *of,
                        struct err *err);

/* RUN/labels.tsv: a line "latent TAB label" for each latent that has one,
 * after one of names; a label is all up to the line's end, as it is. */
#define LABELS_FILE "labels.tsv"
struct labels {
    struct str text;
    struct label {
        int64_t latent;
        const char *s; /* [n] bytes of 'text' */
        size_t n;
    } * label; /* [n], ascending */
    size_t n;
};

/* labels_open() reads those of a RUN, none where there is no file.  0, or -1
 * with 'err' set (EX_DATAERR, EX_IOERR).  Owner: until labels_free().
 * labels_find() is that of a latent, or NULL. */
int labels_open(struct labels *labels, const struct look *l, struct err *err);
void labels_free(struct labels *labels);
const struct label *labels_find(const struct labels *labels, int64_t latent);

#endif
