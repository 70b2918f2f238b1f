/* SPDX-License-Identifier: ISC */
/*
 * VDPBF16PS: acc = fma(a1, b1, acc), then fma(a0, b0, acc), of the halves of a
 * word, each rounded to nearest even whatever MXCSR says.  Denormals flush:
 * bf16 inputs and sums under 2^-126 count as 0 here, not in the other kernels.
 */
#include "core/kernel/gemm_words_simd.h"

INLINE vf
dot_bf16(vf acc, vf a, vf b)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
}

WORDS_KERNELS(rows_bf16, dot_bf16)

static void
bf16(float *t, const uint16_t *a, size_t lda, const uint16_t *b, size_t m,
     size_t n, size_t k, bool add)
{
    for (size_t i = 0; i < m; i += TILE_X) {
        struct words p = { .t = t + i * COLS,
                           .start = add ? t + i * COLS : zeros,
                           .lds = add ? COLS : 0,
                           .a = (const char *)(a + i * lda),
                           .lda = 2 * lda,
                           .b = (const void *)b,
                           .n = k / 2,
                           .cols = n };

        rows_bf16[m - i < TILE_X ? m - i : TILE_X](&p);
    }
}

const struct gemm_bf16_ops gemm_bf16_avx512bf16 = { .product = bf16,
                                                    .tile = TILE_X };
