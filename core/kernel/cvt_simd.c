/* SPDX-License-Identifier: ISC */
/*
 * cvt by vectors: compiled for each instruction set that simd.h knows.  Tails
 * go through the scalar functions of core/dtype.h, to the same bits.
 */
#include "core/dtype.h"
#include "core/kernel/simd.h"
#include "core/le.h"

static void
from_bf16(float *to, const void *from, size_t n)
{
    const char *p = from;
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(to + i, vf_bf16(p + 2 * i));
    for (; i < n; i++)
        to[i] = bf16_to_f32(load16(p, i));
}

static void
from_f16(float *to, const void *from, size_t n)
{
    const char *p = from;
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(to + i, vf_f16_exact(p + 2 * i));
    for (; i < n; i++)
        to[i] = f16_to_f32(load16(p, i));
}

static void
to_bf16(void *to, const float *from, size_t n)
{
    char *p = to;
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_to_bf16(p + 2 * i, vf_load(from + i));
    for (; i < n; i++)
        put_le16(p + 2 * i, f32_to_bf16(from[i]));
}

static void
to_f16(void *to, const float *from, size_t n)
{
    char *p = to;
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_to_f16(p + 2 * i, vf_load(from + i));
    for (; i < n; i++)
        put_le16(p + 2 * i, f32_to_f16(from[i]));
}

const struct cvt_ops TABLE(cvt) = {
    .from_bf16 = from_bf16,
    .from_f16 = from_f16,
    .to_bf16 = to_bf16,
    .to_f16 = to_f16,
};
