/* SPDX-License-Identifier: ISC */
/*
 * A shadow's products by vectors: int8 widened to int16, pairs of products
 * added to int32.  No sum leaves int32, so that any order is the same.
 *
 * With one x, reading w is all; with more, a tile of 2 rows by 4 of x takes 18
 * instructions for its 8 vectors of products, of which AVX2 makes 1.5 times as
 * many a cycle as f32 ones.
 */
#include <float.h>

#include "core/kernel/simd.h"
#if defined(__AVX2__) && !defined(__AVX512F__)
#define PACKS
#include "core/kernel/gemm_words_simd.h"
#endif

enum { MANY = VF == 16 ? 4 : 2 }; /* rows by 4 of x, in 32 or 16 registers */

/* STEP columns of int16 in a register, and int32 sums. */
#if defined(__AVX512F__)
enum { STEP = 32 };
typedef __m512i vi;
typedef __m512i sums;

INLINE vi
load_int8(const int8_t *p)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p));
}

INLINE vi
load_int16(const int16_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE sums
dot(sums s, vi a, vi b)
{
#ifdef __AVX512VNNI__
    return _mm512_dpwssd_epi32(s, a, b);
#else
    return _mm512_add_epi32(s, _mm512_madd_epi16(a, b));
#endif
}

INLINE int32_t
sum_of(sums s)
{
    return _mm512_reduce_add_epi32(s);
}

#elif defined(__AVX2__)
enum { STEP = 16 };
typedef __m256i vi;
typedef __m256i sums;

INLINE vi
load_int8(const int8_t *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
}

INLINE vi
load_int16(const int16_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}

INLINE sums
dot(sums s, vi a, vi b)
{
    return _mm256_add_epi32(s, _mm256_madd_epi16(a, b));
}

INLINE int32_t
sum_of(sums s)
{
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(s),
                              _mm256_extracti128_si256(s, 1));

    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}

#else
enum { STEP = 8 };
typedef int16x8_t vi;
typedef int32x4_t sums;

INLINE vi
load_int8(const int8_t *p)
{
    return vmovl_s8(vld1_s8(p));
}

INLINE vi
load_int16(const int16_t *p)
{
    return vld1q_s16(p);
}

INLINE sums
dot(sums s, vi a, vi b)
{
    return vmlal_high_s16(vmlal_s16(s, vget_low_s16(a), vget_low_s16(b)), a, b);
}

INLINE int32_t
sum_of(sums s)
{
    return vaddvq_s32(s);
}
#endif

/* The last columns of a row: what follows them is not touched. */
INLINE vi
load_last(const int8_t *p, size_t n)
{
    int8_t last[STEP] = { 0 };

    memcpy(last, p, n);
    return load_int8(last);
}

/* R rows, 'step' apart, by X of the x, from i on. */
INLINE void
tile(const struct shadow_args *a, size_t row, size_t step, size_t i,
     const size_t R, const size_t X)
{
    const int8_t *w = a->w + row * a->cols;
    const int16_t *x = a->x + i * a->ldx;
    sums acc[4][4];
    vi wv[4], xv;
    size_t c = 0;

    UNROLL
    for (size_t r = 0; r < R; r++)
        UNROLL
    for (size_t k = 0; k < X; k++)
        acc[r][k] = (sums){ 0 };
    for (; c < a->cols; c += STEP) {
        size_t n = a->cols - c;

        UNROLL
        for (size_t r = 0; r < R; r++) {
            const int8_t *p = w + r * step * a->cols + c;

            if (X == 1)
                __builtin_prefetch(p + a->ahead);
            wv[r] = n >= STEP ? load_int8(p) : load_last(p, n);
        }
        UNROLL
        for (size_t k = 0; k < X; k++) {
            xv = load_int16(x + k * a->ldx + c);
            UNROLL
            for (size_t r = 0; r < R; r++)
                acc[r][k] = dot(acc[r][k], wv[r], xv);
        }
    }
    UNROLL
    for (size_t k = 0; k < X; k++)
        UNROLL
    for (size_t r = 0; r < R; r++)
        a->t[(i + k) * a->ldt + row + r * step] = (float)sum_of(acc[r][k]);
}

/* As gemv does, rows that run side by side are the heads of R runs. */
INLINE void
strip(const struct shadow_args *a, size_t i, const size_t R, const size_t X)
{
    const size_t n = a->rows / R;

    for (size_t row = 0; row < n; row++)
        tile(a, row, n, i, R, X);
    for (size_t row = n * R; row < a->rows; row++)
        tile(a, row, 1, i, 1, X);
}

#ifdef PACKS

/*
 * With many x, 64 rows of W are widened to int16 once for all of them, 128 KiB
 * that stay in the second cache: of a word two columns of a row, so that lanes
 * are rows and no sum crosses them.  64 x are 1.2 times as fast by it, 32 as
 * fast as without (Zen 3).
 */
enum { PANEL_WORDS = 512, PANEL_X = 64, FEW_X = 48 };

INLINE vf
dot_words(vf acc, vf a, vf b)
{
    return (vf)dot((sums)acc, (vi)a, (vi)b);
}

WORDS_KERNELS(rows_int16, dot_words)

/* 8 rows by 8 pairs of bytes, transposed. */
INLINE void
transpose(__m128i *v)
{
    __m128i t[8];

    UNROLL
    for (int round = 0; round < 3; round++) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            t[2 * i] = _mm_unpacklo_epi16(v[i], v[i + 4]);
            t[2 * i + 1] = _mm_unpackhi_epi16(v[i], v[i + 4]);
        }
        UNROLL
        for (int i = 0; i < 8; i++)
            v[i] = t[i];
    }
}

enum { TILE_W = TILE_V * VF };

