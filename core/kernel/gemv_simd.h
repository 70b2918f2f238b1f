/*
 * Template of gemv_ISA.c: GEMV_OPS fills its table.
 *
 * Column c adds to lane c % VF of its output's one accumulator; the lanes are
 * added at the end by vf_sum().  A tile of R rows and X columns of x has R * X
 * such accumulators, enough to hide the latency of FMA; its shape decides
 * which sums run side by side, never their order.
 */
#include "core/kernel/ops.h"
#include "core/kernel/simd.h"

/* In bytes; see test/bench/gemv. */
#define PREFETCH 4096

enum weight { W_BF16, W_F16, W_F32 };

/* Tiles: decode is bound by memory, its rows are streams. */
#define DECODE_ROWS 8
#if VF == 16
enum { TILE_ROWS = 4, TILE_X = 6 }; /* 24 of 32 registers accumulate */
#else
enum { TILE_ROWS = 4, TILE_X = 3 }; /* 12 of 16 */
#endif

INLINE size_t
nbytes(enum weight t)
{
    return t == W_F32 ? 4 : 2;
}

INLINE vf
load_w(enum weight t, const char *w)
{
    if (t == W_BF16)
        return vf_bf16(w);
    if (t == W_F16)
        return vf_f16(w);
    return vf_load((const float *)(const void *)w);
}

INLINE vf
load_w_n(enum weight t, const char *w, size_t n)
{
    if (t == W_BF16)
        return vf_bf16_n(w, n);
    if (t == W_F16)
        return vf_f16_n(w, n);
    return vf_load_n((const float *)(const void *)w, n);
}

INLINE void
tile(const struct gemv_args *a, enum weight t, size_t row, size_t i0,
     const size_t R, const size_t X)
{
    const size_t stride = a->cols * nbytes(t), tail = a->cols % VF;
    const char *w = (const char *)a->w + row * stride;
    const float *x = a->x + i0 * a->ldx;
    float *y = a->y + i0 * a->ldy + row;
    vf acc[DECODE_ROWS][TILE_X], xv[TILE_X];
    size_t c = 0;

#pragma GCC unroll 8
    for (size_t r = 0; r < R; r++)
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            acc[r][i] = vf_set1(0);
    for (; c + VF <= a->cols; c += VF) {
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            xv[i] = vf_load(x + i * a->ldx + c);
#pragma GCC unroll 8
        for (size_t r = 0; r < R; r++) {
            const char *p = w + r * stride + c * nbytes(t);
            vf wv = load_w(t, p);

            if (X == 1)
                __builtin_prefetch(p + PREFETCH, 0, 2);
#pragma GCC unroll 8
            for (size_t i = 0; i < X; i++)
                acc[r][i] = vf_fma(wv, xv[i], acc[r][i]);
        }
    }
    if (tail) {
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            xv[i] = vf_load_n(x + i * a->ldx + c, tail);
#pragma GCC unroll 8
        for (size_t r = 0; r < R; r++) {
            vf wv = load_w_n(t, w + r * stride + c * nbytes(t), tail);

#pragma GCC unroll 8
            for (size_t i = 0; i < X; i++)
                acc[r][i] = vf_fma(wv, xv[i], acc[r][i]);
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < R; r++)
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            y[i * a->ldy + r] = vf_sum(acc[r][i]);
}

/* All rows for X of the x: the x stay in the cache, the rows pass by. */
INLINE void
strip(const struct gemv_args *a, enum weight t, size_t i0, const size_t R,
      const size_t X)
{
    size_t row = 0;

    for (; row + R <= a->rows; row += R)
        tile(a, t, row, i0, R, X);
    for (; row < a->rows; row++)
        tile(a, t, row, i0, 1, X);
}

INLINE void
kernel(const struct gemv_args *a, enum weight t)
{
    size_t i = 0;

    for (; i + TILE_X <= a->n_x; i += TILE_X)
        strip(a, t, i, TILE_ROWS, TILE_X);
    if (TILE_X > 4 && i + 3 <= a->n_x) {
        strip(a, t, i, TILE_ROWS, 3);
        i += 3;
    }
    if (i + 2 <= a->n_x) {
        strip(a, t, i, TILE_ROWS, 2);
        i += 2;
    }
    if (i < a->n_x)
        strip(a, t, i, DECODE_ROWS, 1);
}

static void
bf16(const struct gemv_args *a)
{
    kernel(a, W_BF16);
}

static void
f16(const struct gemv_args *a)
{
    kernel(a, W_F16);
}

static void
f32(const struct gemv_args *a)
{
    kernel(a, W_F32);
}

#define GEMV_OPS                             \
    {                                        \
        .bf16 = bf16, .f16 = f16, .f32 = f32 \
    }
