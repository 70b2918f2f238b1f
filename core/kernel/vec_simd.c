/* SPDX-License-Identifier: ISC */
/*
 * vec by vectors: compiled for each instruction set that simd.h knows.  Every
 * tail goes through the same operations in the same lanes as a full vector.
 */
#include <math.h>

#include "core/kernel/simd.h"
#include "core/kernel/vec.h"

/*
 * 64 lanes on every CPU, column c in lane c % 64, then halves are added.  Those
 * are at least 4 accumulators: two loads an FMA make it one a cycle, of a
 * latency of 4.
 */
enum { DOT_V = 64 / VF };

static float
dot(const float *a, const float *b, size_t n)
{
    vf s[DOT_V];
    size_t i = 0;

    UNROLL
    for (size_t v = 0; v < DOT_V; v++)
        s[v] = vf_set1(0);
    for (; i + 64 <= n; i += 64)
        UNROLL
    for (size_t v = 0; v < DOT_V; v++)
        s[v] = vf_fma(vf_load(a + i + v * VF), vf_load(b + i + v * VF), s[v]);
    if (i < n) {
        UNROLL
        for (size_t v = 0; v < DOT_V; v++, i += VF) {
            vf x = vf_set1(0), y = x;

            if (i + VF <= n) {
                x = vf_load(a + i);
                y = vf_load(b + i);
            } else if (i < n) {
                x = vf_load_n(a + i, n - i);
                y = vf_load_n(b + i, n - i);
            }
            s[v] = vf_fma(x, y, s[v]);
        }
    }
    UNROLL
    for (size_t h = DOT_V / 2; h > 0; h /= 2)
        UNROLL
    for (size_t v = 0; v < h; v++)
        s[v] = s[v] + s[v + h];
    return vf_sum(s[0]);
}

static void
axpy(float *y, float s, const float *x, size_t n)
{
    const vf k = vf_set1(s);
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_fma(k, vf_load(x + i), vf_load(y + i)));
    if (i < n)
        vf_store_n(y + i,
                   vf_fma(k, vf_load_n(x + i, n - i), vf_load_n(y + i, n - i)),
                   n - i);
}

static void
axpy_diff(float *y, float s, const float *x, const float *b, size_t n)
{
    const vf k = vf_set1(s);
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(y + i,
                 vf_fma(k, vf_load(x + i) - vf_load(b + i), vf_load(y + i)));
    if (i < n) {
        vf diff = vf_load_n(x + i, n - i) - vf_load_n(b + i, n - i);

        vf_store_n(y + i, vf_fma(k, diff, vf_load_n(y + i, n - i)), n - i);
    }
}

static void
mul_add(float *y, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_fma(vf_load(a + i), vf_load(b + i), vf_load(y + i)));
    if (i < n)
        vf_store_n(y + i,
                   vf_fma(vf_load_n(a + i, n - i), vf_load_n(b + i, n - i),
                          vf_load_n(y + i, n - i)),
                   n - i);
}

/* 32 lanes on every CPU: of two sums, as many accumulators as dot() has. */
enum { DELTA_V = 32 / VF };

/* n numbers from i on; where there are none, zeros. */
INLINE vf
or_zeros(const float *p, size_t i, size_t n)
{
    return i + VF <= n ? vf_load(p + i)
           : i < n     ? vf_load_n(p + i, n - i)
                       : vf_set1(0);
}

