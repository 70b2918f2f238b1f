/* SPDX-License-Identifier: ISC */
/* Functions of vectors against libm and float64, on every instruction set. */
#include "core/kernel/vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { N = 300, GUARD = 77 };

static float a[N + 1], b[N + 1], c[N + 1], d[N + 1];

static void
fill(size_t n)
{
    for (size_t i = 0; i <= N; i++) {
        a[i] = rnd() * 3;
        b[i] = rnd();
        c[i] = rnd();
        d[i] = a[i];
    }
    a[n] = GUARD;
}

/* Error in units of the last place of the f32 that is nearest to 'want'. */
static double
ulps(double want, float got)
{
    double unit;
    int e;

    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if ((float)want == got)
        return isinf(got) ? 0 : fabs(want - (double)got) > 0 ? 0.5 : 0;
    frexp(want, &e);
    unit = ldexp(1, e - 24 < -149 ? -149 : e - 24);
    return fabs(want - (double)got) / unit;
}

static bool
near(double want, float got, double tolerance)
{
    return fabs(want - (double)got) <= tolerance;
}

static bool
check_sums(const struct vec_ops *ops, size_t n)
{
    double dot = 0, size = 0;
    float max = -INFINITY;
    bool nan = false;

    fill(n);
    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * (double)b[i];
        size += fabs((double)a[i] * (double)b[i]);
        max = fmaxf(max, a[i]);
    }
    return near(dot, ops->dot(a, b, n), size * 0x1p-22) &&
           ops->max(a, n, &nan) == max && !nan;
}

static bool
check_elements(const struct vec_ops *ops, size_t n)
{
    bool good = true;

    fill(n);
    ops->axpy(a, 0.7f, b, n);
    for (size_t i = 0; i < n; i++)
        good &= near((double)d[i] + (double)0.7f * (double)b[i], a[i], 1e-6);
    good &= a[n] == GUARD;
    fill(n);
    ops->mul_add(a, b, c, n);
    for (size_t i = 0; i < n; i++)
        good &= near((double)d[i] + (double)b[i] * (double)c[i], a[i], 1e-6);
    good &= a[n] == GUARD;
    fill(n);
    ops->add(a, b, n);
    for (size_t i = 0; i < n; i++)
        good &= a[i] == d[i] + b[i];
    good &= a[n] == GUARD;
    fill(n);
    ops->scale(a, -1.3f, n);
    for (size_t i = 0; i < n; i++)
        good &= a[i] == d[i] * -1.3f;
    good &= a[n] == GUARD;
    fill(n);
    ops->scale_mul(a, d, 0.3f, b, n);
    for (size_t i = 0; i < n; i++)
        good &= a[i] == d[i] * 0.3f * b[i];
    return good && a[n] == GUARD;
}

static const char *const act_names[N_ACTS] = {
    "silu", "gelu_tanh", "gelu_erf", "relu", "quick_gelu", "sigmoid"
};

static double
act_f64(int act, double g)
{
    return act == ACT_SILU ? g / (1 + exp(-g))
           : act == ACT_GELU_TANH
               ? g / 2 * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)))
           : act == ACT_GELU_ERF   ? g / 2 * erfc(-g / sqrt(2))
           : act == ACT_QUICK_GELU ? g / (1 + exp(-1.702 * g))
           : act == ACT_SIGMOID    ? 1 / (1 + exp(-g))
                                   : fmax(g, 0);
}

/* With 'up' or without, forward and back, whose slope is that of a difference
 * in f64. */
static bool
check_act(const struct vec_ops *ops, int act, bool with_up, size_t n)
{
    static float h[N + 1], u[N + 1];
    bool good = true;

    fill(n);
    ops->act[act](a, with_up ? b : NULL, n);
    for (size_t i = 0; i < n; i++)
        good &= near(act_f64(act, (double)d[i]) * (with_up ? (double)b[i] : 1),
                     a[i], 1e-6);
    good &= a[n] == GUARD;
    fill(n);
    memcpy(u, b, sizeof(u));
    u[n] = h[n] = GUARD;
    ops->act_back[act](h, a, with_up ? u : NULL, c, n);
    for (size_t i = 0; i < n; i++) {
        double g = (double)d[i], up = with_up ? (double)b[i] : 1, by = 1e-5;
        double slope = (act_f64(act, g + by) - act_f64(act, g - by)) / (2 * by);

        good &= near(act_f64(act, g) * up, h[i], 1e-6) &&
                near((double)c[i] * up * slope, a[i], 1e-6) &&
                near(with_up ? (double)c[i] * act_f64(act, g) : (double)b[i],
                     u[i], 1e-6);
    }
    return good && a[n] == GUARD && u[n] == GUARD && h[n] == GUARD;
}

