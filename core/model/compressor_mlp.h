/*
 * The MLPs of a KV-cache compressor, kvc(5): what makes one key (or value) of
 * 'factor' consecutive ones.
 */
#ifndef CORE_MODEL_COMPRESSOR_MLP_H
#define CORE_MODEL_COMPRESSOR_MLP_H

#include <stddef.h>

#include "core/err.h"
#include "core/format/kvc.h"

/*
 * One MLP, ready to run: Linear and ReLU, Linear and ReLU, Linear.  As in the
 * engine whose format this is, inputs, weights and what each linear layer
 * gives are rounded to f16; its sums are exact to f32 before that.
 */
struct kvc_mlp {
    size_t dims[KVC_SLOTS + 1]; /* factor * head_dim, .., head_dim */
    float *w[KVC_SLOTS];        /* [dims[i + 1], dims[i]] */
    float *bias[KVC_SLOTS];     /* [dims[i + 1]]; zeros where there is none */
};

/* kvc_mlp_load(): -1 with 'err' set (EX_DATAERR: no such MLP in the file,
 * shapes that do not follow each other).  Owner: until kvc_mlp_free(). */
int kvc_mlp_load(struct kvc_mlp *mlp, const struct kvc *kvc, size_t layer,
                 enum kvc_prefix prefix, struct err *err);
void kvc_mlp_free(struct kvc_mlp *mlp); /* a zeroed struct is fine */

/*
 * kvc_compress() makes n / factor rows of the n rows at x [n, d], and behind
 * them the n % factor that are left, unchanged; d is the last of mlp->dims,
 * factor the first by it.  Returns the number of rows of y, which may be x.
 * scratch: kvc_scratch() floats.
 */
size_t kvc_scratch(const struct kvc_mlp *mlp);
size_t kvc_compress(const struct kvc_mlp *mlp, float *y, const float *x,
                    size_t n, float *scratch);

#endif
