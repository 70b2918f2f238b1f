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
        .steps = k / 64,
        .add = add,
    };

    (void)comp; /* both are signed here */
    run(INT8, &part, m);
}

const struct gemm_int8_ops gemm_int8_amx = { .product = int8 };