static void
delta(const struct vec_delta *d)
{
    const vf decay = vf_set1(d->decay);
    float kq = dot(d->k, d->q, d->n), given, change;
    size_t n = d->n, i;

    for (size_t j = 0; j < d->rows; j++) {
        const float *s = d->s + j * n;
        float *to = d->to + j * n;
        vf by_k[DELTA_V], by_q[DELTA_V], by;

        UNROLL
        for (size_t v = 0; v < DELTA_V; v++)
            by_k[v] = by_q[v] = vf_set1(0);
        for (i = 0; i + 32 <= n; i += 32)
            UNROLL
        for (size_t v = 0; v < DELTA_V; v++) {
            vf x = vf_load(s + i + v * VF);

            by_k[v] = vf_fma(x, vf_load(d->k + i + v * VF), by_k[v]);
            by_q[v] = vf_fma(x, vf_load(d->q + i + v * VF), by_q[v]);
        }
        UNROLL
        for (size_t v = 0; v < DELTA_V; v++, i += VF)
            if (i < n) {
                vf x = or_zeros(s, i, n);

                by_k[v] = vf_fma(x, or_zeros(d->k, i, n), by_k[v]);
                by_q[v] = vf_fma(x, or_zeros(d->q, i, n), by_q[v]);
            }
        UNROLL
        for (size_t h = DELTA_V / 2; h > 0; h /= 2)
            UNROLL
        for (size_t v = 0; v < h; v++) {
            by_k[v] = by_k[v] + by_k[v + h];
            by_q[v] = by_q[v] + by_q[v + h];
        }
        given = vf_sum(by_k[0]);
        if (d->given)
            d->given[j] = given;
        change = d->beta * (d->v[j] - d->decay * given);
        d->o[j] = fmaf(change, kq, d->decay * vf_sum(by_q[0]));
        by = vf_set1(change);
        for (i = 0; i + VF <= n; i += VF)
            vf_store(to + i,
                     vf_fma(by, vf_load(d->k + i), vf_load(s + i) * decay));
        if (i < n)
            vf_store_n(to + i,
                       vf_fma(by, vf_load_n(d->k + i, n - i),
                              vf_load_n(s + i, n - i) * decay),
                       n - i);
    }
}

static void
add(float *y, const float *x, size_t n)
{
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_load(y + i) + vf_load(x + i));
    for (; i < n; i++)
        y[i] += x[i];
}

static void
scale(float *y, float s, size_t n)
{
    const vf k = vf_set1(s);
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_load(y + i) * k);
    for (; i < n; i++)
        y[i] *= s;
}

static float
max(const float *x, size_t n, bool *nan)
{
    float lane[VF], m = -INFINITY;
    vf best = vf_set1(m);
    size_t i = 0;

    for (; i + VF <= n; i += VF) {
        vf v = vf_load(x + i);

        if (__builtin_expect(vf_has_nan(v), 0)) {
            *nan = true;
            for (size_t j = i; j < i + VF; j++)
                m = x[j] > m ? x[j] : m;
        } else {
            best = vf_max(v, best);
        }
    }
    for (; i < n; i++) {
        *nan |= x[i] != x[i];
        m = x[i] > m ? x[i] : m;
    }
    vf_store(lane, best);
    for (size_t j = 0; j < VF; j++)
        m = lane[j] > m ? lane[j] : m;
    return m + 0; /* -0 is 0 */
}

static void
scale_mul(float *y, const float *x, float s, const float *w, size_t n)
{
    const vf k = vf_set1(s);
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_load(x + i) * k * vf_load(w + i));
    for (; i < n; i++)
        y[i] = x[i] * s * w[i];
}

/* See exp.h: e^r of x = n ln 2 + r. */
INLINE vf
exp_rest(vf x, vf n)
{
    vf r = vf_fma(n, vf_set1(-EXP_LN2_HI), x), p;

    r = vf_fma(n, vf_set1(-EXP_LN2_LO), r);
    p = vf_fma(vf_set1(EXP_P0), r, vf_set1(EXP_P1));
    p = vf_fma(p, r, vf_set1(EXP_P2));
    p = vf_fma(p, r, vf_set1(EXP_P3));
    p = vf_fma(p, r, vf_set1(EXP_P4));
    p = vf_fma(p, r, vf_set1(EXP_P5));
    return vf_fma(p, r * r, r) + vf_set1(1);
}

INLINE vf
vf_exp(vf x)
{
    const vf magic = vf_set1(EXP_ROUND);
    vf n, half, p;

    x = vf_max(vf_set1(EXP_MIN), x); /* a NaN stays */
    x = vf_min(vf_set1(EXP_MAX), x);
    n = vf_fma(x, vf_set1(EXP_LOG2E), magic) - magic;
    p = exp_rest(x, n);
    /* In two steps: 2^128 and 2^-150 are no normal floats. */
    half = vf_fma(n, vf_set1(0.5f), magic);
    n = n - (half - magic) + magic;
    return p * vf_pow2(half) * vf_pow2(n);
}

/* 16 lanes on every CPU, number i in lane i % 16, then halves are added. */
enum { EXP_V = 16 / VF };