static bool
check_exp_sum(const struct vec_ops *ops, size_t n)
{
    double sum = 0;
    bool good = true;
    float s;

    fill(n);
    s = ops->exp_sum(a, 2.5f, n);
    for (size_t i = 0; i < n; i++) {
        sum += exp((double)(d[i] - 2.5f));
        good &= ulps(exp((double)(d[i] - 2.5f)), a[i]) < 2;
    }
    return good && a[n] == GUARD && near(sum, s, sum * 0x1p-21);
}

static bool
check_rope(const struct vec_ops *ops, size_t half)
{
    bool good = true;

    fill(2 * half);
    ops->rope(a, b, c, half);
    for (size_t i = 0; i < half; i++) {
        double x1 = (double)d[i], x2 = (double)d[half + i];

        good &= near(x1 * (double)b[i] - x2 * (double)c[i], a[i], 1e-6) &&
                near(x2 * (double)b[i] + x1 * (double)c[i], a[half + i], 1e-6);
    }
    return good && a[2 * half] == GUARD;
}

static void
test_lengths(enum isa isa)
{
    const struct vec_ops *ops = vec_ops_of(isa);
    bool sums = true, elements = true, acts = true, exps = true, rope = true;

    for (size_t n = 0; n < 150; n++) {
        sums &= check_sums(ops, n);
        elements &= check_elements(ops, n);
        for (int act = 0; act < N_ACTS; act++)
            acts &=
                check_act(ops, act, true, n) && check_act(ops, act, false, n);
        exps &= check_exp_sum(ops, n);
        rope &= check_rope(ops, n);
    }
    tap_ok(sums, "vec %s: dot and max, n 0..149", isa_name(isa));
    tap_ok(elements, "vec %s: axpy, mul_add, add, scale, n 0..149",
           isa_name(isa));
    tap_ok(acts, "vec %s: activations to 1e-6, n 0..149", isa_name(isa));
    tap_ok(exps, "vec %s: exp_sum against exp, n 0..149", isa_name(isa));
    tap_ok(rope, "vec %s: rope turns by the formula", isa_name(isa));
}

enum { ROWS = 7, BLOCKS = 5 };

/* A row's numbers begin .. end - 1 of a block; what is outside may be NaN. */
static void
put_scores(float *score, size_t begin, size_t end, float size)
{
    for (size_t i = 0; i < ROWS * SOFTMAX_BLOCK; i++)
        score[i] = i % SOFTMAX_BLOCK < begin || i % SOFTMAX_BLOCK >= end
                       ? NAN
                       : size * rnd();
}

/* Weights to half a unit of bf16 and 2 ulp of f32, totals to 2^-20. */
static bool
softmax_is_near(const struct softmax_block *got, const double *total)
{
    bool good = true;

    for (size_t r = 0; r < ROWS; r++) {
        for (size_t i = 0; i < SOFTMAX_BLOCK; i++) {
            double e = exp((double)got->scores[r * SOFTMAX_BLOCK + i] -
                           (double)got->max[r]);
            float w = bf16_to_f32(got->weights[r * SOFTMAX_BLOCK + i]);

            if (i < got->begin || i >= got->end)
                good &= w == 0;
            else
                good &=
                    fabs((double)w - e) <= e * (0x1p-8 + 0x1p-22) + 0x1p-126;
        }
        good &= fabs((double)got->total[r] - total[r]) <= total[r] * 0x1p-20;
    }
    return good;
}

/* Blocks of a softmax, against what f64 makes of the same scores; the same bits
 * as without vectors. */
