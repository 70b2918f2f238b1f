/* SPDX-License-Identifier: ISC */
/*
 * encode's inner loops, in C whose loops over LANES become vectors: number i
 * adds to lane i % LANES, and lanes are added in halves, on any CPU.
 */
#include <math.h>

#include "core/kernel/encode.h"
#include "core/kernel/ops.h"

#define LANES 16

/* Added and taken off again it leaves whole numbers, ties to even. */
#define WHOLE 12582912.0f /* 1.5 * 2^23 */

INLINE float
sum(const float *lane)
{
    float half[LANES / 2];

    for (size_t l = 0; l < LANES / 2; l++)
        half[l] = lane[l] + lane[l + LANES / 2];
    for (size_t l = 0; l < LANES / 4; l++)
        half[l] += half[l + LANES / 4];
    return (half[0] + half[2]) + (half[1] + half[3]);
}

INLINE float
within(float y, const struct encode_part *p)
{
    y = y < p->low ? p->low : y;
    return y > p->high ? p->high : y;
}

/* As whole numbers, the bits of what is not negative are in the floats' order,
 * with infinity and NaNs at the end, and those of what is negative below. */
static void
range(float *low, float *high, const float *x, size_t n)
{
    int32_t a = (int32_t)f32_bits(0 - *low); /* not -0: it is below all */
    int32_t b = (int32_t)f32_bits(*high);

    for (size_t i = 0; i < n; i++) {
        int32_t v = (int32_t)f32_bits(x[i]), w = v ^ INT32_MIN;

        a = a > w ? a : w;
        b = b > v ? b : v;
    }
    *low = -f32_from_bits((uint32_t)a);
    *high = f32_from_bits((uint32_t)b);
}

/* ---- a scale's error ---- */

INLINE void
measure_lanes(float *error, float *xy, float *yy, const struct encode_part *p,
              const float *x, const float *weight, bool weighted, bool fits)
{
    for (size_t l = 0; l < LANES; l++) {
        float y = within(x[l] * p->by, p) + WHOLE - WHOLE;
        float d = x[l] - y * p->scale, w = weighted ? weight[l] : 1;

        error[l] += w * d * d;
        if (fits) {
            xy[l] += w * y * x[l];
            yy[l] += w * y * y;
        }
    }
}

INLINE void
measure_as(struct encode_fit *to, const struct encode_part *part, bool weighted,
           bool fits)
{
    const struct encode_part p = *part;
    float error[LANES] = { 0 }, xy[LANES] = { 0 }, yy[LANES] = { 0 };
    size_t i = 0, n = p.n;

    for (; i + LANES <= n; i += LANES)
        measure_lanes(error, xy, yy, &p, p.x + i,
                      weighted ? p.weight + i : NULL, weighted, fits);
    if (i < n) {
        float x[LANES] = { 0 }, weight[LANES] = { 0 };

        memcpy(x, p.x + i, (n - i) * sizeof(*x));
        if (weighted)
            memcpy(weight, p.weight + i, (n - i) * sizeof(*weight));
        measure_lanes(error, xy, yy, &p, x, weight, weighted, fits);
    }
    to->error += sum(error);
    to->xy += fits ? sum(xy) : 0;
    to->yy += fits ? sum(yy) : 0;
}

static void
measure(struct encode_fit *to, const struct encode_part *p, bool fits)
{
    if (p->weight && fits)
        measure_as(to, p, true, true);
    else if (p->weight)
        measure_as(to, p, true, false);
    else if (fits)
        measure_as(to, p, false, true);
    else
        measure_as(to, p, false, false);
}

/* ---- codes ---- */

/* E4M3 of |y| <= 448 and its value: numbers under 2^-6 are multiples of 2^-9,
 * as those of f32 from 2^14 on are. */
INLINE uint8_t
to_f8(float y, float *value)
{
    uint32_t sign = f32_bits(y) & 0x80000000, u = f32_bits(y) & INT32_MAX;
    float size = f32_from_bits(u), small = size + 0x1p14f;
    uint32_t normal, bits;

    u = u + 0x7ffff + (u >> 20 & 1);
    normal = size >= 0x1p-6f ? UINT32_MAX : 0;
    bits = (normal & (u >> 20)) - (normal & 120 << 3);
    bits |= ~normal & (f32_bits(small) & 15);
    *value = f32_from_bits(sign | (normal & u & 0xfff00000) |
                           (~normal & f32_bits(small - 0x1p14f)));
    return (uint8_t)(sign >> 24 | bits);
}

INLINE void
code_lanes(float *squares, float *of, float *max, uint8_t *code,
           const struct encode_part *p, const float *x, bool f8)
{
    for (size_t l = 0; l < LANES; l++) {
        float y = within(x[l] * p->by, p), d;

        if (f8) {
            code[l] = to_f8(y, &y);
        } else {
            y = y + WHOLE - WHOLE;
            code[l] = (uint8_t)(int)(y + p->plus);
        }
        d = fabsf(x[l] - y * p->scale);
        squares[l] += d * d;
        of[l] += x[l] * x[l];
        max[l] = d > max[l] ? d : max[l];
    }
}

INLINE void
codes_as(uint8_t *code, const struct encode_part *part, struct encode_error *to,
         bool f8)
{
    const struct encode_part p = *part;
    float squares[LANES] = { 0 }, of[LANES] = { 0 }, max[LANES] = { 0 };
    float most = 0;
    size_t i = 0, n = p.n;

    for (; i + LANES <= n; i += LANES)
        code_lanes(squares, of, max, code + i, &p, p.x + i, f8);
    if (i < n) {
        float x[LANES] = { 0 };
        uint8_t last[LANES];

        memcpy(x, p.x + i, (n - i) * sizeof(*x));
        code_lanes(squares, of, max, last, &p, x, f8);
        memcpy(code + i, last, n - i);
    }
    to->squares += (double)sum(squares);
    to->of += (double)sum(of);
    for (size_t l = 0; l < LANES; l++)
        most = max[l] > most ? max[l] : most;
    to->max = (double)most > to->max ? (double)most : to->max;
}

static void
codes(uint8_t *code, const struct encode_part *p, struct encode_error *e)
{
    if (p->f8)
        codes_as(code, p, e, true);
    else
        codes_as(code, p, e, false);
}

const struct encode_ops TABLE(encode) = {
    .range = range,
    .measure = measure,
    .codes = codes,
};
