/* SPDX-License-Identifier: ISC */
/*
 * The reference of gemm.h's inner loops: what the others do in registers.  Its
 * exact sums are those of gemv_scalar.c.
 */
#include <math.h>

#include "core/kernel/scalar.h"

enum { GROUP = 4 };

/* The block's rows from b->from. */
INLINE void
widen(const struct gemm_block *b, size_t k8)
{
    for (size_t r = 0; r < b->rows; r++)
        for (size_t c = 0; c < k8; c++)
            b->w[r / GROUP * GROUP * k8 + c / LANES * LANES * GROUP +
                 r % GROUP * LANES + c % LANES] =
                c < b->k
                    ? weight((const char *)b->from + r * b->ld, b->w_dtype, c)
                    : 0;
}

static void
exact(const struct gemm_block *b)
{
    const size_t k8 = (b->k + LANES - 1) / LANES * LANES;

    if (b->from)
        widen(b, k8);
    for (size_t i = 0; i < b->m; i++)
        for (size_t r = 0; r < b->rows; r++) {
            const float *w = b->w + r / GROUP * GROUP * k8 + r % GROUP * LANES;
            const float *x = b->x + i * b->ldx;
            float *t = b->t + i * b->ldt + r, lane[LANES] = { 0 };

            for (size_t c = 0; c < k8; c += LANES, w += LANES * GROUP)
                for (size_t j = 0; j < LANES; j++)
                    lane[j] = fmaf(w[j], c + j < b->k ? x[c + j] : 0, lane[j]);
            *t = b->add ? *t + sum_lanes(lane, LANES) : sum_lanes(lane, LANES);
        }
}

static void
exact_by_k(const struct gemm_block *b)
{
    for (size_t i = 0; i < b->m; i++)
        for (size_t r = 0; r < b->rows; r++) {
            float *t = b->t + i * b->ldt + r, lane[LANES] = { 0 };

            for (size_t c = 0; c < b->k; c++)
                lane[c % LANES] = fmaf(
                    weight((const char *)b->from + c * b->ld, b->w_dtype, r),
                    b->x[i * b->ldx + c], lane[c % LANES]);
            for (size_t l = b->k % LANES; l % LANES; l++)
                lane[l] += 0;
            *t = b->add ? *t + sum_lanes(lane, LANES) : sum_lanes(lane, LANES);
        }
}

static void
transpose(uint32_t *to, const void *from, size_t ld, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++)
            memcpy(&to[i * 64 + r], (const char *)from + r * ld + 4 * i, 4);
}

static void
interleave(uint32_t *to, const void *from, size_t ld, size_t cols, size_t n)
{
    const char *row = from;

    for (size_t i = 0; i < 2 * n; i++, row += ld)
        for (size_t j = 0; j < cols; j++)
            memcpy((char *)&to[i / 2 * 64 + j] + i % 2 * 2, row + 2 * j, 2);
}

static void
rescale(float *c, size_t ldc, const int32_t *s, const float *x_scale,
        const float *w_scale, size_t m, size_t n, bool stream)
{
    (void)stream;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            c[i * ldc + j] = (float)s[i * 64 + j] * x_scale[i] * w_scale[j];
}

static float
element(const void *x, enum dtype dtype, size_t i)
{
    return dtype == DT_BF16 ? bf16_to_f32(load16(x, i)) : ((const float *)x)[i];
}

static float
absmax(const void *x, enum dtype dtype, size_t n)
{
    float max = 0;

    for (size_t i = 0; i < n; i++) {
        float v = fabsf(element(x, dtype, i));

        if (isnan(v))
            return v;
        max = v > max ? v : max;
    }
    return max;
}

static void
quantize(int8_t *to, const void *x, enum dtype dtype, float by, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float q = nearbyintf(element(x, dtype, i) * by);

        to[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
    }
}

static void
rest(float *to, const float *x, const uint16_t *hi, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = x[i] - bf16_to_f32(hi[i]);
}

static void
sums(int32_t *sum, const int8_t *b, size_t k)
{
    memset(sum, 0, 64 * sizeof(*sum));
    for (size_t c = 0; c < k; c += 4)
        for (size_t j = 0; j < 64; j++, b += 4)
            sum[j] += 128 * (b[0] + b[1] + b[2] + b[3]);
}

const struct gemm_ops gemm_scalar = {
    .exact = exact,
    .group = GROUP,
    .exact_by_k = exact_by_k,
    .group_by_k = 16,
    .transpose = transpose,
    .interleave = interleave,
    .rescale = rescale,
    .absmax = absmax,
    .quantize = quantize,
    .rest = rest,
    .sums = sums,
};
