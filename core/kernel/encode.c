/* SPDX-License-Identifier: ISC */
#include "core/kernel/encode.h"

#include <math.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/ops.h"

#define LANES 16 /* sums of a group are kept in so many, for vectors */

/* Added and taken off again it leaves whole numbers, ties to even. */
#define WHOLE 12582912.0f /* 1.5 * 2^23 */

/* Scales that are tried, in 64ths of absmax / 7.5: with the first of them the
 * largest number has the code -8. */
static const float factors[] = { 60, 57, 54, 51, 48, 45, 42, 39 };
#define N_FACTORS (sizeof(factors) / sizeof(*factors))
#define REFITS    2

#define CHUNK 256 /* numbers that are encoded and compared at a time */

struct group {
    const float *x, *weight; /* [n]; weight NULL: 1 */
    size_t n;
    enum dtype scale_dtype;
};

/* A scale, its zero, and the weighted squared error that they leave; the scale
 * that fits these codes best. */
struct choice {
    float scale, zero;
    double error;
    float fit;
};

size_t
encode_groups(const struct encode_form *form, size_t k)
{
    return (k + form->group - 1) / form->group;
}

void
encode_halves(uint8_t *to, const uint8_t *code, size_t k)
{
    for (size_t i = 0; i < k / 2; i++)
        to[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    if (k % 2)
        to[k / 2] = code[k - 1];
}

/* As it is when it has been stored; 0 where it has no inverse. */
static float
stored(float scale, enum dtype dtype)
{
    uint8_t bytes[4];
    float v;

    cvt_from_f32(bytes, dtype, &scale, 1);
    cvt_to_f32(&v, bytes, dtype, 1);
    return isfinite(1 / v) ? v : 0;
}

static float
inverse(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

/* ---- int4 ---- */

/* The code of x without its zero, as a float. */
INLINE float
nearest(float x, float by, float low, float high)
{
    float y = x * by;

    y = y < low ? low : y;
    y = y > high ? high : y;
    return y + WHOLE - WHOLE;
}

INLINE void
measure_as(const struct group *g, struct choice *c, bool weighted)
{
    float by = inverse(c->scale), low = -8 - c->zero, high = 7 - c->zero;
    float error[LANES] = { 0 }, xy[LANES] = { 0 }, yy[LANES] = { 0 };
    double sum = 0, sum_xy = 0, sum_yy = 0;

    for (size_t i = 0; i < g->n; i += LANES) {
        size_t n = smaller(g->n - i, LANES);
        float x[LANES] = { 0 }, w[LANES] = { 0 };

        memcpy(x, g->x + i, n * sizeof(*x));
        if (weighted)
            memcpy(w, g->weight + i, n * sizeof(*w));
        for (size_t l = 0; l < LANES; l++) {
            float y = nearest(x[l], by, low, high), d = x[l] - y * c->scale;
            float wd = weighted ? w[l] * d : d, wy = weighted ? w[l] * y : y;

            error[l] += wd * d;
            xy[l] += wy * x[l];
            yy[l] += wy * y;
        }
    }
    for (size_t l = 0; l < LANES; l++) {
        sum += (double)error[l];
        sum_xy += (double)xy[l];
        sum_yy += (double)yy[l];
    }
    c->error = sum;
    c->fit = sum_yy > 0 ? (float)(sum_xy / sum_yy) : c->scale;
}

/* Keeps the better of two choices. */
static void
try(const struct group *g, struct choice *best, float scale, float zero)
{
    struct choice c = { .scale = stored(scale, g->scale_dtype), .zero = zero };

    if (c.scale == 0)
        return;
    if (g->weight)
        measure_as(g, &c, true);
    else
        measure_as(g, &c, false);
    if (c.error < best->error)
        *best = c;
}

static struct choice
choose_int4(const struct encode_form *form, const struct group *g, float absmax)
{
    struct choice best = { .error = (double)INFINITY };
    float low = 0, high = 0, scale, zero = 0;

    for (size_t i = 0; i < g->n; i++) {
        low = g->x[i] < low ? g->x[i] : low;
        high = g->x[i] > high ? g->x[i] : high;
    }
    scale = absmax / 7.5f;
    if (form->asymmetric) {
        scale = high / 15 - low / 15;
        zero = scale > 0 ? -8 - low / scale : 0;
        zero = (zero < -8 ? -8 : zero > 7 ? 7 : zero) + WHOLE - WHOLE;
    }
    if (!form->search)
        return (struct choice){ .scale = stored(scale, g->scale_dtype),
                                .zero = zero };
    try(g, &best, scale, zero);
    for (size_t i = 0; i < N_FACTORS; i++) {
        float by = factors[i] / 64;

        if (!form->asymmetric)
            try(g, &best, (high > -low ? -scale : scale) * by, 0);
        for (float z = zero - 1; form->asymmetric && z <= zero + 1; z++)
            if (z >= -8 && z <= 7)
                try(g, &best, scale * by, z);
    }
    for (int i = 0; i < REFITS; i++)
        try(g, &best, best.fit, best.zero);
    return best;
}

/* ---- rows ---- */

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

/* Codes of up to CHUNK numbers of a group, and the numbers they stand for. */
static void
encode_chunk(enum encode_kind kind, uint8_t *code, float *value,
             const struct choice *c, const float *x, size_t n)
{
    float by = inverse(c->scale);

    if (kind == ENCODE_F8)
        for (size_t i = 0; i < n; i++) {
            float y = x[i] * by;

            y = y < -448 ? -448 : y;
            y = y > 448 ? 448 : y;
            code[i] = to_f8(y, &value[i]);
        }
    else if (kind == ENCODE_I8) {
        int8_t q[CHUNK];

        gemm_ops_of(cpu_isa())->quantize(q, x, DT_F32, by, n);
        for (size_t i = 0; i < n; i++) {
            code[i] = (uint8_t)(q[i] + 128);
            value[i] = (float)q[i];
        }
    } else
        for (size_t i = 0; i < n; i++) {
            value[i] = nearest(x[i], by, -8 - c->zero, 7 - c->zero);
            code[i] = (uint8_t)(int)(value[i] + c->zero + 8);
        }
    for (size_t i = 0; i < n; i++)
        value[i] *= c->scale;
}

static void
add_error(struct encode_error *e, const float *x, const float *value, size_t n)
{
    float squares[LANES] = { 0 }, of[LANES] = { 0 }, max[LANES] = { 0 };

    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES && (i + LANES <= n || i + l < n); l++) {
            float d = fabsf(x[i + l] - value[i + l]);

            squares[l] += d * d;
            of[l] += x[i + l] * x[i + l];
            max[l] = d > max[l] ? d : max[l];
        }
    for (size_t l = 0; l < LANES; l++) {
        e->squares += (double)squares[l];
        e->of += (double)of[l];
        e->max = (double)max[l] > e->max ? (double)max[l] : e->max;
    }
}

bool
encode_row(const struct encode_form *form, uint8_t *code, float *scale,
           uint8_t *zero, const float *x, const float *weight, size_t k,
           struct encode_error *error)
{
    static const float most[] = {
        [ENCODE_F8] = 448, [ENCODE_I8] = 127, [ENCODE_I4] = 7.5f
    };
    float value[CHUNK];

    *error = (struct encode_error){ 0 };
    for (size_t at = 0, n, i = 0; at < k; at += n, i++) {
        struct choice c = { 0 };
        float absmax;

        n = smaller(k - at, form->group);
        absmax = gemm_ops_of(cpu_isa())->absmax(x + at, DT_F32, n);
        if (!isfinite(16 * absmax * absmax * (float)n) ||
            !isfinite(stored(absmax / most[form->kind], form->scale_dtype)))
            return false;
        if (form->kind == ENCODE_I4) {
            const struct group g = { x + at, weight ? weight + at : NULL, n,
                                     form->scale_dtype };

            if (absmax > 0)
                c = choose_int4(form, &g, absmax);
        } else {
            c.scale = stored(absmax / most[form->kind], form->scale_dtype);
        }
        scale[i] = c.scale;
        if (zero)
            zero[i] = (uint8_t)(int)(c.zero + 8);
        for (size_t j = at, m; j < at + n; j += m) {
            m = smaller(at + n - j, CHUNK);
            encode_chunk(form->kind, code + j, value, &c, x + j, m);
            add_error(error, x + j, value, m);
        }
    }
    return true;
}
