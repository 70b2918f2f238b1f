#include <math.h>

#include "core/kernel/exp.h"
#include "core/kernel/scalar.h"

static float
dot(const float *a, const float *b, size_t n)
{
    float lane[LANES] = { 0 };
    size_t c = 0;

    for (; c + LANES <= n; c += LANES)
        for (size_t i = 0; i < LANES; i++)
            lane[i] += a[c + i] * b[c + i];
    for (size_t i = 0; c + i < n; i++)
        lane[i] += a[c + i] * b[c + i];
    return sum_lanes(lane);
}

static void
axpy(float *y, float s, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += s * x[i];
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
    return m;
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

static inline float
exp1(float x)
{
    float n, half, r, p;

    x = x < EXP_MIN ? EXP_MIN : x; /* a NaN stays */
    x = x > EXP_MAX ? EXP_MAX : x;
    n = x * EXP_LOG2E + EXP_ROUND - EXP_ROUND;
    r = x - n * EXP_LN2_HI - n * EXP_LN2_LO;
    p = EXP_P0;
    p = p * r + EXP_P1;
    p = p * r + EXP_P2;
    p = p * r + EXP_P3;
    p = p * r + EXP_P4;
    p = p * r + EXP_P5;
    p = p * (r * r) + r + 1;
    /* In two steps: 2^128 and 2^-150 are no normal floats. */
    half = n * 0.5f + EXP_ROUND;
    n = n - (half - EXP_ROUND) + EXP_ROUND;
    return p * pow2(half) * pow2(n);
}

static float
exp_sum(float *x, float max_x, size_t n)
{
    float lane[LANES] = { 0 };

    for (size_t i = 0; i < n; i++) {
        x[i] = exp1(x[i] - max_x);
        lane[i % LANES] += x[i];
    }
    return sum_lanes(lane);
}

static void
silu_mul(float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gate[i] = gate[i] / (1 + exp1(-gate[i])) * up[i];
}

static void
silu_back(float *h, float *gate, float *up, const float *dh, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sig = 1 / (1 + exp1(-gate[i])), silu = gate[i] * sig;

        h[i] = silu * up[i];
        gate[i] = dh[i] * up[i] * (sig + silu * (1 - sig));
        up[i] = dh[i] * silu;
    }
}

/* (1 + tanh u) / 2 = 1 / (1 + exp(-2u)). */
static void
gelu_tanh_mul(float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float g = gate[i];
        float u2 = GELU_A * (g + GELU_B * g * g * g);

        gate[i] = g / (1 + exp1(-u2)) * up[i];
    }
}

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

const struct vec_ops vec_scalar = {
    .dot = dot,
    .axpy = axpy,
    .add = add,
    .scale = scale,
    .max = max,
    .scale_mul = scale_mul,
    .exp_sum = exp_sum,
    .silu_mul = silu_mul,
    .silu_back = silu_back,
    .gelu_tanh_mul = gelu_tanh_mul,
    .rope = rope,
};
