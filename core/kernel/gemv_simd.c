/*
 * gemv by vectors: compiled for each instruction set that simd.h knows.
 *
 * Column c adds to lane c % VF of its output's one accumulator; after
 * EXACT_PART columns the lanes are added by vf_sum(), to y.  A tile of R rows
 * and X columns of x has R * X such accumulators, up to 24 of 32 registers
 * (AVX2: 12 of 16); its shape decides which sums run side by side, never their
 * order. With one x, reading W is all: 0.97 of what memory gives, 65536 x 1024
 * in bf16.
 */
#include "core/kernel/simd.h"

#define PREFETCH 2048 /* bytes ahead in each stream: see test/bench/probe.c */

#if VF == 16
enum { ROWS = 4, MAX_X = 6 }; /* 24 of 32 registers accumulate */
#else
enum { ROWS = 4, MAX_X = 3 }; /* 12 of 16 */
#endif

/* n columns, of R rows 'w_step' bytes apart by X rows of x: their sums, 'step'
 * apart in y, or added there. */
INLINE void
tile_part(const struct gemv_args *a, enum dtype t, const char *w, size_t w_step,
          const float *x, size_t n, float *y, size_t step, bool add,
          const size_t R, const size_t X)
{
    const size_t tail = n % VF;
    vf acc[ROWS][MAX_X], xv[MAX_X];
    size_t c = 0;

#pragma GCC unroll 8
    for (size_t r = 0; r < R; r++)
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            acc[r][i] = vf_set1(0);
    for (; c + VF <= n; c += VF) {
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            xv[i] = vf_load(x + i * a->ldx + c);
#pragma GCC unroll 8
        for (size_t r = 0; r < R; r++) {
            const char *p = w + r * w_step + c * weight_nbytes(t);
            vf wv = vf_weights(t, p);

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
            vf wv =
                vf_weights_n(t, w + r * w_step + c * weight_nbytes(t), tail);

#pragma GCC unroll 8
            for (size_t i = 0; i < X; i++)
                acc[r][i] = vf_fma(wv, xv[i], acc[r][i]);
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < R; r++)
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++) {
            float *to = y + i * a->ldy + r * step;

            *to = add ? *to + vf_sum(acc[r][i]) : vf_sum(acc[r][i]);
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
 * side are not neighbours but the heads of ROWS runs of rows: the CPU's own
 * prefetcher follows a few long streams (0.94 of the read bandwidth) better
 * than many that jump from block to block (0.83).
 */
INLINE void
strip(const struct gemv_args *a, enum dtype t, size_t i0, const size_t X)
{
    const size_t n = a->rows / ROWS;

    for (size_t row = 0; row < n; row++)
        tile(a, t, row, n, i0, ROWS, X);
    for (size_t row = n * ROWS; row < a->rows; row++)
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
