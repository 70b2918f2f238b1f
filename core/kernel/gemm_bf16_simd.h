/*
 * Template of gemm_bf16_ISA.c for instruction sets without a product of bf16:
 * f32 by shift and mask, f32 FMA: the high half of a word, then the low one,
 * which is VDPBF16PS's order (but denormals are kept).
 */
#include "core/kernel/gemm_wide_simd.h"

#if VF == 16
INLINE vf
high_bf16(vf w)
{
    return _mm512_and_ps(
        w, _mm512_castsi512_ps(_mm512_set1_epi32((int)0xffff0000)));
}

INLINE vf
low_bf16(vf w)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(w), 16));
}

#elif VF == 8
INLINE vf
high_bf16(vf w)
{
    return _mm256_and_ps(
        w, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000)));
}

INLINE vf
low_bf16(vf w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(w), 16));
}

#else
INLINE vf
high_bf16(vf w)
{
    return vreinterpretq_f32_u32(
        vandq_u32(vreinterpretq_u32_f32(w), vdupq_n_u32(0xffff0000)));
}

INLINE vf
low_bf16(vf w)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(w), 16));
}
#endif

INLINE vf
dot_f32(vf acc, vf a, vf b)
{
    return vf_fma(a, b, acc);
}

WORDS_KERNELS(rows_f32, dot_f32)

static void
bf16(float *t, const uint16_t *a, size_t lda, const uint16_t *b, size_t m,
     size_t k, bool add)
{
    wide_product(t, (const char *)a, 2 * lda, (const char *)b, m, k / 2, add,
                 high_bf16, low_bf16, rows_f32);
}

#define GEMM_BF16_OPS   \
    {                   \
        .product = bf16 \
    }
