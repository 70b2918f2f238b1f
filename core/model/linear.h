/* SPDX-License-Identifier: ISC */
/*
 * Linear layers: weights as they lie in the mapped file, and a chunk's rows
 * through them in the class of exactness that is asked for.
 */
#ifndef CORE_MODEL_LINEAR_H
#define CORE_MODEL_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/kernel/gemm.h"

struct chunk;
struct engine;
struct lora;
struct tabled;

/* A linear layer: y = w x + bias, and what its adapters add. */
struct linear {
    struct weight w; /* [out, in] in the mapped file */
    bool by_k;       /* but it is [in, out] */
    size_t in, out;
    const float *bias;          /* [out], or NULL */
    const struct tabled *table; /* instead of w, from this column of its
                                 * outputs on; or NULL */
    size_t table_col;
    struct lora *lora; /* the first of its adapters' parts, or NULL */
};

/* One of the linear layers that share an input, and where it goes. */
struct apply {
    const struct linear *linear;
    float *y; /* [rows, linear->out] */
    bool add; /* to what is there: the residual stream */
};

#define MAX_APPLY 4

/* The same of some of the input's rows, as an expert has them: row .. row + n -
 * 1; y[0] is of the first. */
struct apply_some {
    struct apply apply;
    size_t row, n;
};

/* linear_job() is the product and the bias as gemm() takes them: y [rows,
 * l->out] = w x + bias, 'add'ed to what is there. */
struct gemm_job linear_job(const struct linear *l, float *y, bool add);

/* linear_back_job() is the way back, past a frozen w: dx [rows, l->in] = dy w,
 * of dy [rows, l->out]. */
struct gemm_job linear_back_job(const struct linear *l, float *dx, bool add);

/* linear_alike() is how many rows of a chunk, from a span's first on, are all
 * of prompts or all generated, or all that is left in COMPUTE_F32, where that
 * is the same; *span becomes the first span after them. */
size_t linear_alike(const struct engine *engine, const struct chunk *chunk,
                    size_t *span);

/*
 * Rows x through n layers, and what their adapters add:
 *                  rows             in COMPUTE_BF16             tables
 *   linear_apply   a chunk's        rounded; those of prompts   yes
 *                                   by gemm_bf16()
 *   linear_dense   the same         the same                    no; no adapters
 *   linear_rows    experts', head's the same; by gemm_int8()    no
 *                                   where w is I8
 *   linear_some    experts', to     the same                    no
 *                  GEMM_MAX_JOBS
 *   linear_exact   a router's       f32                         no
 */
void linear_apply(struct engine *engine, const struct chunk *chunk,
                  const struct apply *to, size_t n, const float *x);
void linear_dense(struct engine *engine, const struct chunk *chunk,
                  const struct apply *to, size_t n, const float *x);
void linear_rows(struct engine *engine, const struct apply *to, size_t n,
                 const float *x, size_t n_rows, bool generated);
void linear_some(struct engine *engine, const struct apply_some *to, size_t n,
                 const float *x, size_t n_rows, bool generated);
void linear_exact(struct engine *engine, const struct apply *to, const float *x,
                  size_t n_rows);

/*
 * linear_backward() makes dx [n_rows, in] = dy w, or adds that, with what the
 * layer's adapter, which must be its only one, adds to it; dx NULL: it is not
 * wanted.  It leaves scale dy b in low [n_rows, rank].
 * In COMPUTE_BF16 the operands of the product with w are rounded; where w is
 * I8, dy times w's scales is rounded to int8 with a scale for each row.
 */
void linear_backward(struct engine *engine, const struct linear *l, float *dx,
                     bool add, const float *dy, float *low, size_t n_rows);

/* A layer's part of the backward, from which its adapter's gradients follow: of
 * 'a' low^T x, of 'b' dy^T (scale a x). */
struct linear_grads {
    const struct linear *linear;
    const float *x;   /* [n_rows, in] */
    const float *dy;  /* [n_rows, out] */
    const float *low; /* [n_rows, rank] */
    size_t n_rows;
    const uint32_t *slots; /* [n_rows] row i is the chunk's row
                            * slots[i] / per_row, ascending; NULL: row i */
    size_t per_row;
};

#endif
