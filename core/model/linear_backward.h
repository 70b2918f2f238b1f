/* SPDX-License-Identifier: ISC */
/* The backward of a linear layer past its frozen weights, and what its
 * adapter's gradients follow from. */
#ifndef CORE_MODEL_LINEAR_BACKWARD_H
#define CORE_MODEL_LINEAR_BACKWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/model/linear.h"

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
