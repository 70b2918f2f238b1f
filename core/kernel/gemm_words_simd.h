/* SPDX-License-Identifier: ISC */
/*
 * Template of gemm_ISA.c: the packed classes' products, as sums over words of
 * 32 bits.
 *
 *   t[i][j] = start[i][j] + sum over w of dot(a[i][w], b[w][j])
 *
 * 'dot' is the instruction set's: two bf16 or four int8 by themselves, or one
 * f32, or two s16, which widen_b() and widen_a() make of a word, a pair of
 * words each.  A row's sum goes through w in its order, whatever rows are with
 * it in a tile and however k is cut.
 *
 * A tile is 6 rows of a by 4 vectors of b (AVX2: 2): 24 accumulators, and 10
 * loads for 24 products.
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

struct words {
    float *t; /* [][64] */
    const float *start;
    size_t lds; /* 64, or 0: the same for all rows */
    const char *a;
    size_t lda; /* in bytes */
    const float *b;
    bool tiled; /* b: [cols of tiles][n][cols of a tile], not [n][64] */
    size_t n;
    size_t cols; /* of t that are wanted; the others may stay as they are */
};

static const float zeros[COLS];

/* X rows by V * VF columns from j on. */
INLINE void
words_tile(struct words p, size_t j, dot_fn *const dot, const size_t X,
           const size_t V)
{
    const size_t ldb = p.tiled ? V * VF : COLS;
    const float *b = p.b + (p.tiled ? j * p.n : j);
    vf acc[TILE_X][TILE_V];

    UNROLL
    for (size_t i = 0; i < X; i++) {
        UNROLL
        for (size_t v = 0; v < V; v++)
            acc[i][v] = vf_load(p.start + i * p.lds + j + v * VF);
    }
    for (size_t w = 0; w < p.n; w++) {
        vf bv[TILE_V];

        UNROLL
        for (size_t v = 0; v < V; v++)
            bv[v] = vf_load(b + w * ldb + v * VF);
        UNROLL
        for (size_t i = 0; i < X; i++) {
            vf av = set1_word(p.a + i * p.lda + w * 4);

            UNROLL
            for (size_t v = 0; v < V; v++)
                acc[i][v] = dot(acc[i][v], av, bv[v]);
        }
    }
    UNROLL
    for (size_t i = 0; i < X; i++) {
        UNROLL
        for (size_t v = 0; v < V; v++)
            vf_store(p.t + i * COLS + j + v * VF, acc[i][v]);
    }
}

/* Vectors of a tile: fewer where all columns that are wanted fit in them. */
INLINE size_t
tile_vectors(size_t cols)
{
    if (TILE_V * VF < COLS || cols > 2 * VF)
        return TILE_V;
    return cols <= VF ? 1 : 2;
}

INLINE void
words_strip(struct words p, dot_fn *const dot, const size_t X)
{
    switch (tile_vectors(p.cols)) {
    case 1:
        words_tile(p, 0, dot, X, 1);
        break;
    case TILE_V:
        for (size_t j = 0; j < p.cols; j += TILE_V * VF)
            words_tile(p, j, dot, X, TILE_V);
        break;
    default:
        words_tile(p, 0, dot, X, 2);
    }
}

/* Of b, the columns that words_strip() reads. */
INLINE size_t
words_read(size_t cols)
{
    size_t tile = tile_vectors(cols) * VF;

    return (cols + tile - 1) / tile * tile;
}

/*
 * WORDS_KERNELS(name, dot) defines name[x]: x rows (1 .. TILE_X) by all
 * columns.  Functions of their own: inlined, they would share registers with
 * their callers' constants, and clang would make one with a variable x.
 */
typedef void words_fn(const struct words *p);

#define WORDS_KERNEL(name, dot, x)             \
    static void name##x(const struct words *p) \
    {                                          \
        words_strip(*p, dot, x);               \
    }

#define WORDS_KERNELS(name, dot)                                          \
    WORDS_KERNEL(name, dot, 1)                                            \
    WORDS_KERNEL(name, dot, 2)                                            \
    WORDS_KERNEL(name, dot, 3)                                            \
    WORDS_KERNEL(name, dot, 4)                                            \
    WORDS_KERNEL(name, dot, 5)                                            \
    WORDS_KERNEL(name, dot, 6)                                            \
    static words_fn *const name[] = { NULL,    name##1, name##2, name##3, \
                                      name##4, name##5, name##6 };
