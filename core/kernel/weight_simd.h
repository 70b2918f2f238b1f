/*
 * Vectors of weights: what the FAMILY_simd.h templates are made for is a type
 * that is known when they are compiled.
 */
#ifndef CORE_KERNEL_WEIGHT_SIMD_H
#define CORE_KERNEL_WEIGHT_SIMD_H

#include "core/kernel/simd.h"

enum weight_type { W_BF16, W_F16, W_F32 };

/* Bytes of one. */
INLINE size_t
size_of(enum weight_type t)
{
    return t == W_F32 ? 4 : 2;
}

/* VF weights, little-endian, at any address, widened. */
INLINE vf
load_w(enum weight_type t, const char *w)
{
    if (t == W_BF16)
        return vf_bf16(w);
    if (t == W_F16)
        return vf_f16(w);
    return vf_load((const float *)(const void *)w);
}

/* The first n < VF lanes alone are read, 0 in the others. */
INLINE vf
load_w_n(enum weight_type t, const char *w, size_t n)
{
    if (t == W_BF16)
        return vf_bf16_n(w, n);
    if (t == W_F16)
        return vf_f16_n(w, n);
    return vf_load_n((const float *)(const void *)w, n);
}

#endif
