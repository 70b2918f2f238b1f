/*
 * gemv by vectors: compiled for each instruction set that simd.h knows.
 *
 * Column c adds to lane c % 8 of its output's one accumulator; after EXACT_PART
 * columns v8_sum4() adds the lanes, to y.  A tile of R rows and X columns of x
 * has R * X such accumulators, V8 to a register, in 24 registers of 32 (AVX2:
 * 12 of 16); its shape decides which sums run side by side, never their order.
 * With one x, reading W is all: 0.97 of what memory gives, 65536 x 1024 in
 * bf16.
 */
#include "core/kernel/lanes8.h"

#define PREFETCH 2048 /* bytes ahead in each stream: see test/bench/probe.c */

enum { ROWS = 4 * V8 };

#if VF == 8
enum { MAX_X = 3 }; /* 12 of 16 registers accumulate */
#else
enum { MAX_X = 6 }; /* 24 of 32 */
#endif

/* 8 columns, or the last n of them, of R rows 'w_step' bytes apart by X rows of
 * x. */
INLINE void
step(v8 (*acc)[4], enum dtype t, const char *w, size_t w_step, const float *x,
     size_t ldx, const size_t R, const size_t X, size_t n)
{
    v8 xv[MAX_X];

#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
        xv[i] = n == 8 ? v8_x(x + i * ldx) : v8_x_n(x + i * ldx, n);
#pragma GCC unroll 4
    for (size_t r = 0; r < R; r += V8, w += V8 * w_step) {
        const char *next = R > 1 ? w + (V8 - 1) * w_step : w;
        v8 wv = n == 8 ? v8_weights(t, w, next) : v8_weights_n(t, w, next, n);

        __builtin_prefetch(w + PREFETCH, 0, 2);
        if (V8 > 1)
            __builtin_prefetch(next + PREFETCH, 0, 2);
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            acc[i][r / V8] = v8_fma(wv, xv[i], acc[i][r / V8]);
    }
}

/* n columns: their sums, 'step' apart in y, or added there. */
INLINE void
tile_part(const struct gemv_args *a, enum dtype t, const char *w, size_t w_step,
          const float *x, size_t n, float *y, size_t y_step, bool add,
          const size_t R, const size_t X)
{
    v8 acc[MAX_X][4];
    size_t c = 0;

#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++)
            acc[i][r] = v8_zero();
    for (; c + 8 <= n; c += 8)
        step(acc, t, w + c * weight_nbytes(t), w_step, x + c, a->ldx, R, X, 8);
    if (c < n)
        step(acc, t, w + c * weight_nbytes(t), w_step, x + c, a->ldx, R, X,
             n - c);
#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++) {
        float *to = y + i * a->ldy, sum[ROWS];

        v8_sum4(sum, acc[i]);
        for (size_t r = 0; r < R; r++)
            to[r * y_step] = add ? to[r * y_step] + sum[r] : sum[r];
    }
}

/* y of R rows, 'step' apart, for X of the x. */
INLINE void
tile(const struct gemv_args *a, enum dtype t, size_t row, size_t step,
     size_t i0, const size_t R, const size_t X)
{
    const size_t row_nbytes = a->cols * weight_nbytes(t);
    const char *w = (const char *)a->w + row * row_nbytes;
    const float *x = a->x + i0 * a->ldx;
    size_t c = 0;

    do {
        size_t n = smaller(a->cols - c, EXACT_PART);

        tile_part(a, t, w + c * weight_nbytes(t), step * row_nbytes, x + c, n,
                  a->y + i0 * a->ldy + row, step, c > 0, R, X);
        c += EXACT_PART;
    } while (c < a->cols);
}

/*
 * All rows for X of the x, which stay in the cache.  The rows that run side by
 * side are not neighbours but the heads of R runs of rows: the CPU's own
 * prefetcher follows a few long streams (0.94 of the read bandwidth) better
 * than many that jump from block to block (0.83).
 */
INLINE void
strip(const struct gemv_args *a, enum dtype t, size_t i0, const size_t X)
{
    const size_t R =
        X < 3 ? 4 : ROWS; /* 8 streams read 0.87 of memory's rate */
    const size_t n = a->rows / R;

    for (size_t row = 0; row < n; row++)
        tile(a, t, row, n, i0, R, X);
    for (size_t row = n * R; row < a->rows; row++)
        tile(a, t, row, 1, i0, 1, X);
}

INLINE void
products(const struct gemv_args *a, enum dtype t)
{
    size_t i = 0;

    for (; i + MAX_X <= a->n_x; i += MAX_X)
        strip(a, t, i, MAX_X);
#define LAST(n)                                \
    case n:                                    \
        strip(a, t, i, (n) < MAX_X ? (n) : 1); \
        break;
    switch (a->n_x - i) { /* one more pass over the weights, not two */
        LAST(5)
        LAST(4)
        LAST(3)
        LAST(2)
        LAST(1)
    default:
        break;
    }
}

static void
gemv(const struct gemv_args *a)
{
    BY_DTYPE(products, a);
}

const struct gemv_ops TABLE(gemv) = { .gemv = gemv };
