/* SPDX-License-Identifier: ISC */
/*
 * Of gemm_simd.c: the exact class by weights by k.
 *
 * A vector is of outputs, which are neighbours in a row of W, and has one lane
 * of each: every eighth row of W and column of X, from the lane's number on.
 * Lane by lane, V vectors pass X rows of x: 24 accumulators (AVX2: 12), and 10
 * loads (AVX2: 7) for as many FMAs.  So W needs no transposition; the first
 * rows of X meet it as it is in memory, and leave it widened in the block: in a
 * pass of its own, rows that are pages apart and lines of the block would be
 * waited for, a tenth of a prompt's time on a Zen 3.
 */
#ifndef CORE_KERNEL_GEMM_BY_K_SIMD_H
#define CORE_KERNEL_GEMM_BY_K_SIMD_H

#include "core/kernel/simd.h"

/* Rows of x in a tile, and vectors: of the last outputs, 16 at a time. */
enum {
    LANE_X = VF == 16 ? 6 : 4,
    LANE_V = VF == 8 ? 3 : 4,
    LAST_V = 16 / VF,
    LANE_GROUP = LANE_V * VF
};

enum { LANE_AHEAD = 8 * 8 /* rows of W */ };

/* The vector of outputs v of a row of W, zeros after the last of n. */
INLINE vf
weights_of(enum dtype t, const char *row, size_t v, size_t n)
{
    row += v * VF * weight_nbytes(t);
    if (n >= (v + 1) * VF)
        return vf_weights(t, row);
    return n > v * VF ? vf_weights_n(t, row, n - v * VF) : vf_set1(0);
}

/* A lane's sums of X rows of x.  WIDEN: w comes from b->from, of type t. */
INLINE void
lane_sums(vf (*acc)[LANE_V], const struct gemm_block *b, size_t lane,
          size_t row, const float *x, size_t ldx, const size_t X,
          const size_t V, const bool WIDEN, enum dtype t)
{
    float *w = b->w + (8 * row + lane * V * VF) * ((b->k + 7) / 8);
    const char *from = (const char *)b->from + row * weight_nbytes(t);

    UNROLL
    for (size_t i = 0; i < X; i++) {
        UNROLL
        for (size_t v = 0; v < V; v++)
            acc[i][v] = vf_set1(0);
    }
#pragma GCC unroll 4
    for (size_t c = lane; c < b->k; c += 8, w += V * VF) {
        vf wv[LANE_V], xv;

        if (WIDEN) {
            const char *p = from + c * b->ld, *ahead = p + LANE_AHEAD * b->ld;

            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + V * VF * weight_nbytes(t) - 1);
            UNROLL
            for (size_t v = 0; v < V; v++)
                vf_store(w + v * VF, weights_of(t, p, v, b->rows - row));
        }
        UNROLL
        for (size_t v = 0; v < V; v++)
            wv[v] = vf_load(w + v * VF);
        UNROLL
        for (size_t i = 0; i < X; i++) {
            xv = vf_set1(x[i * ldx + c]);
            UNROLL
            for (size_t v = 0; v < V; v++)
                acc[i][v] = vf_fma(wv[v], xv, acc[i][v]);
        }
    }
}

/*
 * V * VF outputs from 'row' on of X rows of x from i0 on, the first m of them,
 * or 1: then it is taken X times.  Lanes come in an order in which those that
 * are added follow each other: sum[2] waits for half of them.
 *
 * Lanes that the last columns do not reach add 0 * 0: that makes +0 of a sum of
 * eight -0, and of others nothing.
 */
INLINE void
lanes_tile(const struct gemm_block *b, size_t row, size_t i0, size_t m,
           const size_t X, const size_t V, const bool WIDEN, enum dtype t)
{
    static const unsigned char order[8] = { 0, 4, 2, 6, 1, 5, 3, 7 };
    const size_t ldx = m < X ? 0 : b->ldx;
    vf acc[LANE_X][LANE_V], sum[4][LANE_X][LANE_V];

    for (size_t j = 0, level; j < 8; j++) {
        lane_sums(acc, b, order[j], row, b->x + i0 * b->ldx, ldx, X, V, WIDEN,
                  t);
        for (level = 0; j >> level & 1; level++) {
            UNROLL
            for (size_t i = 0; i < X; i++) {
                UNROLL
                for (size_t v = 0; v < V; v++)
                    acc[i][v] = sum[level][i][v] + acc[i][v];
            }
        }
        UNROLL
        for (size_t i = 0; i < X; i++) {
            UNROLL
            for (size_t v = 0; v < V; v++)
                sum[level][i][v] = acc[i][v];
        }
    }
    for (size_t i = 0; i < X && i < m; i++) {
        float *to = b->t + (i0 + i) * b->ldt + row;

        UNROLL
        for (size_t v = 0; v < V; v++) {
            vf y = sum[3][i][v];

            if (b->k % 8)
                y += vf_set1(0);
            if (b->add)
                y = vf_load(to + v * VF) + y;
            vf_store(to + v * VF, y);
        }
    }
}

/* All outputs of these rows of x, which stay in the first cache. */
INLINE void
lanes_strip(const struct gemm_block *b, size_t i0, size_t m, const size_t X,
            const bool WIDEN, enum dtype t)
{
    size_t row = 0;

    for (; row + LANE_GROUP <= b->rows; row += LANE_GROUP)
        lanes_tile(b, row, i0, m, X, LANE_V, WIDEN, t);
    for (; row < b->rows; row += 16)
        lanes_tile(b, row, i0, m, X, LAST_V, WIDEN, t);
}

INLINE void
lanes_first(const struct gemm_block *b, enum dtype t)
{
    lanes_strip(b, 0, b->m < LANE_X ? 1 : LANE_X, LANE_X, true, t);
}

static void
exact_by_k(const struct gemm_block *b)
{
    size_t i = b->m < LANE_X ? 1 : LANE_X;

    BY_DTYPE(lanes_first, b);
    for (; i + LANE_X <= b->m; i += LANE_X)
        lanes_strip(b, i, LANE_X, LANE_X, false, DT_F32);
    for (; i < b->m; i++)
        lanes_strip(b, i, 1, 1, false, DT_F32);
}

#endif