static void
test_softmax_block(enum isa isa)
{
    const struct vec_ops *ops = vec_ops_of(isa),
                         *scalar = vec_ops_of(ISA_SCALAR);
    static float score[ROWS * SOFTMAX_BLOCK];
    static uint16_t w[2][ROWS * SOFTMAX_BLOCK];
    float max[2][ROWS], total[2][ROWS], by[2][ROWS];
    bool good = true, same = true, nan = true;

    for (int round = 0; round < 50; round++) {
        double sum[ROWS] = { 0 };

        for (size_t r = 0; r < ROWS; r++) {
            max[0][r] = max[1][r] = -INFINITY;
            total[0][r] = total[1][r] = 0;
        }
        for (size_t block = 0; block < BLOCKS; block++) {
            size_t begin = block == 0 ? (size_t)round : 0;
            size_t end = block == 4 ? (size_t)round + 1 : SOFTMAX_BLOCK;
            struct softmax_block both[2];

            put_scores(score, begin, end, round % 2 ? 5 : 100);
            for (int i = 0; i < 2; i++)
                both[i] =
                    (struct softmax_block){ w[i], score,  ROWS,     begin,
                                            end,  max[i], total[i], by[i] };
            ops->softmax_block(&both[0]);
            scalar->softmax_block(&both[1]);
            for (size_t r = 0; r < ROWS; r++) {
                sum[r] *= (double)by[0][r];
                for (size_t i = begin; i < end; i++)
                    sum[r] += exp((double)score[r * SOFTMAX_BLOCK + i] -
                                  (double)max[0][r]);
            }
            good &= softmax_is_near(&both[0], sum);
            same &= !memcmp(w[0], w[1], sizeof(w[0])) &&
                    !memcmp(max[0], max[1], sizeof(max[0])) &&
                    !memcmp(total[0], total[1], sizeof(total[0])) &&
                    !memcmp(by[0], by[1], sizeof(by[0]));
        }
        score[3] = NAN;
        ops->softmax_block(&(struct softmax_block){
            w[0], score, 1, 0, SOFTMAX_BLOCK, max[0], total[0], by[0] });
        nan &= isnan(total[0][0]);
    }
    tap_ok(good, "vec %s: softmax_block against exp", isa_name(isa));
    tap_ok(same, "vec %s: softmax_block has the scalar's bits", isa_name(isa));
    tap_ok(nan, "vec %s: softmax_block: a NaN is in the total", isa_name(isa));
}

/* Every 501st float of those whose exp is neither 0 nor infinity. */
static void
test_exp_accuracy(enum isa isa)
{
    const struct vec_ops *ops = vec_ops_of(isa);
    float x[256], y[256];
    double worst = 0, worst_small = 0;
    size_t n = 0;

    for (int sign = 0; sign < 2; sign++)
        for (uint32_t u = 0; u < 0x42d00000; u += 501) {
            x[n] = f32_from_bits(u | (uint32_t)sign << 31);
            if (++n < 256)
                continue;
            memcpy(y, x, sizeof(y));
            ops->exp_sum(y, 0, n);
            for (n = 0; n < 256; n++) {
                double want = exp((double)x[n]);
                double e = want >= 0x1.ffffffp127 ? y[n] != INFINITY
                                                  : ulps(want, y[n]);

                worst = fmax(worst, e);
                if (want < 0x1p-126)
                    worst_small = fmax(worst_small, e);
            }
            n = 0;
        }
    tap_ok(worst < 2, "vec %s: exp within 2 ulp from -104 to 104",
           isa_name(isa));
    printf("# worst %.3f ulp, of denormals %.3f\n", worst, worst_small);
}

/* Every 501st float from -15 to 15, and what is not finite. */
static void
test_gelu_accuracy(enum isa isa)
{
    const struct vec_ops *ops = vec_ops_of(isa);
    float x[] = { INFINITY, -INFINITY, NAN, 3e38f, -3e38f, -15.5f, 15.5f, 0 };
    double worst = 0;

    for (uint32_t u = 0; u < 0x41700000; u += 501)
        for (uint32_t sign = 0; sign < 2; sign++) {
            float g = f32_from_bits(u | sign << 31), y = g;

            ops->act[ACT_GELU_ERF](&y, NULL, 1);
            worst = fmax(worst, ulps(act_f64(ACT_GELU_ERF, (double)g), y));
        }
    tap_ok(worst < 7, "vec %s: gelu_erf within 7 ulp", isa_name(isa));
    printf("# worst %.3f ulp\n", worst);
    ops->act[ACT_GELU_ERF](x, NULL, 8);
    tap_ok(x[0] == INFINITY && x[1] == 0 && isnan(x[2]) && x[3] == 3e38f &&
               x[4] == 0 && x[5] == 0 && x[6] == 15.5f && x[7] == 0,
           "vec %s: gelu_erf of huge numbers", isa_name(isa));
    x[0] = NAN;
    x[1] = -0.0f;
    x[2] = -INFINITY;
    ops->act[ACT_RELU](x, NULL, 3);
    tap_ok(isnan(x[0]) && f32_bits(x[1]) == 0 && x[2] == 0,
           "vec %s: relu of NaN, -0 and -infinity", isa_name(isa));
}

