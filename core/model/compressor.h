/* SPDX-License-Identifier: ISC */
/*
 * --kvc: a session's cache made shorter by the MLPs of a kvc(5) file, each of
 * which makes one key (or value) of 'factor' consecutive ones.
 */
#ifndef CORE_MODEL_COMPRESSOR_H
#define CORE_MODEL_COMPRESSOR_H

#include <stddef.h>

#include "core/err.h"
#include "core/format/kvc.h"
#include "core/model/config.h"

struct session;

/*
 * One MLP, ready to run: Linear and ReLU, Linear and ReLU, Linear.  As in the
 * engine whose format this is, inputs, weights and what each linear layer
 * gives are rounded to f16; its sums are exact to f32 before that.
 */
struct compressor_mlp {
    size_t dims[KVC_SLOTS + 1]; /* factor * head_dim, .., head_dim */
    float *w[KVC_SLOTS];        /* [dims[i + 1], dims[i]] */
    float *bias[KVC_SLOTS];     /* [dims[i + 1]]; zeros where there is none */
};

/* compressor_mlp_load(): -1 with 'err' set (EX_DATAERR: no such MLP in the
 * file, shapes that do not follow each other).  Owner: until
 * compressor_mlp_free(), which takes a zeroed struct, too. */
int compressor_mlp_load(struct compressor_mlp *mlp, const struct kvc *kvc,
                        size_t layer, enum kvc_prefix prefix, struct err *err);
void compressor_mlp_free(struct compressor_mlp *mlp);

/*
 * compressor_mlp_run() makes n / factor rows of the n rows at x [n, d], and
 * after them the n % factor that are left, unchanged; d is the last of
 * mlp->dims, factor the first by it.  Returns the number of rows of y, which
 * may be x. scratch: compressor_mlp_scratch() floats.
 */
size_t compressor_mlp_scratch(const struct compressor_mlp *mlp);
size_t compressor_mlp_run(const struct compressor_mlp *mlp, float *y,
                          const float *x, size_t n, float *scratch);

/*
 * A KV-cache compressor, as kvc(5) describes it.  compressor_open() reads the
 * file and checks that it fits: layers, head_dim, no sliding windows: a
 * window is of positions, and a key made of several has none.  Keys are
 * compressed as they are: rotated or not, or as learned positions left them.
 * -1 with 'err' set, as kvc_open() does; EX_DATAERR for a model it is not of.
 * Owner: the caller, until compressor_close().  Read-only after opening.
 */
struct compressor;
int compressor_open(struct compressor **compressor, const char *path,
                    const struct config *config, struct err *err);
void compressor_close(struct compressor *compressor); /* NULL is fine */

/*
 * session_compress() makes the keys and values of all tokens fed so far fewer,
 * where they are enough groups; tokens fed later have the positions they would
 * have had.  Once in a session.
 * 1, 0 (too few), or -1 with 'err' set (EX_SOFTWARE).
 */
int session_compress(struct session *session,
                     const struct compressor *compressor, struct err *err);

#endif
