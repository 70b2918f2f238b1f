/* SPDX-License-Identifier: ISC */
/*
 * Baseline armv8-a: SMULL (products of 8 bits in 16) and SADALP (pairs of them
 * into 32): exact, -128 * -128 included.
 */
#include "core/kernel/ops.h"
#include "core/kernel/simd.h"

enum { COLS = 64, INT8_X = 4, INT8_COLS = 8 }; /* a tile: 16 of 32 registers */

INLINE int8x16_t
set1_bytes(const int8_t *p)
{
    int32_t word;

    memcpy(&word, p, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

/* Each column's sum comes in two halves, added at the end. */
INLINE void
int8_tile(int32_t *t, const int8_t *a, size_t lda, const int8_t *b, size_t k,
          bool add, const size_t X)
{
    int32x4_t acc[INT8_X][4];

    UNROLL
    for (size_t i = 0; i < X; i++) {
        UNROLL
        for (size_t v = 0; v < 4; v++)
            acc[i][v] = vdupq_n_s32(0);
    }
    for (size_t c = 0; c < k; c += 4) {
        int8x16_t b0 = vld1q_s8(b + c * COLS);
        int8x16_t b1 = vld1q_s8(b + c * COLS + 16);

        UNROLL
        for (size_t i = 0; i < X; i++) {
            int8x16_t av = set1_bytes(a + i * lda + c);
            int8x8_t half = vget_low_s8(av);
            int32x4_t *s = acc[i];

            s[0] = vpadalq_s16(s[0], vmull_s8(vget_low_s8(b0), half));
            s[1] = vpadalq_s16(s[1], vmull_high_s8(b0, av));
            s[2] = vpadalq_s16(s[2], vmull_s8(vget_low_s8(b1), half));
            s[3] = vpadalq_s16(s[3], vmull_high_s8(b1, av));
        }
    }
    UNROLL
    for (size_t i = 0; i < X; i++) {
        UNROLL
        for (size_t v = 0; v < 2; v++) {
            int32_t *to = t + i * COLS + 4 * v;
            int32x4_t sum = vpaddq_s32(acc[i][2 * v], acc[i][2 * v + 1]);

            vst1q_s32(to, add ? vaddq_s32(sum, vld1q_s32(to)) : sum);
        }
    }
}

INLINE void
int8_strip(int32_t *t, const int8_t *a, size_t lda, const int8_t *b, size_t k,
           bool add, const size_t X)
{
    for (size_t j = 0; j < COLS; j += INT8_COLS)
        int8_tile(t + j, a, lda, b + 4 * j, k, add, X);
}

static void
int8(int32_t *t, const int8_t *a, size_t lda, const int8_t *b,
     const int32_t *comp, size_t m, size_t k, bool add)
{
    size_t i = 0;

    (void)comp;
    for (; i + INT8_X <= m; i += INT8_X)
        int8_strip(t + i * COLS, a + i * lda, lda, b, k, add, INT8_X);
    for (; i < m; i++)
        int8_strip(t + i * COLS, a + i * lda, lda, b, k, add, 1);
}

const struct gemm_int8_ops gemm_int8_neon = { .product = int8 };
