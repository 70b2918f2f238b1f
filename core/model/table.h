/* SPDX-License-Identifier: ISC */
/*
 * A linear layer by its lookup table: an encoder finds the few directions that
 * an input is made of, and their products with the layer's weights, computed
 * beforehand, are summed.
 *
 *   p   = encoder_weight x + encoder_bias; where 'centered', of
 *         x - decoder_bias
 *   v_i = the k largest of p that are over 0; fewer, if there are fewer; or
 *         all of p that are over their thresholds
 *   y   = bias_product + sum over i of v_i products[i]
 *   x^  = decoder_bias + sum over i of v_i decoder_weight[i]
 *   y  += sum over d in C of (x - x^)[d] W[:, d]    (compensation)
 *
 * The encoder costs n_basis / out times the layer: a table saves no time
 * where out is small against n_basis.
 *
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
#include "core/format/lut.h"
#include "core/kernel/gemm.h"
#include "core/model/form.h"
#include "core/model/latents.h"

struct linear;
struct stdir;

/* A table, by table_open(), or filled by hand: all of it is borrowed then. */
struct table {
    size_t in, out, n_basis;
    struct latents latents;           /* with thresholds, k is n_basis */
    struct decoder decoder, products; /* of x^, and of y */

    /* weights for compensation: these, or else the parts, in their order */
    const void *weight_t; /* [in, out], or NULL */
    enum dtype weight_dtype;
    /* for FIX_DIMS: those of its dims, by table_dims.h, or NULL */
    void *panels; /* [out / TABLE_PANEL][n_dims][TABLE_PANEL] */
    size_t panels_nbytes;
    enum dtype panels_dtype;
    void *transposed; /* weight_t, if table_transpose() made it */
    struct gemm_matrix part[LUT_MAX_PARTS]; /* [some of out, in] */
    size_t n_parts;

    struct form_memory packed; /* of table_bind_model()'s */
    struct lut_table file;
    float *bias;    /* [out] of the layers, zeros where they have none */
    size_t n_bound; /* outputs of the parts so far */
};

/*
 * table_open() opens a layer's file as lut_table_open() does; it has no parts
 * yet.  Owner: the caller, until table_close(); the lut lives longer.
 */
int table_open(struct table *t, const struct lut *lut,
               const struct lut_layer *layer, struct err *err);
/* table_open_name(): the table of the layer of that name, with or without
 * the root; EX_DATAERR where there is none. */
int table_open_name(struct table *t, const struct lut *lut, const char *name,
                    struct err *err);
void table_close(struct table *t); /* a zeroed struct is fine */

/*
 * table_bind() adds the next of the layers that the table stands for, in their
 * order.  Its weights are borrowed.  false where it does not fit: other inputs,
 * or more outputs than are left.
 * table_bind_end() follows the last one: false where outputs are left.  Biases
 * are added to bias_product where the exporter left them out.
 */
bool table_bind(struct table *t, const struct linear *part);
bool table_bind_end(struct table *t);

/* table_bind_model() binds all of them, from the model's directory or file at
 * 'path'; -1 with 'err' set.  Owner: the caller, of 'model', which must live as
 * long as the table, and is stdir_close()d in either case. */
int table_bind_model(struct table *t, struct stdir *model, const char *path,
                     struct err *err);

/* table_screen() has the table screened, by latents_screen().  Of a table
 * filled by hand, the caller closes latents.screen. */
void table_screen(struct table *t);

/* Which dims of the input are in C: those with the largest |x - x^|, times
 * 'by' where that is given, of equals the lower; or the same of all rows. */
struct table_fix {
    enum { FIX_NONE, FIX_TOP, FIX_OVER, FIX_DIMS } how;
    size_t top;           /* FIX_TOP: this many */
    float threshold;      /* FIX_OVER: all over it */
    const float *by;      /* [in], or NULL */
    const uint32_t *dims; /* FIX_DIMS: [n_dims], ascending */
    size_t n_dims;
};

/* table_ratio() is the part 'ratio' of 'in' dims, rounded up: FIX_TOP's. */
size_t table_ratio(size_t in, double ratio);

/*
 * table_transpose() gives a table without weight_t one, [in, out], made from
 * its parts, where 'fix' selects so few dims that reading these alone costs
 * less than the layer: an eighth at most.  Does nothing where that is not so.
 * 0, or -1 with 'err' set (EX_SOFTWARE).
 */
int table_transpose(struct table *t, const struct table_fix *fix,
                    struct err *err);

/*
 * table_work_open() makes the workspace for up to 'rows' rows at once of any of
 * some tables, whose latents the sizes are of, or for as many as
 * latents_work_open() does: table_work_rows().  'gemm' is borrowed.
 * 0, or -1 with 'err' set (EX_SOFTWARE).  One thread at a time may use it.
 * Owner: the caller, until table_work_close().
 */
struct table_work;
int table_work_open(struct table_work **work, struct gemm *gemm,
                    const struct latents_sizes *sizes, size_t rows,
                    struct err *err);
void table_work_close(struct table_work *work); /* NULL is fine */
size_t table_work_rows(const struct table_work *work);

/* What the last table_apply() found in a row. */
struct table_row {
    bool bad;              /* it became NaN; n is 0 */
    size_t n;              /* directions */
    const uint32_t *idx;   /* [n], ascending */
    const float *v;        /* [n] */
    const float *error;    /* [in] x - x^; with FIX_NONE only if requested */
    size_t n_fixed;        /* dims in C */
    const uint32_t *fixed; /* [n_fixed], ascending */
    size_t positives;      /* of p, if they were counted */
};

enum { TABLE_ERROR = 1, TABLE_COUNT = 2 }; /* flags: make error, positives */

/*
 * table_apply() computes y [n, out] from rows x [n, in]; n is at most
 * table_work_rows().  'fix' may be NULL.  Returns how many rows of y have a
 * number that is NaN or infinite: the bad ones, and where the table has such
 * numbers.
 * An output's bits depend on its row and the instruction set alone.
 */
size_t table_apply(struct table_work *work, const struct table *t,
                   const struct table_fix *fix, float *y, size_t ldy,
                   const float *x, size_t ldx, size_t n, int flags);
struct table_row table_row(const struct table_work *work, size_t i);

/* table_reconstruct() computes x^ [n, in] of the rows last applied; of a bad
 * one it is NaN. */
void table_reconstruct(struct table_work *work, const struct table *t,
                       float *xhat, size_t ldx, size_t n);

/* The steps of table_apply(), to be timed: they are called in this order. */
void table_encode(struct table_work *work, const struct table *t,
                  const float *x, size_t ldx, size_t n, int flags);
void table_select(struct table_work *work, const struct table *t, size_t n);
void table_combine(struct table_work *work, const struct table *t, float *y,
                   size_t ldy, size_t n);
void table_compensate(struct table_work *work, const struct table *t,
                      const struct table_fix *fix, float *y, size_t ldy,
                      const float *x, size_t ldx, size_t n, int flags);

/* table_dense() is the layer itself: y = W x + bias, by the parts. */
void table_dense(struct gemm *gemm, const struct table *t, float *y, size_t ldy,
                 const float *x, size_t ldx, size_t n);

/* table_weights() makes f32 of the layer's weights of n inputs, from one on: to
 * [n, out].  table_weights_dtype() is a type that all of them are exact in. */
void table_weights(float *to, const struct table *t, size_t in, size_t n);
enum dtype table_weights_dtype(const struct table *t);

/* table_norms() gives |W_d|, the norm of each column of the layer's weights,
 * in f64 sums.  norms [in]. */
void table_norms(float *norms, const struct table *t);

#endif