static float
exp_sum(float *x, float max_x, size_t n)
{
    const vf m = vf_set1(max_x);
    vf sum[EXP_V], e;
    size_t i = 0;

    UNROLL
    for (size_t v = 0; v < EXP_V; v++)
        sum[v] = vf_set1(0);
    for (; i + 16 <= n; i += 16)
        UNROLL
    for (size_t v = 0; v < EXP_V; v++) {
        e = vf_exp(vf_load(x + i + v * VF) - m);
        vf_store(x + i + v * VF, e);
        sum[v] = sum[v] + e;
    }
    UNROLL
    for (size_t v = 0; v < EXP_V; v++, i += VF)
        if (i < n) {
            size_t rest = n - i < VF ? n - i : VF;

            if (rest == VF)
                vf_store(x + i, vf_exp(vf_load(x + i) - m));
            else
                vf_store_n(x + i, vf_exp(vf_load_n(x + i, rest) - m), rest);
            /* 0 in the lanes beyond n */
            sum[v] =
                sum[v] + (rest == VF ? vf_load(x + i) : vf_load_n(x + i, rest));
        }
    UNROLL
    for (size_t h = EXP_V / 2; h > 0; h /= 2)
        UNROLL
    for (size_t v = 0; v < h; v++)
        sum[v] = sum[v] + sum[v + h];
    return vf_sum(sum[0]);
}

enum { BLOCK_V = SOFTMAX_BLOCK / VF };

/* Of x <= 0: 0 under the smallest normal float. */
INLINE vf
exp_weight(vf x)
{
    const vf magic = vf_set1(EXP_ROUND);
    vf n;

    x = vf_max(vf_set1(EXP_WEIGHT_MIN), x); /* a NaN stays */
    n = vf_fma(x, vf_set1(EXP_LOG2E), magic);
    return exp_rest(x, n - magic) * vf_pow2(n);
}

/* Numbers i, i + 1, .., but -inf for those outside begin .. end - 1. */
INLINE vf
from_to(vf s, size_t i, size_t begin, size_t end)
{
    static const uint32_t lanes[16] = { 0, 1, 2,  3,  4,  5,  6,  7,
                                        8, 9, 10, 11, 12, 13, 14, 15 };
    vu at, in;

    memcpy(&at, lanes, sizeof(at));
    in = (vu)(at + (uint32_t)(i - begin) < (uint32_t)(end - begin));
    return vf_select(in, s, vf_set1(-INFINITY));
}

/* Row r, whose scores are in registers until they are weights; those of no key
 * are -inf, which weighs 0. */
INLINE void
softmax_row(const struct softmax_block *b, size_t r, bool whole)
{
    const float *from = b->scores + r * SOFTMAX_BLOCK;
    uint16_t *w = b->weights + r * SOFTMAX_BLOCK;
    vf s[BLOCK_V], sum[EXP_V], best = vf_set1(b->max[r]), m;
    float by[VF] = { 1 }, max;

    UNROLL
    for (size_t v = 0; v < BLOCK_V; v++) {
        s[v] = vf_load(from + v * VF);
        if (!whole)
            s[v] = from_to(s[v], v * VF, b->begin, b->end);
        best = vf_max(s[v], best); /* a NaN is not kept */
    }
    max = vf_largest(best);
    m = vf_set1(max);
    UNROLL
    for (size_t v = 0; v < EXP_V; v++)
        sum[v] = vf_set1(0);
    UNROLL
    for (size_t v = 0; v < BLOCK_V; v++) {
        vf e = exp_weight(s[v] - m);
        vu bits = (vu)e;

        /* to nearest even; a NaN need not be one: the total is */
        store_high(w + v * VF, bits + 0x7fff + (bits >> 16 & 1));
        sum[v % EXP_V] = sum[v % EXP_V] + e;
    }
    UNROLL
    for (size_t h = EXP_V / 2; h > 0; h /= 2)
        UNROLL
    for (size_t v = 0; v < h; v++)
        sum[v] = sum[v] + sum[v + h];
    if (max > b->max[r])
        vf_store(by, exp_weight(vf_set1(b->max[r]) - m));
    b->by[r] = by[0];
    b->total[r] = b->total[r] * by[0] + vf_sum(sum[0]);
    b->max[r] = max;
}

static void
softmax_block(const struct softmax_block *b)
{
    bool whole = b->begin == 0 && b->end == SOFTMAX_BLOCK;

    for (size_t r = 0; r < b->n; r++)
        if (whole)
            softmax_row(b, r, true);
        else
            softmax_row(b, r, false);
}

INLINE vf
silu(vf g)
{
    return g / (vf_set1(1) + vf_exp(vf_set1(0) - g));
}

