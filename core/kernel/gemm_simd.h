/*
 * Template of gemm_ISA.c: GEMM_OPS fills its table.
 *
 * The exact class sums as gemv_simd.h does: column c adds to lane c % VF of
 * its output's accumulator, and vf_sum()'s order ends it.  Where k comes in
 * parts the accumulators wait in 'lanes', so that no sum depends on the cut.
 */
#include "core/kernel/ops.h"
#include "core/kernel/simd.h"

enum { ROWS = 4 }; /* of w in a tile */

#if defined(__AVX2__) && VF == 8
enum { MAX_X = 3 }; /* 12 of 16 registers accumulate */
#else
enum { MAX_X = 6 }; /* 24 of 32 */
#endif

/* ROWS rows of w from 'row' on by X of x from i0 on. */
INLINE void
exact_tile(const struct gemm_block *b, size_t row, size_t i0, const size_t X)
{
    const float *w = b->w + row * b->ldw, *x = b->x + i0 * b->ldx;
    float *kept = b->lanes + (i0 * b->rows + row * X) * VF;
    vf acc[MAX_X][ROWS];
    size_t c = 0;

#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
#pragma GCC unroll 8
        for (size_t r = 0; r < ROWS; r++)
            acc[i][r] =
                b->first ? vf_set1(0) : vf_load(kept + (i * ROWS + r) * VF);
    for (; c + VF <= b->k; c += VF) {
        vf wv[ROWS];

#pragma GCC unroll 8
        for (size_t r = 0; r < ROWS; r++)
            wv[r] = vf_load(w + r * b->ldw + c);
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++) {
            vf xv = vf_load(x + i * b->ldx + c);

#pragma GCC unroll 8
            for (size_t r = 0; r < ROWS; r++)
                acc[i][r] = vf_fma(wv[r], xv, acc[i][r]);
        }
    }
    if (c < b->k) {
#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++) {
            vf xv = vf_load_n(x + i * b->ldx + c, b->k - c);

#pragma GCC unroll 8
            for (size_t r = 0; r < ROWS; r++)
                acc[i][r] = vf_fma(vf_load(w + r * b->ldw + c), xv, acc[i][r]);
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++) {
        if (b->last)
            vf_sum4(b->t + (i0 + i) * b->ldt + row, acc[i][0], acc[i][1],
                    acc[i][2], acc[i][3]);
        else
#pragma GCC unroll 8
            for (size_t r = 0; r < ROWS; r++)
                vf_store(kept + (i * ROWS + r) * VF, acc[i][r]);
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

#define GEMM_OPS       \
    {                  \
        .exact = exact \
    }
