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

/* Both, of VF / 2 words. */
INLINE vf
both_int8(const char *words)
{
    const __m128i order =
        _mm_setr_epi8(1, 3, 0, 2, 5, 7, 4, 6, 9, 11, 8, 10, 13, 15, 12, 14);
#if VF == 16
    return (vf)_mm512_cvtepi8_epi16(
        _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)words),
                            _mm256_broadcastsi128_si256(order)));
#else
    return (vf)_mm256_cvtepi8_epi16(
        _mm_shuffle_epi8(_mm_loadu_si128((const void *)words), order));
#endif
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
                 COLS, k / 4, add, high_int8, low_int8, both_int8, rows_s16);
}

const struct gemm_int8_ops TABLE(gemm_int8) = {
    .product = int8,
};