/* (1 + tanh u) / 2 = 1 / (1 + exp(-2u)). */
INLINE vf
gelu_tanh(vf g)
{
    vf u2 = vf_set1(-GELU_A) * (g + vf_set1(GELU_B) * g * g * g);

    return g / (vf_set1(1) + vf_exp(u2));
}

INLINE vf
silu_slope(vf g, vf *slope)
{
    const vf one = vf_set1(1);
    vf sig = one / (one + vf_exp(vf_set1(0) - g)), act = g * sig;

    *slope = sig + act * (one - sig);
    return act;
}

INLINE vf
quick_gelu(vf g)
{
    return g / (vf_set1(1) + vf_exp(vf_set1(-QUICK_GELU) * g));
}

INLINE vf
quick_gelu_slope(vf g, vf *slope)
{
    const vf one = vf_set1(1), by = vf_set1(QUICK_GELU);
    vf sig = one / (one + vf_exp(vf_set1(-QUICK_GELU) * g)), act = g * sig;

    *slope = sig + by * act * (one - sig);
    return act;
}

INLINE vf
sigmoid(vf g)
{
    const vf one = vf_set1(1);

    return one / (one + vf_exp(vf_set1(0) - g));
}

INLINE vf
sigmoid_slope(vf g, vf *slope)
{
    vf sig = sigmoid(g);

    *slope = sig * (vf_set1(1) - sig);
    return sig;
}

INLINE vf
gelu_tanh_slope(vf g, vf *slope)
{
    const vf one = vf_set1(1), gg = vf_set1(GELU_B) * g * g;
    vf u = vf_set1(GELU_A) * (g + gg * g);
    vf sig = one / (one + vf_exp(vf_set1(0) - u)), act = g * sig;

    *slope =
        sig + act * (one - sig) * (vf_set1(GELU_A) * (one + vf_set1(3) * gg));
    return act;
}

/* As vec_scalar.c has it. */
INLINE vf
normal_tail(vf x, vf *e)
{
    const vf half = vf_set1(-0.5f), one = vf_set1(1);
    vf xx = x * x, lost = vf_fma(x, x, vf_set1(0) - xx);
    vf u = one / vf_fma(vf_set1(NORMAL_U), x, one), p;

    *e = vf_exp(half * xx);
    *e = vf_fma(half * lost, *e, *e);
    p = vf_fma(vf_set1(NORMAL_P0), u, vf_set1(NORMAL_P1));
    p = vf_fma(p, u, vf_set1(NORMAL_P2));
    p = vf_fma(p, u, vf_set1(NORMAL_P3));
    p = vf_fma(p, u, vf_set1(NORMAL_P4));
    p = vf_fma(p, u, vf_set1(NORMAL_P5));
    p = vf_fma(p, u, vf_set1(NORMAL_P6));
    p = vf_fma(p, u, vf_set1(NORMAL_P7));
    p = vf_fma(p, u, vf_set1(NORMAL_P8));
    return p * u;
}

INLINE vf
gelu_erf_slope(vf g, vf *slope)
{
    const vf zero = vf_set1(0);
    vu over = (vu)(g > zero);
    vf x = vf_min(vf_set1(NORMAL_MAX), vf_abs(g)), e; /* a NaN stays */
    vf tail = normal_tail(x, &e);
    vf s = e * vf_fma(vf_set1(-NORMAL_PEAK), x, tail);

    *slope = vf_select(over, vf_set1(1) - s, s);
    return vf_select(over, g, zero) - e * (x * tail);
}

INLINE vf
gelu_erf(vf g)
{
    vf slope;

    return gelu_erf_slope(g, &slope);
}

INLINE vf
relu(vf g)
{
    return vf_max(vf_set1(0), g) + vf_set1(0); /* a NaN stays; -0 is 0 */
}

INLINE vf
relu_slope(vf g, vf *slope)
{
    *slope = vf_select((vu)(g > vf_set1(0)), vf_set1(1), vf_set1(0));
    return relu(g);
}

/* n numbers from i on; where there are none, ones. */
INLINE vf
or_ones(const float *p, size_t i, size_t n)
{
    return !p ? vf_set1(1) : n == VF ? vf_load(p + i) : vf_load_n(p + i, n);
}

