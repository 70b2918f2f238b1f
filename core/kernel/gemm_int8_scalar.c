/* SPDX-License-Identifier: ISC */
/* The reference of gemm.h's int8 products. */
#include "core/kernel/ops.h"

static void
int8(int32_t *t, const int8_t *a, size_t lda, const int8_t *b,
     const int32_t *comp, size_t m, size_t k, bool add)
{
    (void)comp;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < 64; j++) {
            int32_t sum = add ? t[i * 64 + j] : 0;

            for (size_t c = 0; c < k; c++)
                sum += a[i * lda + c] * b[c / 4 * 256 + 4 * j + c % 4];
            t[i * 64 + j] = sum;
        }
}

const struct gemm_int8_ops gemm_int8_scalar = { .product = int8 };
