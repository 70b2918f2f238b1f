/*
 * Sums of rows: what attention does with its keys, transposed, and values.
 */
#ifndef CORE_KERNEL_MIX_H
#define CORE_KERNEL_MIX_H

#include <stdbool.h>
#include <stddef.h>

#include "core/dtype.h"

/*
 * mix() computes y[i][c] = sum over r of p[i][r] * w[r][c], and what y held
 * before if 'add'.
 *   w  [rows, cols]  BF16, F16 or F32 ('w_dtype'), little-endian, rows 'ldw'
 *                    elements apart, at any address
 *   p  [n, rows]     f32, rows 'ldp' floats apart
 *   y  [n, cols]     f32, rows 'ldy' floats apart; must not overlap p
 * Each sum is one f32 accumulator, r ascending (FMA, where the instruction set
 * has it): it depends on nothing but its own numbers.  Runs in the calling
 * thread.  Cannot fail.
 */
struct mix {
    float *y;
    const void *w;
    const float *p;
    size_t ldy, ldw, ldp;
    size_t rows, cols, n;
    enum dtype w_dtype;
    bool add;
};

void mix(const struct mix *m);

#endif
