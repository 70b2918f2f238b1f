/* SPDX-License-Identifier: ISC */
/*
 * For instruction sets without a product of int8:
 * s16 by shifts, VPMADDWD: exact (VPMADDUBSW would saturate).
 */
#include "core/kernel/gemm_wide_simd.h"

typedef int16_t v16 __attribute__((vector_size(4 * VF)));

/* Bytes 1 and 3, 0 and 2 as s16. */
INLINE vf
high_int8(vf w)
{
    return (vf)((v16)w >> 8);
}

INLINE vf
low_int8(vf w)
{
    return (vf)((v16)((vu)w << 8) >> 8);
}

INLINE vf
dot_s16(vf acc, vf a, vf b)
{
#if VF == 16
    return (vf)((vu)acc + (vu)_mm512_madd_epi16((__m512i)a, (__m512i)b));
#else
    return (vf)((vu)acc + (vu)_mm256_madd_epi16((__m256i)a, (__m256i)b));
#endif
}

WORDS_KERNELS(rows_s16, dot_s16)

static void
int8(int32_t *t, const int8_t *a, size_t lda, const int8_t *b,
     const int32_t *comp, size_t m, size_t k, bool add)
{
    (void)comp;
    wide_product((float *)(void *)t, (const char *)a, lda, (const char *)b, m,
                 COLS, k / 4, add, high_int8, low_int8, rows_s16);
}

const struct gemm_int8_ops TABLE(gemm_int8) = {
    .product = int8,
};
