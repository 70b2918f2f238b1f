/*
 * SAE checkpoints, by the names of their tensors and their config.
 */
#ifndef LUT_PRECOMPUTE_SAE_H
#define LUT_PRECOMPUTE_SAE_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/lut-precompute/matrix.h"
#include "core/format/st.h"

struct sae {
    char *path; /* the safetensors file */
    struct st st;
    size_t n, in;
    size_t k;                                   /* 0: it does not say */
    bool centered;                              /* encodes x - decoder_bias */
    bool unsure;                                /* of that: nothing says it */
    struct matrix encoder_weight, encoder_bias; /* [n, in], [1, n] */
    struct matrix decoder_weight, decoder_bias; /* [n, in], [1, in] */
};

/* sae_open() takes what sae_is_one() or sae_path() says is one.  -1 with 'err'
 * set; the matrices lie in the mapped file and die with it.  Owner: the caller,
 * until sae_close(). */
int sae_open(struct sae *sae, const char *path, struct err *err);
void sae_close(struct sae *sae); /* a zeroed struct is fine */

/* sae_is_one(): 1 if that is a checkpoint, 0 if a folder with one for each
 * layer, or -1 with 'err' set where that cannot be told (EX_NOINPUT).
 * sae_path() is that of a layer's there, NULL if there is none, or with 'err'
 * set. */
int sae_is_one(const char *path, struct err *err);
char *sae_path(const char *folder, const char *layer, struct err *err);

#endif
