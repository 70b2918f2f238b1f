/* SPDX-License-Identifier: ISC */
/*
 * gemv by vectors: compiled for each instruction set that simd.h knows.
 *
 * Column c adds to lane c % 8 of its output's one accumulator; after EXACT_PART
 * columns v8_sum4() adds the lanes, to y.  A tile of R rows and X columns of x
 * has R * X such accumulators, V8 to a register; its shape decides which sums
 * run side by side, never their order.  With one x, reading W is all: 0.97 of
 * what memory gives, 65536 x 1024 in bf16.
 */
#include "core/kernel/lanes8.h"

enum { LINE = 32 /* columns */ };

/* Rows of x in a strip: the last one has at most MAX_X, those before it have
 * STRIP_X.  With AVX2, 3 rows of W by 4 of x are an eighth faster than 2 by 6.
 */
enum { MAX_X = V8 == 2 ? 6 : 5, STRIP_X = V8 == 2 ? 6 : 4 };

/* Rows in a tile: at most 12 registers accumulate, of 16 that AVX2 has.  More
 * than 4 streams are read at 0.87 of memory's rate. */
#define ROWS(X) (V8 == 2 || (X) <= 3 ? 4 : (X) == 4 ? 3 : 2)

/* Registers that accumulate: R rows of W by one of x, and at most. */
#define REGS(R) (((R) + V8 - 1) / V8)
enum { MAX_ACC = 12 };

/* Compilers load x again for each row of W, 12 loads for the 10 FMAs of 2 rows
 * by 5 of x, which AVX2's CPUs begin two and two.  Some rows of x are loaded
 * once: of all of them the instructions would be too many. */
#if VF == 8
#define LOAD_ONCE(i, X, v)         \
    do {                           \
        if ((X) == 5 && (i) < 3)   \
            __asm__("" : "+x"(v)); \
    } while (0)
#else
#define LOAD_ONCE(i, X, v) (void)(v)
#endif

/*
 * Columns 8 j to 8 j + 7 of the n at w, or all n < 8, of R rows 'w_step' bytes
 * apart by X rows of x.  The shorter of both lists stays in registers.
 */
INLINE void
step(v8 *acc, enum dtype t, const char *w, size_t w_step, const float *x,
     size_t ldx, const size_t R, const size_t X, const int j, size_t n)
{
    const size_t second = R > 1 ? (V8 - 1) * w_step : 0, regs = REGS(R);
    v8 wv[4], xv[MAX_X];

#define W(p)                                          \
    (n == LINE ? v8_weights_at(t, p, (p) + second, j) \
     : n == 8  ? v8_weights(t, p, (p) + second)       \
               : v8_weights_n(t, p, (p) + second, n))
#define X_ROW(p) (n < 8 ? v8_x_n(p, n) : v8_x((p) + 8 * j))
    if (R <= X * V8) {
#pragma GCC unroll 4
        for (size_t r = 0; r < regs; r++)
            wv[r] = W(w + r * V8 * w_step);
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++) {
            xv[0] = X_ROW(x + i * ldx);
            LOAD_ONCE(i, X, xv[0]);
#pragma GCC unroll 4
            for (size_t r = 0; r < regs; r++)
                acc[i * regs + r] = v8_fma(wv[r], xv[0], acc[i * regs + r]);
        }
    } else {
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            xv[i] = X_ROW(x + i * ldx);
#pragma GCC unroll 4
        for (size_t r = 0; r < regs; r++) {
            wv[0] = W(w + r * V8 * w_step);
#pragma GCC unroll 8
            for (size_t i = 0; i < X; i++)
                acc[i * regs + r] = v8_fma(wv[0], xv[i], acc[i * regs + r]);
        }
    }
#undef W
#undef X_ROW
}

/* n columns: their sums, 'step' apart in y, or added there. */
INLINE void
tile_part(const struct gemv_args *a, enum dtype t, const char *w, size_t w_step,
          const float *x, size_t n, float *y, size_t y_step, bool add,
          const size_t R, const size_t X)
{
    const size_t nbytes = weight_nbytes(t);
    v8 acc[MAX_ACC];
    float sum[MAX_ACC * V8];
    size_t c = 0;

#pragma GCC unroll 16
    for (size_t i = 0; i < MAX_ACC; i++)
        acc[i] = v8_zero();
    for (; c + LINE <= n; c += LINE) {
#pragma GCC unroll 4
        for (size_t r = 0; r < R; r++)
            for (size_t i = 0; i < LINE * nbytes; i += 64)
                __builtin_prefetch(w + r * w_step + c * nbytes + i + a->ahead);
#pragma GCC unroll 4
        for (int j = 0; j < LINE / 8; j++)
            step(acc, t, w + c * nbytes, w_step, x + c, a->ldx, R, X, j, LINE);
    }
    for (; c + 8 <= n; c += 8)
        step(acc, t, w + c * nbytes, w_step, x + c, a->ldx, R, X, 0, 8);
    if (c < n)
        step(acc, t, w + c * nbytes, w_step, x + c, a->ldx, R, X, 0, n - c);
#pragma GCC unroll 3
    for (size_t i = 0; i < REGS(R) * X; i += 4)
        v8_sum4(sum + i * V8, acc + i);
    for (size_t i = 0; i < X; i++)
        for (size_t r = 0; r < R; r++) {
            float *to = y + i * a->ldy + r * y_step;
            float v = sum[i * REGS(R) * V8 + r];

            *to = add ? *to + v : v;
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
                  a->y + i0 * a->ldy + row, step, a->add || c > 0, R, X);
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
    const size_t R = ROWS(X), n = a->rows / R;

    for (size_t row = 0; row < n; row++)
        tile(a, t, row, n, i0, R, X);
    for (size_t row = n * R; row < a->rows; row++)
        tile(a, t, row, 1, i0, 1, X);
}