/* Every 30011th float, infinity too, of the caps that Gemma 2 has. */
static void
test_softcap(enum isa isa)
{
    const struct vec_ops *ops = vec_ops_of(isa);
    float x[] = { INFINITY, -INFINITY, NAN, 3e38f, 0x1p-149f, -0.0f };
    double worst = 0;
    bool good = true;

    for (uint32_t u = 0; u < 0x7f800000; u += 30011)
        for (uint32_t sign = 0; sign < 2; sign++)
            for (int cap = 30; cap <= 50; cap += 20) {
                float v = f32_from_bits(u | sign << 31), y = v;

                ops->softcap(&y, (float)cap, 1);
                worst = fmax(worst, ulps(cap * tanh((double)v / cap), y));
            }
    tap_ok(worst < 3, "vec %s: softcap within 3 ulp", isa_name(isa));
    printf("# worst %.3f ulp\n", worst);
    ops->softcap(x, 50, 6);
    tap_ok(x[0] == 50 && x[1] == -50 && isnan(x[2]) && x[3] == 50 &&
               x[4] == 0x1p-149f && x[5] == 0,
           "vec %s: softcap of what is not finite, and of zeros",
           isa_name(isa));
    for (size_t n = 0; n < 150; n++) {
        fill(n);
        ops->softcap(a, 2, n);
        for (size_t i = 0; i < n; i++)
            good &= near(2 * tanh((double)d[i] / 2), a[i], 1e-6);
        good &= a[n] == GUARD;
    }
    tap_ok(good, "vec %s: softcap, n 0..149", isa_name(isa));
}

static void
test_special(enum isa isa)
{
    const struct vec_ops *ops = vec_ops_of(isa);
    float x[33], one[33];
    bool good = true, nan;

    for (size_t at = 0; at < 33; at++) {
        memset(x, 0, sizeof(x));
        x[at] = NAN;
        nan = false;
        good &= ops->max(x, 33, &nan) == 0 && nan;
        ops->exp_sum(x, 0, 33);
        good &= isnan(x[at]) && x[(at + 1) % 33] == 1;
        x[at] = -INFINITY;
        ops->exp_sum(x, 1, 33);
        good &= x[at] == 0;
        x[at] = INFINITY;
        good &= ops->exp_sum(x, 1, 33) == INFINITY && x[at] == INFINITY;
        x[at] = 89;
        ops->exp_sum(x, 0, 33);
        good &= x[at] == INFINITY;
    }
    tap_ok(good, "vec %s: exp and max of NaN and infinities", isa_name(isa));
    for (size_t i = 0; i < 33; i++) {
        x[i] = i % 3 ? -3e38f : -200;
        one[i] = 1;
    }
    ops->act[ACT_SILU](x, one, 33);
    good = true;
    for (size_t i = 0; i < 33; i++)
        good &= x[i] == 0;
    for (size_t i = 0; i < 33; i++)
        x[i] = i % 3 ? 3e38f : 200;
    ops->act[ACT_GELU_TANH](x, one, 33);
    for (size_t i = 0; i < 33; i++)
        good &= x[i] == (i % 3 ? 3e38f : 200);
    tap_ok(good, "vec %s: silu and gelu of huge numbers", isa_name(isa));
}

static const float *sorted;

