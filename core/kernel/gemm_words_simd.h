/*
 * Template of gemm_ISA.c: the packed classes' products, as sums over words of
 * 32 bits.
 *
 *   t[i][j] += sum over w of dot(a[i][w], b[w][j])    b [n][64], t [m][64]
 *
 * 'dot' is the instruction set's: two bf16 or four int8 by themselves, or one
 * f32, or two s16, which widen_b() and widen_a() make of a word, a pair of
 * words each.  A row's sum goes through w in its order, whatever rows are with
 * it in a tile and however k is cut.
 */
#include "core/kernel/ops.h"
#include "core/kernel/simd.h"

enum { COLS = 64, TILE_X = 6 }; /* columns of a panel, rows of a tile */

#if VF == 8
enum { TILE_V = 2 }; /* vectors of a row in a tile: 12 of 16 registers */
#else
enum { TILE_V = 4 }; /* 24 of 32 */
#endif

typedef vf dot_fn(vf acc, vf a, vf b);

INLINE vf
set1_word(const char *p)
{
    float f;

    memcpy(&f, p, 4);
    return vf_set1(f);
}

/* X rows of a, 'lda' bytes apart, by TILE_V * VF columns of b. */
INLINE void
words_tile(float *t, const char *a, size_t lda, const float *b, size_t n,
           bool add, dot_fn *const dot, const size_t X)
{
    vf acc[TILE_X][TILE_V];

#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
#pragma GCC unroll 4
        for (size_t v = 0; v < TILE_V; v++)
            acc[i][v] = add ? vf_load(t + i * COLS + v * VF) : vf_set1(0);
    for (size_t w = 0; w < n; w++) {
        vf bv[TILE_V];

#pragma GCC unroll 4
        for (size_t v = 0; v < TILE_V; v++)
            bv[v] = vf_load(b + w * COLS + v * VF);
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++) {
            vf av = set1_word(a + i * lda + w * 4);

#pragma GCC unroll 4
            for (size_t v = 0; v < TILE_V; v++)
                acc[i][v] = dot(acc[i][v], av, bv[v]);
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
#pragma GCC unroll 4
        for (size_t v = 0; v < TILE_V; v++)
            vf_store(t + i * COLS + v * VF, acc[i][v]);
}

INLINE void
words_strip(float *t, const char *a, size_t lda, const float *b, size_t n,
            bool add, dot_fn *const dot, const size_t X)
{
    for (size_t j = 0; j < COLS; j += TILE_V * VF)
        words_tile(t + j, a, lda, b + j, n, add, dot, X);
}

/* m <= TILE_X rows by all columns. */
INLINE void
words_rows(float *t, const char *a, size_t lda, const float *b, size_t n,
           size_t m, bool add, dot_fn *const dot)
{
    switch (m) {
    case 6:
        words_strip(t, a, lda, b, n, add, dot, 6);
        break;
    case 5:
        words_strip(t, a, lda, b, n, add, dot, 5);
        break;
    case 4:
        words_strip(t, a, lda, b, n, add, dot, 4);
        break;
    case 3:
        words_strip(t, a, lda, b, n, add, dot, 3);
        break;
    case 2:
        words_strip(t, a, lda, b, n, add, dot, 2);
        break;
    default:
        words_strip(t, a, lda, b, n, add, dot, 1);
        break;
    }
}