/* A step's columns of a tile's rows, c bytes from their pointers. */
INLINE void
pack_step(float *to, const int8_t *const *row, size_t c)
{
    __m128i v[VF];

    for (size_t r = 0; r < TILE_W; r += VF) {
        UNROLL
        for (size_t i = 0; i < VF; i++)
            v[i] = _mm_loadu_si128((const void *)(row[r + i] + c));
        transpose(v);
        UNROLL
        for (size_t i = 0; i < VF; i++)
            vf_store(to + i * TILE_W + r, (vf)_mm256_cvtepi8_epi16(v[i]));
    }
}

/* Up to 64 rows from w on, n columns of them, as words_strip() reads them: two
 * columns of a row are a word. */
static void
pack(float *to, const int8_t *w, size_t cols, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r += TILE_W) {
        const int8_t *row[TILE_W];
        int8_t last[TILE_W][STEP] = { { 0 } };
        size_t c = 0;

        for (size_t i = 0; i < TILE_W; i++)
            row[i] = w + smaller(r + i, n_rows - 1) * cols;
        for (; c + STEP <= n; c += STEP, to += TILE_W * STEP / 2)
            pack_step(to, row, c);
        if (c == n)
            continue;
        for (size_t i = 0; i < TILE_W; i++)
            row[i] = memcpy(last[i], row[i] + c, n - c);
        pack_step(to, row, 0);
        to += TILE_W * STEP / 2;
    }
}

/* Rows from 'row' on, at most 64, by n_x of x from i on.  What is packed next
 * is prefetched meanwhile, a part with each tile. */
static void
packed(const struct shadow_args *a, size_t row, size_t i, size_t n_x)
{
    _Alignas(64) float panel[PANEL_WORDS * COLS];
    _Alignas(64) float t[PANEL_X * COLS];
    const size_t n_rows = smaller(a->rows - row, COLS);
    const size_t n_tiles = (n_x + TILE_X - 1) / TILE_X * (COLS / TILE_W);
    const int8_t *w = a->w + row * a->cols;
    size_t n;

    for (size_t c = 0; c < a->cols; c += n) {
        n = smaller(a->cols - c, (size_t)2 * PANEL_WORDS);

        const size_t words = (n + STEP - 1) / STEP * (STEP / 2);
        const int8_t *next = w + (c + n < a->cols ? c + n : n_rows * a->cols);
        size_t fetched = 0, tile = 0;

        pack(panel, w + c, a->cols, n_rows, n);
        for (size_t k = 0; k < n_x; k += TILE_X)
            for (size_t r = 0; r < n_rows; r += TILE_W) {
                float *to = t + k * COLS + r;

                for (tile++; fetched < COLS * tile / n_tiles; fetched++)
                    for (size_t b = 0; b < n; b += 64)
                        __builtin_prefetch(next + fetched * a->cols + b, 0, 2);
                rows_int16[smaller(n_x - k, TILE_X)](&(struct words){
                    .t = to,
                    .start = c ? to : zeros,
                    .lds = c ? COLS : 0,
                    .a = (const char *)(a->x + (i + k) * a->ldx + c),
                    .lda = a->ldx * sizeof(*a->x),
                    .b = panel + r * words,
                    .tiled = true,
                    .n = words,
                    .cols = TILE_W,
                });
            }
    }
    for (size_t k = 0; k < n_x; k++) {
        float *to = a->t + (i + k) * a->ldt + row;

        for (size_t r = 0; r < n_rows; r += VF) {
            vf v = _mm256_cvtepi32_ps((sums)vf_load(t + k * COLS + r));

            if (n_rows - r >= VF)
                vf_store(to + r, v);
            else
                vf_store_n(to + r, v, n_rows - r);
        }
    }
}
#endif

static void
products(const struct shadow_args *a)
{
    size_t i = 0;

#ifdef PACKS
    for (size_t n; a->n_x - i >= FEW_X; i += n) {
        n = smaller(a->n_x - i, PANEL_X);
        for (size_t row = 0; row < a->rows; row += COLS)
            packed(a, row, i, n);
    }
#endif
    for (; i + 4 <= a->n_x; i += 4)
        strip(a, i, MANY, 4);
    if (a->n_x - i == 3)
        strip(a, i, MANY, 3);
    else if (a->n_x - i == 2)
        strip(a, i, 4, 2);
    else if (a->n_x - i == 1)
        strip(a, i, 4, 1);
}

static void
bound(const struct shadow_bound *b)
{
    const vf x_scale = vf_set1(b->x_scale), by_norm = vf_set1(b->a);
    const vf by_lost = vf_set1(b->b), shrink = vf_set1(b->shrink);
    const vf twice = vf_set1(b->twice);

    for (size_t i = 0; i < b->width; i++)
        b->low[i] = -FLT_MAX;
    for (size_t i = 0; i < b->n; i += VF) {
        const size_t n = smaller(b->n - i, VF);
        float *at = b->low + i % b->width;
#define LOAD(p) (n == VF ? vf_load((p) + i) : vf_load_n((p) + i, n))
        vf w = by_norm * LOAD(b->norm) + by_lost * LOAD(b->lost);
        vf u = LOAD(b->u) * x_scale * LOAD(b->scale) + LOAD(b->bias) + w;
        vf low = u * shrink - twice * w;
#undef LOAD

        if (n == VF) {
            vf_store(b->u + i, u);
            vf_store(at, vf_max(low, vf_load(at)));
        } else {
            vf_store_n(b->u + i, u, n);
            vf_store_n(at, vf_max(low, vf_load_n(at, n)), n);
        }
    }
}

const struct shadow_ops TABLE(shadow) = { .products = products,
                                          .bound = bound };
