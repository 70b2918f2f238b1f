/*
 * What an SAE makes of activations: its forward, by exact products.
 *
 *   z  = encoder x + encoder_bias; where 'centered', of x - decoder_bias
 *   f  = z of the active latents, 0 of the others: of the k largest that are
 *        over 0, of equals those with lower indices; or of all over their
 *        thresholds
 *   x^ = decoder_bias + sum over i of f_i decoder[i]
 *
 * A row whose z is not finite becomes NaN; no other row sees it.
 * Source: man/sae.5.
 */
#ifndef CORE_MODEL_AUTOENCODER_H
#define CORE_MODEL_AUTOENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/sae.h"
#include "core/kernel/gemm.h"

struct autoencoder {
    struct sae sae; /* the file */
    size_t n, d;    /* latents; numbers of a row */
    size_t k;       /* active latents of a row, at most: n of JUMPRELU, RELU */
    const void *encoder, *decoder; /* [n, d], little-endian: in the file, or */
    enum dtype encoder_dtype, decoder_dtype;
    float *encoder_copy, *decoder_copy; /* these, or NULL */
    float *encoder_bias, *decoder_bias; /* [n], [d] */
};

/*
 * autoencoder_open() opens an SAE as sae_open() does.  Its matrices stay in
 * the mapped file, but for those that are stored transposed or scale
 * activations by norms: 4 bytes an element. 0, or -1 with 'err' set,
 * EX_DATAERR, too, where k is not known. Owner: the caller, until
 * autoencoder_close(), also after an error.
 */
int autoencoder_open(struct autoencoder *a, const char *path, struct err *err);
void autoencoder_close(struct autoencoder *a); /* a zeroed struct is fine */

/*
 * autoencoder_tensors() widens an SAE's tensors to f32 in the machine's order,
 * as those of an SAE whose activations are not scaled by norms.
 * encoder, decoder [n, in], encoder_bias [n], decoder_bias [in].
 */
void autoencoder_tensors(const struct sae *sae, float *encoder, float *decoder,
                         float *encoder_bias, float *decoder_bias);

/* A workspace for any of some autoencoders.  autoencoder_size() makes room for
 * one more in sizes that begin as 0. */
struct autoencoder_sizes {
    size_t n, d, k;
};
void autoencoder_size(struct autoencoder_sizes *sizes,
                      const struct autoencoder *a);

/*
 * autoencoder_work_open() makes the workspace for up to 'rows' rows at once, or
 * as many as 32 MiB of pre-activations are, which autoencoder_rows() returns.
 * 'gemm' is borrowed.  0, or -1 with 'err' set (EX_SOFTWARE).
 * Owner: the caller, until autoencoder_work_close().  One thread at a time may
 * use it.
 */
struct autoencoder_work;
int autoencoder_work_open(struct autoencoder_work **work, struct gemm *gemm,
                          const struct autoencoder_sizes *sizes, size_t rows,
                          struct err *err);
void autoencoder_work_close(struct autoencoder_work *work); /* NULL is fine */
size_t autoencoder_rows(const struct autoencoder_work *work);

/* What the last autoencoder_apply() found in a row. */
struct autoencoder_row {
    bool is_bad;         /* it became NaN; n is 0 */
    size_t n;            /* active latents */
    const uint32_t *idx; /* [n], ascending */
    const float *f;      /* [n] */
};

/*
 * autoencoder_apply() computes the reconstruction y [n, d] of rows x [n, d];
 * y may be x.  n is at most autoencoder_rows().  A row's bits depend on nothing
 * but its own numbers.
 */
void autoencoder_apply(struct autoencoder_work *work,
                       const struct autoencoder *a, float *y, const float *x,
                       size_t n);
struct autoencoder_row autoencoder_row(const struct autoencoder_work *work,
                                       size_t i);

#endif
