/*
 * Template of gemm_ISA.c: GEMM_EXACT_OPS are its entries of the table.
 *
 * The exact class sums as gemv_simd.h does: column c adds to lane c % VF of
 * its output's accumulator, vf_sum()'s order ends it with the part of k, and
 * the parts' sums are added in order.
 */
#include "core/kernel/ops.h"
#include "core/kernel/simd.h"

enum { ROWS = 4 }; /* of w in a tile */

#if defined(__AVX2__) && VF == 8
enum { MAX_X = 3 }; /* 12 of 16 registers accumulate */
#else
enum { MAX_X = 6 }; /* 24 of 32 */
#endif

/* VF columns of a tile, or the last n of them; w's rows are 16 floats apart. */
INLINE void
exact_step(vf (*acc)[MAX_X], const float *w, const float *x, size_t ldx,
           const size_t X, size_t n)
{
    vf xv[MAX_X];

#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
        xv[i] = n == VF ? vf_load(x + i * ldx) : vf_load_n(x + i * ldx, n);
#pragma GCC unroll 8
    for (size_t r = 0; r < ROWS; r++) {
        vf wv = vf_load(w + 16 * r);

#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            acc[r][i] = vf_fma(wv, xv[i], acc[r][i]);
    }
}

/* ROWS rows of w from 'row' on by X of x from i0 on. */
INLINE void
exact_tile(const struct gemm_block *b, size_t row, size_t i0, const size_t X)
{
    const float *w = b->w + row * ((b->k + 15) / 16 * 16);
    const float *x = b->x + i0 * b->ldx, *end = x + b->k / 16 * 16;
    vf acc[ROWS][MAX_X];

#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
#pragma GCC unroll 8
        for (size_t r = 0; r < ROWS; r++)
            acc[r][i] = vf_set1(0);
    for (; x < end; x += 16, w += 64)
#pragma GCC unroll 4
        for (size_t j = 0; j < 16; j += VF)
            exact_step(acc, w + j, x + j, b->ldx, X, VF);
    for (size_t j = 0; j < b->k % 16; j += VF)
        exact_step(acc, w + j, x + j, b->ldx, X,
                   b->k % 16 - j < VF ? b->k % 16 - j : VF);
#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++) {
        float *t = b->t + (i0 + i) * b->ldt + row, sum[ROWS];

        vf_sum4(b->add ? sum : t, acc[0][i], acc[1][i], acc[2][i], acc[3][i]);
        for (size_t r = 0; r < ROWS && b->add; r++)
            t[r] += sum[r];
    }
}

/* X of the x, which stay in the first cache while all of w passes. */
INLINE void
exact_strip(const struct gemm_block *b, size_t i0, const size_t X)
{
    for (size_t row = 0; row < b->rows; row += ROWS)
        exact_tile(b, row, i0, X);
}

static void
exact(const struct gemm_block *b)
{
    size_t i = 0;

    for (; i + MAX_X <= b->m; i += MAX_X)
        exact_strip(b, i, MAX_X);
    switch (b->m - i) {
    case 5:
        exact_strip(b, i, MAX_X == 6 ? 5 : 1);
        break;
    case 4:
        exact_strip(b, i, MAX_X == 6 ? 4 : 1);
        break;
    case 3:
        exact_strip(b, i, MAX_X == 6 ? 3 : 1);
        break;
    case 2:
        exact_strip(b, i, 2);
        break;
    case 1:
        exact_strip(b, i, 1);
        break;
    default:
        break;
    }
}

#define WIDEN(name, load, size)                                               \
    static void name(float *to, const char *from, size_t n)                   \
    {                                                                         \
        for (size_t i = 0; i < n; i++)                                        \
            for (size_t j = 0; j < 16; j += VF)                               \
                vf_store(to + 64 * i + j,                                     \
                         load((const void *)(from + (16 * i + j) * (size)))); \
    }

WIDEN(widen_bf16s, vf_bf16, 2)
WIDEN(widen_f16s, vf_f16, 2)
WIDEN(widen_f32s, vf_load, 4)

static void
widen(float *to, const void *from, enum dtype dtype, size_t n)
{
    if (dtype == DT_BF16)
        widen_bf16s(to, from, n);
    else if (dtype == DT_F16)
        widen_f16s(to, from, n);
    else
        widen_f32s(to, from, n);
}

#define GEMM_EXACT_OPS .exact = exact, .widen = widen
