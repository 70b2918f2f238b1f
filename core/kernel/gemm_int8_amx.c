/* SPDX-License-Identifier: ISC */
/* TDPBSSD: of gemm_tiles_simd.h. */
#include "core/kernel/gemm_tiles_simd.h"

static void
int8(int32_t *t, const int8_t *a, size_t lda, const int8_t *b,
     const int32_t *comp, size_t m, size_t k, bool add)
{
    const struct panel_part part = {
        .t = (char *)t,
        .x = (const char *)a,
        .b = (const char *)b,
        .ldx = lda,
        .m = m,
        .halves = 2,
        .steps = k / 64,
        .add = add,
    };

    (void)comp; /* both are signed here */
    run(INT8, &part);
}

static void
int8_to(int32_t *t, float *c, size_t ldc, bool stream, const int8_t *a,
        size_t lda, const int8_t *b, const float *x_scale, const float *w_scale,
        size_t m, size_t k, bool add, const struct gemm_ahead *ahead)
{
    const struct panel_part part = {
        .t = (char *)t,
        .c = (char *)c,
        .ldc = 4 * ldc,
        .how = stream ? TO_STREAM : TO_STORE,
        .x = (const char *)a,
        .b = (const char *)b,
        .x_scale = x_scale,
        .w_scale = w_scale,
        .ldx = lda,
        .m = m,
        .halves = 2,
        .steps = k / 64,
        .add = add,
        .ahead = ahead->rows,
        .ahead_ld = ahead->ld,
    };

    run(INT8, &part);
}

const struct gemm_int8_ops gemm_int8_amx = { .product = int8,
                                             .product_to = int8_to };