#define ACT(name)                                                              \
    static void name##_mul(float *gate, const float *up, size_t n)             \
    {                                                                          \
        size_t i = 0;                                                          \
                                                                               \
        for (; i + VF <= n; i += VF)                                           \
            vf_store(gate + i, name(vf_load(gate + i)) * or_ones(up, i, VF));  \
        if (i < n)                                                             \
            vf_store_n(gate + i,                                               \
                       name(vf_load_n(gate + i, n - i)) *                      \
                           or_ones(up, i, n - i),                              \
                       n - i);                                                 \
    }                                                                          \
                                                                               \
    /* h, and the gradients of gate and up in their places. */                 \
    INLINE vf name##_back1(vf *gate, vf *up, vf dh)                            \
    {                                                                          \
        vf slope, act = name##_slope(*gate, &slope), h = act * *up;            \
                                                                               \
        *gate = dh * *up * slope;                                              \
        *up = dh * act;                                                        \
        return h;                                                              \
    }                                                                          \
                                                                               \
    static void name##_back(float *h, float *gate, float *up, const float *dh, \
                            size_t n)                                          \
    {                                                                          \
        size_t i = 0;                                                          \
                                                                               \
        for (; i + VF <= n; i += VF) {                                         \
            vf g = vf_load(gate + i), u = or_ones(up, i, VF);                  \
                                                                               \
            vf_store(h + i, name##_back1(&g, &u, vf_load(dh + i)));            \
            vf_store(gate + i, g);                                             \
            if (up)                                                            \
                vf_store(up + i, u);                                           \
        }                                                                      \
        if (i < n) {                                                           \
            vf g = vf_load_n(gate + i, n - i), u = or_ones(up, i, n - i);      \
                                                                               \
            vf_store_n(h + i, name##_back1(&g, &u, vf_load_n(dh + i, n - i)),  \
                       n - i);                                                 \
            vf_store_n(gate + i, g, n - i);                                    \
            if (up)                                                            \
                vf_store_n(up + i, u, n - i);                                  \
        }                                                                      \
    }

ACT(silu)
ACT(gelu_tanh)
ACT(gelu_erf)
ACT(relu)
ACT(quick_gelu)
ACT(sigmoid)

static void
rope(float *x, const float *c, const float *s, size_t half)
{
    float *x2 = x + half;
    size_t i = 0;

    for (; i + VF <= half; i += VF) {
        vf a = vf_load(x + i), b = vf_load(x2 + i);
        vf cv = vf_load(c + i), sv = vf_load(s + i);

        vf_store(x + i, a * cv - b * sv);
        vf_store(x2 + i, b * cv + a * sv);
    }
    for (; i < half; i++) {
        float a = x[i], b = x2[i];

        x[i] = a * c[i] - b * s[i];
        x2[i] = b * c[i] + a * s[i];
    }
}

/* As vec_scalar.c has it. */
INLINE vf
capped(vf x, vf cap)
{
    const vf one = vf_set1(1);
    vf z = vf_abs(x) / cap, zz = z * z, p, large;

    p = vf_fma(vf_set1(TANH_P0), zz, vf_set1(TANH_P1));
    p = vf_fma(p, zz, vf_set1(TANH_P2));
    p = vf_fma(p, zz, vf_set1(TANH_P3));
    p = vf_fma(p, zz, vf_set1(TANH_P4));
    large = cap * (one - vf_set1(2) / (vf_exp(z + z) + one));
    large = (vf)((vu)vf_abs(large) | ((vu)x & 0x80000000u));
    return vf_select((vu)(z < vf_set1(TANH_SMALL)), vf_fma(x, p * zz, x),
                     large);
}

static void
softcap(float *x, float cap, size_t n)
{
    const vf c = vf_set1(cap);
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(x + i, capped(vf_load(x + i), c));
    if (i < n)
        vf_store_n(x + i, capped(vf_load_n(x + i, n - i), c), n - i);
}

const struct vec_ops TABLE(vec) = {
    .dot = dot,
    .axpy = axpy,
    .axpy_diff = axpy_diff,
    .mul_add = mul_add,
    .delta = delta,
    .add = add,
    .scale = scale,
    .max = max,
    .scale_mul = scale_mul,
    .exp_sum = exp_sum,
    .softmax_block = softmax_block,
    .act = { silu_mul, gelu_tanh_mul, gelu_erf_mul, relu_mul, quick_gelu_mul,
             sigmoid_mul },
    .act_back = { silu_back, gelu_tanh_back, gelu_erf_back, relu_back,
                  quick_gelu_back, sigmoid_back },
    .rope = rope,
    .softcap = softcap,
};
