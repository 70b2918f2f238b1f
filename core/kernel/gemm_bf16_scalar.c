/* SPDX-License-Identifier: ISC */
/* The reference of gemm.h's bf16 products. */
#include "core/kernel/ops.h"

static void
bf16(float *t, const uint16_t *a, size_t lda, const uint16_t *b, size_t m,
     size_t n, size_t k, bool add)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = add ? t[i * 64 + j] : 0;

            for (size_t c = 0; c < k; c++)
                sum += bf16_to_f32(a[i * lda + c]) *
                       bf16_to_f32(b[c / 2 * 128 + 2 * j + c % 2]);
            t[i * 64 + j] = sum;
        }
}

const struct gemm_bf16_ops gemm_bf16_scalar = { .product = bf16 };
