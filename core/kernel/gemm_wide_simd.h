/* SPDX-License-Identifier: ISC */
/*
 * Of gemm_bf16_simd.c and gemm_int8_simd.c, for instruction sets without such
 * a product: words are widened to two each, once for a block of W that stays in
 * the second cache while all rows of X pass, and once for each of these.
 */
#include "core/kernel/gemm_words_simd.h"

/* Words: 128 KiB of widened W, and 12 KiB of X, which stay in the first cache.
 * In smaller blocks sums would be loaded and stored more often, and rows of X
 * come in pieces that no prefetcher follows: a sixth of the time.  With few
 * rows, widening W is more, and the first cache has it, too. */
enum { WIDE_BLOCK = 256, FEW_BLOCK = 48, FEW_ROWS = 128 };

typedef vf half_fn(vf words);
typedef vf pair_fn(const char *words); /* both halves of VF / 2 */

#if VF == 16
/* VF / 2 words, each twice. */
INLINE vf
load_twice(const char *p)
{
    __m512i w = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const void *)p));

    return _mm512_castsi512_ps(_mm512_or_si512(w, _mm512_slli_epi64(w, 32)));
}

/* Every second lane of each: of a the first, of b the second. */
INLINE vf
alternate(vf a, vf b)
{
    return _mm512_mask_mov_ps(a, 0xaaaa, b);
}

#elif VF == 8
INLINE vf
load_twice(const char *p)
{
    __m128i w = _mm_loadu_si128((const void *)p);

    return _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(
        _mm256_castsi128_si256(w), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)));
}

INLINE vf
alternate(vf a, vf b)
{
    return _mm256_blend_ps(a, b, 0xaa);
}

#else
INLINE vf
load_twice(const char *p)
{
    uint32x2_t w;

    memcpy(&w, p, sizeof(w));
    return vreinterpretq_f32_u32(
        vcombine_u32(vzip1_u32(w, w), vzip2_u32(w, w)));
}

INLINE vf
alternate(vf a, vf b)
{
    return vtrn1q_f32(a, b); /* neighbours are the same */
}

#endif

/* n words of the columns that the product reads, of 64, a tile's after
 * another's: streams for the prefetcher. */
INLINE void
widen_b(float *to, const char *b, size_t n, size_t cols, half_fn *const high,
        half_fn *const low)
{
    const size_t tile = tile_vectors(cols) * VF;

    for (size_t w = 0; w < n; w++, to += 2 * tile, b += 4 * COLS)
        for (size_t j = 0; j < words_read(cols); j += VF) {
            float *at = to + j / tile * tile * 2 * n + j % tile;
            vf v = vf_load((const void *)(b + 4 * j));

            vf_store(at, high(v));
            vf_store(at + tile, low(v));
        }
}

/* n words of m rows, rows 2 * WIDE_BLOCK words apart then. */
INLINE void
widen_a(float *to, const char *a, size_t lda, size_t n, size_t m,
        pair_fn *const both)
{
    for (size_t i = 0; i < m; i++)
        for (size_t w = 0; w < n; w += VF / 2)
            vf_store(to + i * 2 * WIDE_BLOCK + 2 * w,
                     both(a + i * lda + 4 * w));
}

/* n words (a multiple of 16) of m rows, lda bytes apart. */
INLINE void
wide_product(float *t, const char *a, size_t lda, const char *b, size_t m,
             size_t cols, size_t n, bool add, half_fn *const high,
             half_fn *const low, pair_fn *const both, words_fn *const *rows)
{
    _Alignas(64) float wide_b[WIDE_BLOCK * 2 * COLS];
    _Alignas(64) float wide_a[TILE_X * 2 * WIDE_BLOCK];
    const size_t block = m < FEW_ROWS ? FEW_BLOCK : WIDE_BLOCK;
    size_t w = 0;

    do {
        size_t n_w = n - w < block ? n - w : block;
        bool on = add || w > 0;

        widen_b(wide_b, b + w * 4 * COLS, n_w, cols, high, low);
        for (size_t i = 0; i < m; i += TILE_X) {
            size_t x = m - i < TILE_X ? m - i : TILE_X;
            struct words p = { .t = t + i * COLS,
                               .start = on ? t + i * COLS : zeros,
                               .lds = on ? COLS : 0,
                               .a = (const char *)wide_a,
                               .lda = sizeof(wide_a) / TILE_X,
                               .b = wide_b,
                               .tiled = true,
                               .n = 2 * n_w,
                               .cols = cols };

            widen_a(wide_a, a + i * lda + 4 * w, lda, n_w, x, both);
            rows[x](&p);
        }
        w += n_w;
    } while (w < n);
}
