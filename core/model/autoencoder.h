/* SPDX-License-Identifier: ISC */
/*
 * What an SAE makes of activations: its forward, by exact products.
 *
 *   z  = encoder x + encoder_bias; where 'centered', of x - decoder_bias
 *   f  = z of the active latents, 0 of the others: of the k largest that are
 *        over 0, of equals those with lower indices; or of all over their
 *        thresholds
 *   x^ = decoder_bias + sum over i of f_i decoder[i]
 *
 * x is the row as the SAE's 'transform' has it, if any, which is undone of x^:
 * by enum sae_input, after its mean where it 'centers'.
 * A row whose z is not finite becomes NaN; no other row sees it.
 * Source: man/sae.5.
 */
#ifndef CORE_MODEL_AUTOENCODER_H
#define CORE_MODEL_AUTOENCODER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/format/sae.h"
#include "core/model/family.h"
#include "core/model/latents.h"

struct autoencoder {
    struct sae sae;                     /* the file */
    bool centers;                       /* by autoencoder_centers() */
    size_t n, d;                        /* latents; numbers of a row */
    struct latents latents;             /* its encoder */
    struct decoder decoder;             /* w is in the file, or a copy */
    float *encoder_copy, *decoder_copy; /* or NULL */
    float *encoder_bias, *decoder_bias; /* [n], [d] */
    float *zeros;                       /* [n] RELU's thresholds, or NULL */
};

/*
 * autoencoder_open() opens an SAE as sae_open() does.  Its matrices stay in
 * the mapped file, but for those that are stored transposed or scale
 * activations by norms: 4 bytes an element. 0, or -1 with 'err' set,
 * EX_DATAERR, too, where k is not known. Owner: the caller, until
 * autoencoder_close(), also after an error.
 * Whether it centers rows is what its file alone says.
 */
int autoencoder_open(struct autoencoder *a, const char *path, struct err *err);
void autoencoder_close(struct autoencoder *a); /* a zeroed struct is fine */

/*
 * autoencoder_centers(): are rows at a place, NULL: where the SAE's file says,
 * less their mean, as an SAE of centred writing weights (sae.mean_off) needs
 * it?  Those that are written to the residual stream, where TransformerLens
 * centres weights: not before RMSNorm, 'family' being NULL where it is not
 * known.
 * sae_open_plain() is sae_open() of an SAE for such a family's rows, EX_DATAERR
 * where these are changed in any way before they are encoded.
 */
struct place;
bool autoencoder_centers(const struct sae *sae, const struct place *at,
                         const struct model_family *family);
int sae_open_plain(struct sae *sae, const char *path,
                   const struct model_family *family, struct err *err);

/* autoencoder_screen() has it screened, by latents_screen(); not RELU, of which
 * about half of the latents are active. */
void autoencoder_screen(struct autoencoder *a);

/*
 * autoencoder_tensors() widens an SAE's tensors to f32 in the machine's order,
 * as those of an SAE whose activations are not scaled by norms.
 * encoder, decoder [n, in], encoder_bias [n], decoder_bias [in].
 */
void autoencoder_tensors(const struct sae *sae, float *encoder, float *decoder,
                         float *encoder_bias, float *decoder_bias);

/*
 * autoencoder_transforms(): are rows changed before they are encoded?
 * autoencoder_transform() makes rows x [n, d] what they are encoded as, 'to',
 * which may be x.  A reconstruction y' of that is one of x as x^ = y' out +
 * mean, so a direction is 'out' times as long in the model; notes [n, 2] get
 * mean and out of each row.  'par' may be NULL.
 */
struct par;
bool autoencoder_transforms(const struct autoencoder *a);
void autoencoder_transform(const struct autoencoder *a, struct par *par,
                           float *to, const float *x, double *notes, size_t n);

/*
 * autoencoder_apply() computes the reconstruction y [n, d] of rows x [n, d];
 * y may be x.  n is at most latents_rows(), and latents_row() is what it found
 * in a row; one that is bad became NaN.
 * A row's bits depend on nothing but its own numbers.
 */
void autoencoder_apply(struct latents_work *work, const struct autoencoder *a,
                       float *y, const float *x, size_t n);

/* autoencoder_encode() finds only what is active in rows x [n, d]; y, which may
 * be x, has room for them as the SAE's transform makes them. */
void autoencoder_encode(struct latents_work *work, const struct autoencoder *a,
                        float *y, const float *x, size_t n);

#endif
