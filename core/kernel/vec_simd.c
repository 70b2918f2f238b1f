/*
 * vec by vectors: compiled for each instruction set that simd.h knows.  Every
 * tail goes through the same operations in the same lanes as a full vector.
 */
#include <math.h>

#include "core/kernel/simd.h"

/* Four accumulators: two loads an FMA make it one a cycle, of a latency of 4.
 */
static float
dot(const float *a, const float *b, size_t n)
{
    vf s0 = vf_set1(0), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;

    for (; i + 4 * VF <= n; i += 4 * VF) {
        s0 = vf_fma(vf_load(a + i), vf_load(b + i), s0);
        s1 = vf_fma(vf_load(a + i + VF), vf_load(b + i + VF), s1);
        s2 = vf_fma(vf_load(a + i + 2 * VF), vf_load(b + i + 2 * VF), s2);
        s3 = vf_fma(vf_load(a + i + 3 * VF), vf_load(b + i + 3 * VF), s3);
    }
    for (; i + VF <= n; i += VF)
        s0 = vf_fma(vf_load(a + i), vf_load(b + i), s0);
    if (i < n)
        s1 = vf_fma(vf_load_n(a + i, n - i), vf_load_n(b + i, n - i), s1);
    return vf_sum((s0 + s1) + (s2 + s3));
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
    return m;
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

/* See exp.h. */
INLINE vf
vf_exp(vf x)
{
    const vf magic = vf_set1(EXP_ROUND);
    vf n, half, r, p;

    x = vf_max(vf_set1(EXP_MIN), x); /* a NaN stays */
    x = vf_min(vf_set1(EXP_MAX), x);
    n = vf_fma(x, vf_set1(EXP_LOG2E), magic) - magic;
    r = vf_fma(n, vf_set1(-EXP_LN2_HI), x);
    r = vf_fma(n, vf_set1(-EXP_LN2_LO), r);
    p = vf_fma(vf_set1(EXP_P0), r, vf_set1(EXP_P1));
    p = vf_fma(p, r, vf_set1(EXP_P2));
    p = vf_fma(p, r, vf_set1(EXP_P3));
    p = vf_fma(p, r, vf_set1(EXP_P4));
    p = vf_fma(p, r, vf_set1(EXP_P5));
    p = vf_fma(p, r * r, r) + vf_set1(1);
    /* In two steps: 2^128 and 2^-150 are no normal floats. */
    half = vf_fma(n, vf_set1(0.5f), magic);
    n = n - (half - magic) + magic;
    return p * vf_pow2(half) * vf_pow2(n);
}

static float
exp_sum(float *x, float max_x, size_t n)
{
    const vf m = vf_set1(max_x);
    vf sum = vf_set1(0), e;
    size_t i = 0;

    for (; i + VF <= n; i += VF) {
        e = vf_exp(vf_load(x + i) - m);
        vf_store(x + i, e);
        sum = sum + e;
    }
    if (i < n) {
        vf_store_n(x + i, vf_exp(vf_load_n(x + i, n - i) - m), n - i);
        sum = sum + vf_load_n(x + i, n - i); /* 0 in the lanes beyond n */
    }
    return vf_sum(sum);
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

#define ACT_MUL(name, act)                                                \
    static void name(float *gate, const float *up, size_t n)              \
    {                                                                     \
        size_t i = 0;                                                     \
                                                                          \
        for (; i + VF <= n; i += VF)                                      \
            vf_store(gate + i, act(vf_load(gate + i)) * vf_load(up + i)); \
        if (i < n)                                                        \
            vf_store_n(gate + i,                                          \
                       act(vf_load_n(gate + i, n - i)) *                  \
                           vf_load_n(up + i, n - i),                      \
                       n - i);                                            \
    }

ACT_MUL(silu_mul, silu)
ACT_MUL(gelu_tanh_mul, gelu_tanh)

/* h, and the gradients of gate and up in their places. */
INLINE vf
silu_back1(vf *gate, vf *up, vf dh)
{
    const vf one = vf_set1(1);
    vf sig = one / (one + vf_exp(vf_set1(0) - *gate)), s = *gate * sig;
    vf h = s * *up;

    *gate = dh * *up * (sig + s * (one - sig));
    *up = dh * s;
    return h;
}

static void
silu_back(float *h, float *gate, float *up, const float *dh, size_t n)
{
    size_t i = 0;

    for (; i + VF <= n; i += VF) {
        vf g = vf_load(gate + i), u = vf_load(up + i);

        vf_store(h + i, silu_back1(&g, &u, vf_load(dh + i)));
        vf_store(gate + i, g);
        vf_store(up + i, u);
    }
    if (i < n) {
        vf g = vf_load_n(gate + i, n - i), u = vf_load_n(up + i, n - i);

        vf_store_n(h + i, silu_back1(&g, &u, vf_load_n(dh + i, n - i)), n - i);
        vf_store_n(gate + i, g, n - i);
        vf_store_n(up + i, u, n - i);
    }
}

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

const struct vec_ops TABLE(vec) = {
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
