/*
 * Template of gemm_int8_ISA.c for instruction sets without a product of int8:
 * s16 by shifts, VPMADDWD: exact (VPMADDUBSW would saturate).
 */
#include "core/kernel/gemm_wide_simd.h"

/* Bytes 1 and 3, 0 and 2 as s16. */
#if VF == 16
INLINE vf
high_int8(vf w)
{
    return _mm512_castsi512_ps(_mm512_srai_epi16(_mm512_castps_si512(w), 8));
}

INLINE vf
low_int8(vf w)
{
    __m512i up = _mm512_slli_epi32(_mm512_castps_si512(w), 8);

    return _mm512_castsi512_ps(_mm512_srai_epi16(up, 8));
}

INLINE vf
dot_s16(vf acc, vf a, vf b)
{
    __m512i p =
        _mm512_madd_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b));

    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(acc), p));
}

#else
INLINE vf
high_int8(vf w)
{
    return _mm256_castsi256_ps(_mm256_srai_epi16(_mm256_castps_si256(w), 8));
}

INLINE vf
low_int8(vf w)
{
    __m256i up = _mm256_slli_epi32(_mm256_castps_si256(w), 8);

    return _mm256_castsi256_ps(_mm256_srai_epi16(up, 8));
}

INLINE vf
dot_s16(vf acc, vf a, vf b)
{
    __m256i p =
        _mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b));

    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(acc), p));
}
#endif

WORDS_KERNELS(rows_s16, dot_s16)

static void
int8(int32_t *t, const int8_t *a, size_t lda, const int8_t *b,
     const int32_t *comp, size_t m, size_t k, bool add)
{
    (void)comp;
    wide_product((float *)(void *)t, (const char *)a, lda, (const char *)b, m,
                 k / 4, add, high_int8, low_int8, rows_s16);
}

#define GEMM_INT8_OPS   \
    {                   \
        .product = int8 \
    }
