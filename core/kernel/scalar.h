/* SPDX-License-Identifier: ISC */
/*
 * What the references share: weights, and the order of a sum.  Products are
 * added by fmaf(), as vectors do; where the CPU has no FMA the C library
 * computes it, exactly and slowly.
 */
#ifndef CORE_KERNEL_SCALAR_H
#define CORE_KERNEL_SCALAR_H

#include <math.h>

#include "core/dtype.h"
#include "core/kernel/ops.h"

#define LANES 8 /* of a sum, on every CPU */

/* Times 2^112 moves the exponent's bias from 15 to 127, denormals too. */
INLINE float
weight_f16(uint32_t h)
{
    uint32_t a = (h & 0x7fff) << 13;
    float f = f32_from_bits(a) * 0x1p112f;

    /* Infinity and NaN come out as 65536 and more: their exponent is 255. */
    if (a >= 0x0f800000)
        f = f32_from_bits(a | 0x7f800000);
    return f32_from_bits(f32_bits(f) | (h & 0x8000) << 16);
}

INLINE float
weight(const void *w, enum dtype dtype, size_t i)
{
    return dtype == DT_F32    ? load_f32(w, i)
           : dtype == DT_BF16 ? bf16_to_f32(load16(w, i))
                              : weight_f16(load16(w, i));
}

/* sum_lanes() adds n lanes, a power of two, in halves. */
static inline float
sum_lanes(float *lane, size_t n)
{
    while ((n /= 2) > 0)
        for (size_t i = 0; i < n; i++)
            lane[i] += lane[i + n];
    return lane[0];
}

#endif
