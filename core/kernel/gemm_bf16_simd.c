/* SPDX-License-Identifier: ISC */
/*
 * For instruction sets without a product of bf16: f32 by shift and mask, then
 * FMA of the high half of a word before the low one, which is VDPBF16PS's order
 * (but denormals are kept).
 */
#include "core/kernel/gemm_wide_simd.h"

INLINE vf
high_bf16(vf w)
{
    return (vf)((vu)w & 0xffff0000u);
}

INLINE vf
low_bf16(vf w)
{
    return (vf)((vu)w << 16);
}

INLINE vf
both_bf16(const char *words)
{
    vf w = load_twice(words);

    return alternate(high_bf16(w), low_bf16(w));
}

INLINE vf
dot_f32(vf acc, vf a, vf b)
{
    return vf_fma(a, b, acc);
}

WORDS_KERNELS(rows_f32, dot_f32)

static void
bf16(float *t, const uint16_t *a, size_t lda, const uint16_t *b, size_t m,
     size_t n, size_t k, bool add)
{
    wide_product(t, (const char *)a, 2 * lda, (const char *)b, m, n, k / 2, add,
                 high_bf16, low_bf16, both_bf16, rows_f32);
}

const struct gemm_bf16_ops TABLE(gemm_bf16) = {
    .product = bf16,
};
