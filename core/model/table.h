/*
 * A linear layer by its lookup table: an encoder says of an input which few
 * directions it is made of, and the products of these with the layer's
 * weights, made before, are added up.
 *
 *   p   = encoder_weight x + encoder_bias; where 'centered', of
 *         x - decoder_bias
 *   v_i = the k largest of p that are over 0; fewer, if there are fewer
 *   y   = bias_product + sum over i of v_i products[i]
 *   x^  = decoder_bias + sum over i of v_i decoder_weight[i]
 *   y  += sum over d in C of (x - x^)[d] W[:, d]    (compensation)
 *
 * An encoder costs n_basis / out times the layer: a table is no way to save
 * time where out is small against n_basis.
 * A row whose p is not finite becomes NaN; no other row sees it.
 * Source: man/lut.5.
 */
#ifndef CORE_MODEL_TABLE_H
#define CORE_MODEL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/kernel/gemm.h"

#define TABLE_PARTS 3 /* layers that a fused one stands for */

/* A layer's own weights, or a part of them. */
struct table_part {
    const void *w; /* [out, in] as in a model's file */
    enum dtype dtype;
    size_t out;
};

/* What table_apply() works with; all of it is borrowed. */
struct table {
    size_t in, out, n_basis, k; /* 1 <= k <= n_basis */
    enum dtype dtype;           /* BF16, F16 or F32, at any address: */
    const void *encoder_weight; /* [n_basis, in] */
    const void *decoder_weight; /* [n_basis, in] */
    const void *products;       /* [n_basis, out] */
    const float *encoder_bias;  /* [n_basis] */
    const float *decoder_bias;  /* [in] */
    const float *bias_product;  /* [out] */
    bool centered;

    /* weights for compensation: these, or else the parts, in their order */
    const void *weight_t; /* [in, out] of 'dtype', or NULL */
    void *transposed;     /* weight_t, if it is of table_transpose() */
    struct table_part part[TABLE_PARTS];
    size_t n_parts;
};

/* Which dims of the input are in C: those with the largest |x - x^|, times
 * 'by' where that is given; of equals the lower. */
struct table_fix {
    enum { FIX_NONE, FIX_TOP, FIX_OVER } how;
    size_t top;      /* FIX_TOP: so many */
    float threshold; /* FIX_OVER: all over it */
    const float *by; /* [in], or NULL */
};

/* table_ratio() is the part 'ratio' of 'in' dims, rounded up: FIX_TOP's. */
size_t table_ratio(size_t in, double ratio);

/*
 * table_transpose() gives a table without weight_t one, [in, out], out of its
 * parts, where 'fix' takes so few dims that reading these alone costs less than
 * the layer: an eighth at most.  Does nothing where that is not so, or where
 * the parts are not of the table's dtype.
 * 0, or -1 with 'err' set (EX_SOFTWARE).
 * Owner: the caller, until table_untranspose(), which takes it away again.
 */
int table_transpose(struct table *t, const struct table_fix *fix,
                    struct err *err);
void table_untranspose(struct table *t); /* a zeroed struct is fine */

/*
 * table_open() makes a workspace for tables of at most 'in' inputs and 'k'
 * active directions, and 'rows' rows at once: 4 k numbers a row and thread,
 * n_basis of them nowhere.  'gemm' is borrowed.
 * 0, or -1 with 'err' set (EX_SOFTWARE).  One thread at a time may use it.
 * Owner: the caller, until table_close().
 */
struct table_work;
int table_open(struct table_work **work, struct gemm *gemm, size_t in, size_t k,
               size_t rows, struct err *err);
void table_close(struct table_work *work); /* NULL is fine */

/* What the last table_apply() found of a row. */
struct table_row {
    bool bad;              /* it became NaN; n is 0 */
    size_t n;              /* directions */
    const uint32_t *idx;   /* [n], ascending */
    const float *v;        /* [n] */
    const float *error;    /* [in] x - x^; with FIX_NONE only if asked for */
    size_t n_fixed;        /* dims in C */
    const uint32_t *fixed; /* [n_fixed], ascending */
    size_t positives;      /* of p, if they were counted */
};

enum { TABLE_ERROR = 1, TABLE_COUNT = 2 }; /* flags: make error, positives */

/*
 * table_apply() puts rows x [n, in] through a table, into y [n, out]; at most
 * the workspace's rows.  'fix' may be NULL.  Returns how many rows are bad.
 * An output's bits depend on its row and the instruction set alone.
 */
size_t table_apply(struct table_work *work, const struct table *t,
                   const struct table_fix *fix, float *y, size_t ldy,
                   const float *x, size_t ldx, size_t n, int flags);
struct table_row table_row(const struct table_work *work, size_t i);

/* The steps of table_apply(), for who wants their times: they are called one
 * after the other. */
void table_encode(struct table_work *work, const struct table *t,
                  const float *x, size_t ldx, size_t n, int flags);
size_t table_select(struct table_work *work, const struct table *t, size_t n);
void table_combine(struct table_work *work, const struct table *t, float *y,
                   size_t ldy, size_t n);
void table_compensate(struct table_work *work, const struct table *t,
                      const struct table_fix *fix, float *y, size_t ldy,
                      const float *x, size_t ldx, size_t n, int flags);

/* table_dense() is the layer itself: y = W x by the parts, without a bias. */
void table_dense(struct gemm *gemm, const struct table *t, float *y, size_t ldy,
                 const float *x, size_t ldx, size_t n);

/* table_norms() gives |W_d|, the norm of each column of the layer's weights,
 * in f64 sums.  norms [in]. */
void table_norms(float *norms, const struct table *t);

#endif
