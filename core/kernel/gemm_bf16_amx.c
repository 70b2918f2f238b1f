/* SPDX-License-Identifier: ISC */
/* TDPBF16PS: of gemm_tiles_simd.h, X as it is or split. */
#include "core/kernel/gemm_tiles_simd.h"

static void
bf16_to(float *t, float *c, size_t ldc, enum gemm_to how, const uint16_t *a,
        const uint16_t *lo, size_t lda, const uint16_t *b, size_t m, size_t n,
        size_t k, bool add, const struct gemm_ahead *ahead)
{
    const struct panel_part part = {
        .t = (char *)t,
        .c = (char *)c,
        .ldc = 4 * ldc,
        .how = how,
        .x = (const char *)a,
        .lo = (const char *)lo,
        .b = (const char *)b,
        .ldx = 2 * lda,
        .m = m,
        .halves = n <= 32 ? 1 : 2,
        .steps = k / 32,
        .add = add,
        .ahead = ahead->rows,
        .ahead_ld = ahead->ld,
    };

    if (lo)
        run(SPLIT, &part);
    else
        run(BF16, &part);
}

static void
bf16(float *t, const uint16_t *a, size_t lda, const uint16_t *b, size_t m,
     size_t n, size_t k, bool add)
{
    bf16_to(t, NULL, 0, TO_STORE, a, NULL, lda, b, m, n, k, add,
            &(struct gemm_ahead){ 0 });
}

const struct gemm_bf16_ops gemm_bf16_amx = { .product = bf16,
                                             .product_to = bf16_to };