static int
by_rank(const void *p, const void *q)
{
    uint32_t i = *(const uint32_t *)p, j = *(const uint32_t *)q;

    if (sorted[i] != sorted[j])
        return sorted[i] > sorted[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static void
test_topk(void)
{
    static float x[N];
    uint32_t want[N], got[N];
    bool good = true, first = true;

    for (size_t n = 1; n < N; n++) {
        for (size_t i = 0; i < n; i++) {
            x[i] = (float)(int)(rnd() * 20); /* many are equal */
            want[i] = (uint32_t)i;
        }
        sorted = x;
        qsort(want, n, sizeof(*want), by_rank);
        for (size_t k = 1; k <= n; k += 1 + k / 2) {
            vec_topk(got, k, x, n);
            good &= !memcmp(got, want, k * sizeof(*got));
        }
        first &= vec_argmax(x, n) == want[0];
    }
    tap_ok(good, "vec_topk: as sorted, ties to the lower index");
    tap_ok(first, "vec_argmax: the lowest of the largest");
    x[0] = NAN;
    x[1] = -INFINITY;
    x[2] = NAN;
    x[3] = -INFINITY;
    vec_topk(got, 4, x, 4);
    tap_ok(got[0] == 1 && got[1] == 3 && got[2] == 0 && got[3] == 2,
           "vec_topk: NaNs come last");
    vec_topk(got, 1, x, 4);
    tap_ok(got[0] == 1, "vec_topk: a NaN that came first gives way");
    tap_ok(vec_argmax(x, 4) == 1, "vec_argmax: a NaN never wins");
    tap_ok(vec_argmax(x, 1) == 0, "vec_argmax: 0 if all are NaN");
}

static void
test_pairs(void)
{
    bool good = true;

    fill(2 * 9);
    vec_rope_pairs(a, b, c, 9);
    for (size_t i = 0; i < 9; i++) {
        double x1 = (double)d[2 * i], x2 = (double)d[2 * i + 1];

        good &= near(x1 * (double)b[i] - x2 * (double)c[i], a[2 * i], 1e-6) &&
                near(x2 * (double)b[i] + x1 * (double)c[i], a[2 * i + 1], 1e-6);
    }
    tap_ok(good && a[18] == GUARD, "vec_rope_pairs turns by the formula");
}

/* Against differences in f64. */
static void
test_softcap_back(void)
{
    float x[64], y[64], dx[64], dy[64];
    bool good = true;

    for (size_t i = 0; i < 64; i++) {
        y[i] = x[i] = 8 * rnd();
        dx[i] = dy[i] = rnd();
    }
    vec_softcap(y, 2, 64);
    vec_softcap_back(dx, y, 2, 64);
    for (size_t i = 0; i < 64; i++) {
        double at = (double)x[i], by = 1e-5;
        double slope = (tanh((at + by) / 2) - tanh((at - by) / 2)) / by;

        good &= near((double)dy[i] * slope, dx[i], 1e-6);
    }
    tap_ok(good, "vec_softcap_back: the slope of a difference in f64");
}

static void
test_public(void)
{
    float x[] = { 1, 2, 3, 4 }, w[] = { 1, 1, 2, 1 }, y[4];
    float long_x[19], long_y[19];

    for (int i = 0; i < 19; i++)
        long_x[i] = (float)(i + 1);
    vec_rmsnorm(y, x, w, 0.5f, 4); /* mean 7.5, + 0.5 = 8 */
    tap_ok(near(1 / sqrt(8), y[0], 1e-7) && near(6 / sqrt(8), y[2], 3e-7),
           "vec_rmsnorm: by hand");
    vec_rmsnorm(x, x, w, 0.5f, 4);
    tap_ok(!memcmp(x, y, sizeof(x)), "vec_rmsnorm: y may be x");
    for (int i = 0; i < 4; i++)
        x[i] = i == 1 ? 1e20f : 1;
    vec_rmsnorm(y, x, w, 0.5f, 4); /* 1e40 is over FLT_MAX */
    tap_ok(isnan(y[0]) && isnan(y[1]),
           "vec_rmsnorm: squares that leave f32 do not give 0");
    vec_center(long_y, long_x, 19); /* sum 190 */
    tap_ok(long_y[0] == -9 && long_y[10] == 1 && long_y[18] == 9,
           "vec_center: by hand");
    vec_center(long_x, long_x, 19);
    tap_ok(!memcmp(long_x, long_y, sizeof(long_x)), "vec_center: y may be x");
    tap_ok(vec_max(y, 0) == -INFINITY, "vec_max of nothing is -inf");
    y[1] = NAN;
    tap_ok(isnan(vec_max(y, 4)), "vec_max: a NaN gives NaN");
    tap_ok(near(14, vec_dot(w, (float[]){ 1, 2, 3, 5 }, 4), 0),
           "vec_dot: by hand");
}

/* ---- the same bits ---- */

enum {
    DOT,
    MAX,
    AXPY,
    AXPY_DIFF,
    MUL_ADD,
    DELTA,
    ADD,
    SCALE,
    SCALE_MUL,
    EXP_SUM,
    ROPE,
    SOFTCAP,
    N_FUNCTIONS, /* and four of each activation */
    N_ALL = N_FUNCTIONS + 4 * N_ACTS
};

static const char *const functions[N_FUNCTIONS] = {
    "dot", "max",   "axpy",      "axpy_diff", "mul_add", "delta",
    "add", "scale", "scale_mul", "exp_sum",   "rope",    "softcap"
};

static const char *const act_functions[] = { "", " back", " without up",
                                             " back without up" };

/* v [4]: what the function reads and writes; a sum goes to v[3][0]. */
static void
call(const struct vec_ops *ops, int function, float (*v)[N], float s, size_t n)
{
    bool nan = false;

    switch (function) {
    case DOT:
        v[3][0] = ops->dot(v[0], v[1], n);
        break;
    case MAX:
        v[3][0] = ops->max(v[0], n, &nan);
        break;
    case AXPY:
        ops->axpy(v[0], s, v[1], n);
        break;
    case AXPY_DIFF:
        ops->axpy_diff(v[0], s, v[1], v[2], n);
        break;
    case MUL_ADD:
        ops->mul_add(v[0], v[1], v[2], n);
        break;
    case DELTA: /* of two values */
        ops->delta(&(struct vec_delta){ v[0], v[0], v[3], v[1], v[2], v[3] + 2,
                                        v[3] + 4, s, 0.5f, 2, n });
        break;
    case ADD:
        ops->add(v[0], v[1], n);
        break;
    case SCALE:
        ops->scale(v[0], s, n);
        break;
    case SCALE_MUL:
        ops->scale_mul(v[0], v[1], s, v[2], n);
        break;
    case EXP_SUM:
        v[3][0] = ops->exp_sum(v[0], s, n);
        break;
    case ROPE:
        ops->rope(v[0], v[1], v[2], n / 2);
        break;
    case SOFTCAP:
        ops->softcap(v[0], s, n);
        break;
    default:
        function -= N_FUNCTIONS;
        if (function % 2 == 0)
            ops->act[function / 4](v[0], function % 4 ? NULL : v[1], n);
        else
            ops->act_back[function / 4](
                v[3], v[0], function % 4 == 3 ? NULL : v[1], v[2], n);
    }
}

/* From 2^-150 to 2^50, or to 100; 0 and -0. */
static float
any_size(void)
{
    float v = rnd();
    int size = (int)(rnd() * 100) - 50;

    if (rnd() > 0.9f)
        return rnd() > 0 ? 0.0f : -0.0f;
    return rnd() > 0 ? 100 * v : ldexpf(v, size);
}

static bool
same_bits(const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (f32_bits(x[i]) != f32_bits(y[i]) && !(isnan(x[i]) && isnan(y[i])))
            return false;
    return true;
}

static void
test_bits(enum isa isa)
{
    static float v[2][4][N];

    for (int f = 0; f < N_ALL; f++) {
        int act = f - N_FUNCTIONS;
        bool good = true;

        for (size_t n = 0; n < 150; n++) {
            float s = any_size();

            for (size_t i = 0; i < 4 * N; i++)
                v[0][i / N][i % N] = any_size();
            memcpy(v[1], v[0], sizeof(v[1]));
            call(vec_ops_of(isa), f, v[0], s, n);
            call(vec_ops_of(ISA_SCALAR), f, v[1], s, n);
            good &= same_bits(v[0][0], v[1][0], 4 * N);
        }
        tap_ok(good, "vec %s: %s%s has the scalar's bits, n 0..149",
               isa_name(isa), act < 0 ? functions[f] : act_names[act / 4],
               act < 0 ? "" : act_functions[act % 4]);
    }
}

int
main(void)
{
    FOR_EACH_ISA(isa)
    {
        test_lengths(isa);
        test_exp_accuracy(isa);
        test_gelu_accuracy(isa);
        test_softcap(isa);
        test_softmax_block(isa);
        test_special(isa);
        test_bits(isa);
    }
    test_topk();
    test_pairs();
    test_softcap_back();
    test_public();
    return tap_done();
}
