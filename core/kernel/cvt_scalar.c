/* SPDX-License-Identifier: ISC */
#include "core/dtype.h"
#include "core/kernel/ops.h"
#include "core/le.h"

static void
from_bf16(float *to, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_to_f32(load16(from, i));
}

static void
from_f16(float *to, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f16_to_f32(load16(from, i));
}

static void
to_bf16(void *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_le16((char *)to + 2 * i, f32_to_bf16(from[i]));
}

static void
to_f16(void *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_le16((char *)to + 2 * i, f32_to_f16(from[i]));
}

const struct cvt_ops cvt_scalar = {
    .from_bf16 = from_bf16,
    .from_f16 = from_f16,
    .to_bf16 = to_bf16,
    .to_f16 = to_f16,
};
