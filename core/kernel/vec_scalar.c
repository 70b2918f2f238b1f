/* SPDX-License-Identifier: ISC */
#include <math.h>

#include "core/kernel/exp.h"
#include "core/kernel/scalar.h"
#include "core/kernel/vec.h"

enum { DOT_LANES = 64, DELTA_LANES = 32, EXP_LANES = 16 };

/* Lanes that the last columns do not reach add 0 * 0, too. */
static float
dot(const float *a, const float *b, size_t n)
{
    float lane[DOT_LANES] = { 0 };

    for (size_t c = 0; c < n; c += DOT_LANES)
        for (size_t i = 0; i < DOT_LANES; i++)
            lane[i] =
                c + i < n ? fmaf(a[c + i], b[c + i], lane[i]) : lane[i] + 0;
    return sum_lanes(lane, DOT_LANES);
}

static void
axpy(float *y, float s, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(s, x[i], y[i]);
}

static void
axpy_diff(float *y, float s, const float *x, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(s, x[i] - b[i], y[i]);
}

static void
mul_add(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(a[i], b[i], y[i]);
}

static void
delta(const struct vec_delta *d)
{
    float kq = dot(d->k, d->q, d->n);

    for (size_t j = 0; j < d->rows; j++) {
        float lane_k[DELTA_LANES] = { 0 }, lane_q[DELTA_LANES] = { 0 }, change;
        const float *s = d->s + j * d->n;
        float given;

        for (size_t i = 0; i < d->n; i++) {
            size_t l = i % DELTA_LANES;

            lane_k[l] = fmaf(s[i], d->k[i], lane_k[l]);
            lane_q[l] = fmaf(s[i], d->q[i], lane_q[l]);
        }
        given = sum_lanes(lane_k, DELTA_LANES);
        if (d->given)
            d->given[j] = given;
        change = d->beta * (d->v[j] - d->decay * given);
        d->o[j] = fmaf(change, kq, d->decay * sum_lanes(lane_q, DELTA_LANES));
        for (size_t i = 0; i < d->n; i++)
            d->to[j * d->n + i] = fmaf(change, d->k[i], s[i] * d->decay);
    }
}

static void
add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void
scale(float *y, float s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] *= s;
}

static float
max(const float *x, size_t n, bool *nan)
{
    float m = -INFINITY;

    for (size_t i = 0; i < n; i++) {
        m = x[i] > m ? x[i] : m;
        *nan |= x[i] != x[i];
    }
    return m + 0; /* -0 is 0 */
}

static void
scale_mul(float *y, const float *x, float s, const float *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * s * w[i];
}

/* 2^n of EXP_ROUND + n: n is what stands in the low bits. */
static inline float
pow2(float t)
{
    return f32_from_bits((f32_bits(t) + 127) << 23);
}

/* e^r of x = n ln 2 + r. */
static inline float
exp_rest(float x, float n)
{
    float r = fmaf(n, -EXP_LN2_HI, x), p;

    r = fmaf(n, -EXP_LN2_LO, r);
    p = fmaf(EXP_P0, r, EXP_P1);
    p = fmaf(p, r, EXP_P2);
    p = fmaf(p, r, EXP_P3);
    p = fmaf(p, r, EXP_P4);
    p = fmaf(p, r, EXP_P5);
    return fmaf(p, r * r, r) + 1;
}

static inline float
exp1(float x)
{
    float n, half, p;

    x = x < EXP_MIN ? EXP_MIN : x; /* a NaN stays */
    x = x > EXP_MAX ? EXP_MAX : x;
    n = fmaf(x, EXP_LOG2E, EXP_ROUND) - EXP_ROUND;
    p = exp_rest(x, n);
    /* In two steps: 2^128 and 2^-150 are no normal floats. */
    half = fmaf(n, 0.5f, EXP_ROUND);
    n = n - (half - EXP_ROUND) + EXP_ROUND;
    return p * pow2(half) * pow2(n);
}

static float
exp_sum(float *x, float max_x, size_t n)
{
    float lane[EXP_LANES] = { 0 };

    for (size_t i = 0; i < n; i++) {
        x[i] = exp1(x[i] - max_x);
        lane[i % EXP_LANES] += x[i];
    }
    return sum_lanes(lane, EXP_LANES);
}

/* Of x <= 0: 0 under the smallest normal float. */
static inline float
exp_weight(float x)
{
    float n;

    x = x < EXP_WEIGHT_MIN ? EXP_WEIGHT_MIN : x; /* a NaN stays */
    n = fmaf(x, EXP_LOG2E, EXP_ROUND);
    return exp_rest(x, n - EXP_ROUND) * pow2(n);
}

static void
softmax_row(const struct softmax_block *b, size_t r)
{
    const float *s = b->scores + r * SOFTMAX_BLOCK;
    uint16_t *w = b->weights + r * SOFTMAX_BLOCK;
    float lane[EXP_LANES] = { 0 }, max = b->max[r];

    for (size_t i = b->begin; i < b->end; i++)
        max = s[i] > max ? s[i] : max;
    for (size_t i = 0; i < SOFTMAX_BLOCK; i++) {
        float e = i < b->begin || i >= b->end ? 0 : exp_weight(s[i] - max);

        lane[i % EXP_LANES] += e;
        w[i] = f32_to_bf16(e);
    }
    b->by[r] = max > b->max[r] ? exp_weight(b->max[r] - max) : 1;
    b->total[r] = b->total[r] * b->by[r] + sum_lanes(lane, EXP_LANES);
    b->max[r] = max;
}

