/* SPDX-License-Identifier: ISC */
/*
 * VPDPBUSD multiplies unsigned by signed bytes, so a goes in as a + 128, and
 * 'comp' takes 128 times the column's sum off again.
 * Sums are modulo 2^32, without saturation: the result is exact.
 */
#include "core/kernel/gemm_words_simd.h"

/* Words: 32 KiB of b stay in the first cache, of 48, for all rows. */
enum { BLOCK = 128 };

INLINE vf
dot_u8s8(vf acc, vf a, vf b)
{
    return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(acc),
                                                   _mm512_castps_si512(a),
                                                   _mm512_castps_si512(b)));
}

WORDS_KERNELS(rows_u8s8, dot_u8s8)

static void
subtract(int32_t *t, const int32_t *comp, size_t m)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < COLS; j += 16)
            _mm512_storeu_si512(
                t + i * COLS + j,
                _mm512_sub_epi32(_mm512_loadu_si512(t + i * COLS + j),
                                 _mm512_loadu_si512(comp + j)));
}

/* A sign bit flipped is 128 added. */
static void
flip_signs(int8_t *x, size_t n)
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);

    for (size_t i = 0; i < n; i += 64)
        _mm512_storeu_si512(x + i,
                            _mm512_xor_si512(_mm512_loadu_si512(x + i), sign));
}

static void
int8(int32_t *t, const int8_t *a, size_t lda, const int8_t *b,
     const int32_t *comp, size_t m, size_t k, bool add)
{
    _Alignas(64) int32_t first_sums[COLS];

    if (add)
        subtract(t, comp, m);
    else
        for (size_t j = 0; j < COLS; j++)
            first_sums[j] = -comp[j];
    for (size_t c = 0, n; c < k; c += n) {
        n = k - c < 4 * BLOCK ? k - c : 4 * BLOCK;
        for (size_t i = 0; i < m; i += TILE_X) {
            bool on = add || c > 0;
            size_t rows = m - i < TILE_X ? m - i : TILE_X;
            int32_t *to = t + i * COLS;
            struct words p = { .t = (void *)to,
                               .start = (const void *)(on ? to : first_sums),
                               .lds = on ? COLS : 0,
                               .a = (const char *)a + i * lda + c,
                               .lda = lda,
                               .b = (const void *)(b + c * COLS),
                               .n = n / 4,
                               .cols = COLS };

            rows_u8s8[rows](&p);
        }
    }
}

const struct gemm_int8_ops gemm_int8_avx512vnni = { .product = int8,
                                                    .ready = flip_signs,
                                                    .tile = 4 * TILE_X };