/* A function of each type and number: gcc takes twice as long for one of all.
 */
#define STRIP(T, X)                                                   \
    static void strip_##T##_##X(const struct gemv_args *a, size_t i0) \
    {                                                                 \
        if (X <= MAX_X)                                               \
            strip(a, DT_##T, i0, X);                                  \
    }
#define STRIPS(T) \
    STRIP(T, 1) STRIP(T, 2) STRIP(T, 3) STRIP(T, 4) STRIP(T, 5) STRIP(T, 6)
STRIPS(BF16)
STRIPS(F16)
STRIPS(F32)
#define NAMES(T)                                                    \
    {                                                               \
        strip_##T##_1, strip_##T##_2, strip_##T##_3, strip_##T##_4, \
            strip_##T##_5, strip_##T##_6                            \
    }

static void
gemv(const struct gemv_args *a)
{
    static void (*const strips[3][6])(const struct gemv_args *a,
                                      size_t i0) = { NAMES(BF16), NAMES(F16),
                                                     NAMES(F32) };
    const int t = a->w_dtype == DT_BF16 ? 0 : a->w_dtype == DT_F16 ? 1 : 2;

    for (size_t i = 0, n; i < a->n_x; i += n) {
        /* one more pass over the weights at the end, not two */
        n = a->n_x - i > MAX_X ? STRIP_X : a->n_x - i;
        strips[t][n - 1](a, i);
    }
}

/* ---- weights by k ---- */

enum { CHAIN = 4 }; /* rows that add to a lane between its load and its store */

/* n <= VF outputs of X rows of x: R rows of w, 'step' bytes apart, add to one
 * of their lanes. */
INLINE void
chain_step(enum dtype t, const char *w, size_t step, vf (*x)[CHAIN],
           float *lane, size_t ld, size_t n, const size_t R, const size_t X)
{
    vf wv[CHAIN];

#pragma GCC unroll 4
    for (size_t r = 0; r < R; r++)
        wv[r] = n == VF ? vf_weights(t, w + r * step)
                        : vf_weights_n(t, w + r * step, n);
#pragma GCC unroll 4
    for (size_t i = 0; i < X; i++) {
        vf sum = vf_load(lane + i * ld);

#pragma GCC unroll 4
        for (size_t r = 0; r < R; r++)
            sum = vf_fma(wv[r], x[i][r], sum);
        vf_store(lane + i * ld, sum);
    }
}

/* The same of all outputs.  What is 'ahead' in these rows is asked for
 * meanwhile, and then the heads of the next ones. */
INLINE void
chain(const struct gemv_by_k *a, enum dtype t, const char *w, const char *next,
      const float *x, float *lane, const size_t R, const size_t X)
{
    const size_t nbytes = weight_nbytes(t), step = 8 * a->ldw;
    const size_t line = 64 / nbytes, all = a->cols * nbytes;
    const size_t ahead = smaller(a->ahead, all);
    vf xv[BY_K_X][CHAIN];
    size_t j = 0;

#pragma GCC unroll 4
    for (size_t i = 0; i < X; i++)
#pragma GCC unroll 4
        for (size_t r = 0; r < R; r++)
            xv[i][r] = vf_set1(x[i * a->ldx + 8 * r]);
    for (; j + line <= a->cols; j += line) {
        size_t at = j * nbytes + ahead;
        const char *p = at < all ? w + at : next + (at - all);

#pragma GCC unroll 4
        for (size_t r = 0; r < R; r++)
            __builtin_prefetch(p + r * step);
#pragma GCC unroll 8
        for (size_t v = j; v < j + line; v += VF)
            chain_step(t, w + v * nbytes, step, xv, lane + v, a->ld, VF, R, X);
    }
    for (; j + VF <= a->cols; j += VF)
        chain_step(t, w + j * nbytes, step, xv, lane + j, a->ld, VF, R, X);
    if (j < a->cols)
        chain_step(t, w + j * nbytes, step, xv, lane + j, a->ld, a->cols - j, R,
                   X);
}

INLINE void
x_by_k(const struct gemv_by_k *a, enum dtype t, const size_t X)
{
    for (size_t c = 0; c < a->n_k; c += 8 * CHAIN)
        for (size_t l = 0; l < a->n_lanes && c + l < a->n_k; l++) {
            size_t at = c + l, left = (a->n_k - at + 7) / 8;
            size_t next = l + 1 < a->n_lanes ? at + 1 : c + 8 * CHAIN;
            float *lane = a->lanes + l * X * a->ld;

            if (left >= CHAIN)
                chain(a, t, a->w + at * a->ldw, a->w + next * a->ldw, a->x + at,
                      lane, CHAIN, X);
            else
                for (size_t r = at; r < a->n_k; r += 8)
                    chain(a, t, a->w + r * a->ldw, a->w + r * a->ldw, a->x + r,
                          lane, 1, X);
        }
}

INLINE void
products_by_k(const struct gemv_by_k *a, enum dtype t)
{
    if (a->n_x == 4)
        x_by_k(a, t, 4);
    else if (a->n_x == 3)
        x_by_k(a, t, 3);
    else if (a->n_x == 2)
        x_by_k(a, t, 2);
    else
        x_by_k(a, t, 1);
}

static void
by_k(const struct gemv_by_k *a)
{
    BY_DTYPE(products_by_k, a);
}

/* ---- rows from anywhere ---- */

enum { SOME = 4 * V8 }; /* rows at once: 4 accumulators, which one tree adds */

/* n columns of SOME rows by x; the same columns of the next ones are asked for
 * meanwhile, as no prefetcher of the CPU knows where they are. */
INLINE void
some_part(enum dtype t, const char *const *w, const char *const *next,
          const float *x, size_t n, float *sum)
{
    const size_t nbytes = weight_nbytes(t);
    v8 acc[4], xv;
    size_t c = 0;

#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++)
        acc[r] = v8_zero();
    for (; c + LINE <= n; c += LINE) {
#pragma GCC unroll 8
        for (size_t r = 0; r < SOME; r++)
            for (size_t i = 0; i < LINE * nbytes; i += 64)
                __builtin_prefetch(next[r] + c * nbytes + i);
#pragma GCC unroll 4
        for (int j = 0; j < LINE / 8; j++) {
            xv = v8_x(x + c + 8 * j);
#pragma GCC unroll 4
            for (size_t r = 0; r < 4; r++)
                acc[r] =
                    v8_fma(v8_weights_at(t, w[r * V8] + c * nbytes,
                                         w[r * V8 + V8 - 1] + c * nbytes, j),
                           xv, acc[r]);
        }
    }
    for (; c < n; c += 8) {
        size_t left = smaller(n - c, 8);

        xv = left == 8 ? v8_x(x + c) : v8_x_n(x + c, left);
        for (size_t r = 0; r < 4; r++) {
            const char *p = w[r * V8] + c * nbytes;
            const char *q = w[r * V8 + V8 - 1] + c * nbytes;

            acc[r] = v8_fma(left == 8 ? v8_weights(t, p, q)
                                      : v8_weights_n(t, p, q, left),
                            xv, acc[r]);
        }
    }
    v8_sum4(sum, acc);
}

/* The last row stands in where there are fewer. */
INLINE void
some(const struct gemv_rows *a, enum dtype t, size_t i)
{
    const size_t nbytes = weight_nbytes(t);
    const char *w[SOME], *next[SOME];
    size_t n = smaller(a->n - i, SOME), c = 0;
    float sum[SOME];

    for (size_t r = 0; r < SOME; r++) {
        size_t at = smaller(i + r, a->n - 1);

        w[r] = (const char *)a->w + a->idx[at] * a->cols * nbytes;
        at = smaller(i + r + SOME, a->n - 1);
        next[r] = (const char *)a->w + a->idx[at] * a->cols * nbytes;
    }
    do {
        some_part(t, w, next, a->x + c, smaller(a->cols - c, EXACT_PART), sum);
        for (size_t r = 0; r < n; r++)
            a->y[i + r] = c > 0 ? a->y[i + r] + sum[r] : sum[r];
        for (size_t r = 0; r < SOME; r++) {
            w[r] += EXACT_PART * nbytes;
            next[r] += EXACT_PART * nbytes;
        }
        c += EXACT_PART;
    } while (c < a->cols);
}

INLINE void
all_rows(const struct gemv_rows *a, enum dtype t)
{
    for (size_t i = 0; i < a->n; i += SOME)
        some(a, t, i);
}

static void
rows(const struct gemv_rows *a)
{
    BY_DTYPE(all_rows, a);
}

const struct gemv_ops TABLE(gemv) = { .gemv = gemv,
                                      .by_k = by_k,
                                      .rows = rows };