static void
softmax_block(const struct softmax_block *b)
{
    for (size_t r = 0; r < b->n; r++)
        softmax_row(b, r);
}

static inline float
silu(float g)
{
    return g / (1 + exp1(-g));
}

static inline float
silu_slope(float g, float *slope)
{
    float sig = 1 / (1 + exp1(-g)), act = g * sig;

    *slope = sig + act * (1 - sig);
    return act;
}

static inline float
quick_gelu(float g)
{
    return g / (1 + exp1(-QUICK_GELU * g));
}

static inline float
quick_gelu_slope(float g, float *slope)
{
    float sig = 1 / (1 + exp1(-QUICK_GELU * g)), act = g * sig;

    *slope = sig + QUICK_GELU * act * (1 - sig);
    return act;
}

/* (1 + tanh u) / 2 = 1 / (1 + exp(-2u)). */
static inline float
gelu_tanh(float g)
{
    return g / (1 + exp1(-(GELU_A * (g + GELU_B * g * g * g))));
}

static inline float
gelu_tanh_slope(float g, float *slope)
{
    float gg = GELU_B * g * g;
    float sig = 1 / (1 + exp1(-(GELU_A * (g + gg * g)))), act = g * sig;

    *slope = sig + act * (1 - sig) * (GELU_A * (1 + 3 * gg));
    return act;
}

static inline float
sigmoid(float g)
{
    return 1 / (1 + exp1(-g));
}

static inline float
sigmoid_slope(float g, float *slope)
{
    float sig = sigmoid(g);

    *slope = sig * (1 - sig);
    return sig;
}

/* Phi(-x) / e, e = exp(-x^2 / 2); x^2 is rounded, and what that lost made up
 * for. */
static inline float
normal_tail(float x, float *e)
{
    float xx = x * x, lost = fmaf(x, x, -xx), exp_xx = exp1(-0.5f * xx);
    float u = 1 / fmaf(NORMAL_U, x, 1), p;

    *e = fmaf(-0.5f * lost, exp_xx, exp_xx);
    p = fmaf(NORMAL_P0, u, NORMAL_P1);
    p = fmaf(p, u, NORMAL_P2);
    p = fmaf(p, u, NORMAL_P3);
    p = fmaf(p, u, NORMAL_P4);
    p = fmaf(p, u, NORMAL_P5);
    p = fmaf(p, u, NORMAL_P6);
    p = fmaf(p, u, NORMAL_P7);
    p = fmaf(p, u, NORMAL_P8);
    return p * u;
}

/* g Phi(g) is -x Phi(-x) of x = |g|, plus g where g > 0: nothing cancels. */
static inline float
gelu_erf_slope(float g, float *slope)
{
    float x = fabsf(g), tail, e, s;

    x = x > NORMAL_MAX ? NORMAL_MAX : x; /* a NaN stays */
    tail = normal_tail(x, &e);
    s = e * fmaf(-NORMAL_PEAK, x, tail);
    *slope = g > 0 ? 1 - s : s;
    return (g > 0 ? g : 0) - e * (x * tail);
}

static inline float
gelu_erf(float g)
{
    float slope;

    return gelu_erf_slope(g, &slope);
}

static inline float
relu(float g)
{
    return (g < 0 ? 0 : g) + 0; /* -0 is 0 */
}

static inline float
relu_slope(float g, float *slope)
{
    *slope = g > 0 ? 1 : 0;
    return relu(g);
}

#define ACT(name)                                                              \
    static void name##_mul(float *gate, const float *up, size_t n)             \
    {                                                                          \
        for (size_t i = 0; i < n; i++)                                         \
            gate[i] = name(gate[i]) * (up ? up[i] : 1);                        \
    }                                                                          \
                                                                               \
    static void name##_back(float *h, float *gate, float *up, const float *dh, \
                            size_t n)                                          \
    {                                                                          \
        for (size_t i = 0; i < n; i++) {                                       \
            float slope, act = name##_slope(gate[i], &slope);                  \
                                                                               \
            h[i] = act * (up ? up[i] : 1);                                     \
            gate[i] = dh[i] * (up ? up[i] : 1) * slope;                        \
            if (up)                                                            \
                up[i] = dh[i] * act;                                           \
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

    for (size_t i = 0; i < half; i++) {
        float a = x[i], b = x2[i];

        x[i] = a * c[i] - b * s[i];
        x2[i] = b * c[i] + a * s[i];
    }
}

static void
softcap(float *x, float cap, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float z = fabsf(x[i]) / cap, zz = z * z, p;

        p = fmaf(TANH_P0, zz, TANH_P1);
        p = fmaf(p, zz, TANH_P2);
        p = fmaf(p, zz, TANH_P3);
        p = fmaf(p, zz, TANH_P4);
        if (z < TANH_SMALL)
            x[i] = fmaf(x[i], p * zz, x[i]);
        else
            x[i] = copysignf(cap * (1 - 2 / (exp1(2 * z) + 1)), x[i]);
    }
}

const struct vec_ops vec_scalar = {
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
