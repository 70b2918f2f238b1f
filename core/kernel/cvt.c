/* SPDX-License-Identifier: ISC */
#include "core/kernel/cvt.h"

#include <string.h>

#include "core/kernel/ops.h"
#include "core/le.h"
#include "core/mem.h"

void
cvt_to_f32(float *to, const void *from, enum dtype dtype, size_t n)
{
    const struct cvt_ops *ops = cvt_ops_of(cpu_isa());

    if (dtype == DT_BF16)
        ops->from_bf16(to, from, n);
    else if (dtype == DT_F16)
        ops->from_f16(to, from, n);
    else
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        memcpy(to, from, n * sizeof(*to));
#else
        for (size_t i = 0; i < n; i++)
            to[i] = load_f32(from, i);
#endif
}

void
cvt_from_f32(void *to, enum dtype dtype, const float *from, size_t n)
{
    const struct cvt_ops *ops = cvt_ops_of(cpu_isa());

    if (dtype == DT_BF16)
        ops->to_bf16(to, from, n);
    else if (dtype == DT_F16)
        ops->to_f16(to, from, n);
    else
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        memcpy(to, from, n * sizeof(*from));
#else
        for (size_t i = 0; i < n; i++)
            put_le32((char *)to + 4 * i, f32_bits(from[i]));
#endif
}

void
cvt_to_bf16(uint16_t *to, const void *from, enum dtype dtype, size_t n)
{
    size_t item = dtype_size(dtype);
    float piece[256];

    if (dtype == DT_BF16)
        memcpy(to, from, n * sizeof(*to));
    for (size_t i = 0, k; dtype != DT_BF16 && i < n; i += k) {
        k = smaller(n - i, 256);
        cvt_to_f32(piece, (const char *)from + i * item, dtype, k);
        cvt_from_f32(to + i, DT_BF16, piece, k);
    }
}

/* Sixteen at a time, for vectors: of the largest that rounds to a finite number
 * less |x|, as integers, the sign is left. */
bool
cvt_fits(const float *from, enum dtype dtype, size_t n)
{
    const int32_t most = dtype == DT_F16    ? 0x477fefff
                         : dtype == DT_BF16 ? 0x7f7f7fff
                                            : 0x7f7fffff;
    int32_t less = 0;
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++)
            less |= most - (int32_t)(f32_bits(from[i + j]) & INT32_MAX);
    for (; i < n; i++)
        less |= most - (int32_t)(f32_bits(from[i]) & INT32_MAX);
    return less >= 0;
}
