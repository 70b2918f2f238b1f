/*
 * Products with row-major, unpacked weights, in the "exact" class: weights are
 * widened to f32, activations are f32, sums are f32 (FMA; the scalar kernel
 * rounds each product, then the sum).
 */
#ifndef CORE_KERNEL_GEMV_H
#define CORE_KERNEL_GEMV_H

#include <stddef.h>

#include "core/dtype.h"
#include "core/par.h"

/*
 * gemv() computes y[i][r] = sum over c of w[r][c] * x[i][c].
 *   w  [rows, cols]  BF16, F16 or F32 ('w_dtype'), little-endian, C order, at
 *                    any address
 *   x  [n_x, cols]   f32, rows 'ldx' floats apart
 *   y  [n_x, rows]   f32, rows 'ldy' floats apart, overwritten; must not
 *                    overlap x
 * Each sum is made in an order fixed by 'cols' and the instruction set, never
 * by n_x, the other rows, the dtype's address or the threads: the same bits
 * for any -j and any split of x into calls.  Cannot fail.  par may be NULL.
 */
void gemv(struct par *par, float *y, size_t ldy, const void *w,
          enum dtype w_dtype, size_t rows, size_t cols, const float *x,
          size_t ldx, size_t n_x);

#endif
