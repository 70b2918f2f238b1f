/* SPDX-License-Identifier: ISC */
/* The activation of an MLP against its formulas in f64. */
#include "core/model/mlp.h"

#include <math.h>
#include <string.h>

#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { ROWS = 9, N = 45 };

static float gate[ROWS * N], up[ROWS * N], inner[ROWS * N], kept[ROWS * N];

static const char *const names[N_ACTS + 1] = {
    "silu",       "gelu_pytorch_tanh", "gelu",   "relu",
    "quick_gelu", "sigmoid",           "clamped"
};

static double
expected(enum act act, double g, double u)
{
    if (act == ACT_SILU)
        return g / (1 + exp(-g)) * u;
    if (act == ACT_CLAMPED) /* 'plain' has u + 1 = 1 */
        return expected(ACT_QUICK_GELU, fmin(g, 7), fmax(fmin(u, 7), -7) + 1);
    if (act == ACT_QUICK_GELU)
        return g / (1 + exp(-1.702 * g)) * u;
    if (act == ACT_SIGMOID)
        return 1 / (1 + exp(-g)) * u;
    if (act == ACT_GELU_TANH)
        return g / 2 * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) *
               u;
    return act == ACT_RELU ? fmax(g, 0) * u : g / 2 * erfc(-g / sqrt(2)) * u;
}

static void
test(enum act act, bool plain, struct par *par)
{
    const float *by = plain ? NULL : up;
    const char *how = plain ? ", plain" : "";
    double one = act == ACT_CLAMPED ? 0 : 1;
    bool near = true;

    for (size_t i = 0; i < ROWS * N; i++)
        kept[i] = gate[i] = 8 * rnd();
    mlp_activate(par, act, inner, gate, by, N, N, ROWS);
    for (size_t i = 0; i < ROWS * N; i++) {
        double want = expected(act, (double)gate[i], by ? (double)by[i] : one);

        near &= fabs((double)inner[i] - want) <= 1e-6 * (fabs(want) + 1);
    }
    tap_ok(near, "mlp_activate: %s%s is near the f64 formula", names[act], how);
    tap_ok(!memcmp(gate, kept, sizeof(gate)), "%s%s: gate stays as it is",
           names[act], how);
    mlp_activate(NULL, act, gate, gate, by, N, N, ROWS);
    tap_ok(!memcmp(gate, inner, sizeof(gate)),
           "%s%s in place, by one thread: the same bits", names[act], how);
}

static bool
is_near(double got, double want)
{
    return fabs(got - want) < 1e-5 * fmax(1, fabs(want) / 8);
}

/* Against differences of the f64 formula. */
static void
test_backward(enum act act, bool plain, struct par *par)
{
    static float dh[ROWS * N], g[ROWS * N], u[ROWS * N];
    double one = act == ACT_CLAMPED ? 0 : 1;
    bool near = true;

    for (size_t i = 0; i < ROWS * N; i++) {
        g[i] = gate[i] = 8 * rnd();
        u[i] = up[i];
        dh[i] = rnd();
    }
    mlp_backward(par, act, inner, g, plain ? NULL : u, N, dh, N, ROWS);
    for (size_t i = 0; i < ROWS * N; i++) {
        double x = (double)gate[i], y = plain ? one : (double)up[i], h = 1e-5;
        double dx = expected(act, x + h, y) - expected(act, x - h, y);
        double du = expected(act, x, y + h) - expected(act, x, y - h);

        near &= is_near((double)inner[i], expected(act, x, y)) &&
                is_near((double)g[i], (double)dh[i] * dx / (2 * h)) &&
                (plain ? u[i] == up[i]
                       : is_near((double)u[i], (double)dh[i] * du / (2 * h)));
    }
    tap_ok(near, "mlp_backward: %s%s is near the f64 formula", names[act],
           plain ? ", plain" : "");
}

/* Rows of gate and up next to each other: what both alone give. */
static void
test_fused(struct par *par)
{
    static float fused[ROWS * 2 * N], alone[ROWS * N], dh[ROWS * N];
    bool same;

    for (size_t i = 0; i < ROWS * N; i++) {
        size_t at = i / N * 2 * N + i % N;

        fused[at] = gate[i] = 8 * rnd();
        fused[at + N] = up[i];
        dh[i] = rnd();
    }
    mlp_activate(NULL, ACT_SILU, alone, gate, up, N, N, ROWS);
    mlp_activate(par, ACT_SILU, inner, fused, fused + N, 2 * N, N, ROWS);
    tap_ok(!memcmp(inner, alone, sizeof(inner)),
           "mlp_activate: fused rows have the same bits");
    mlp_backward(NULL, ACT_SILU, alone, gate, up, N, dh, N, ROWS);
    mlp_backward(par, ACT_SILU, inner, fused, fused + N, 2 * N, dh, N, ROWS);
    same = !memcmp(inner, alone, sizeof(inner));
    for (size_t i = 0; i < ROWS; i++)
        same &= !memcmp(fused + 2 * i * N, gate + i * N, N * sizeof(float)) &&
                !memcmp(fused + (2 * i + 1) * N, up + i * N, N * sizeof(float));
    tap_ok(same, "mlp_backward: fused rows have the same bits");
}

int
main(void)
{
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err))
        return 1;
    for (size_t i = 0; i < ROWS * N; i++)
        up[i] = i % 4 ? rnd() : 9 * rnd();
    for (int act = 0; act <= ACT_CLAMPED; act++)
        for (int plain = 0; plain < 2; plain++) {
            test((enum act)act, plain, par);
            test_backward((enum act)act, plain, par);
        }
    test_fused(par);
    par_close(par);
    return tap_done();
}
