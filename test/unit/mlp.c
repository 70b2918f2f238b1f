/* SPDX-License-Identifier: ISC */
/* The activation of an MLP against its formulas in f64. */
#include "core/model/mlp.h"

#include <math.h>
#include <string.h>

#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { ROWS = 9, N = 45 };

static float gate[ROWS * N], up[ROWS * N], inner[ROWS * N], kept[ROWS * N];

static double
expected(enum act act, double g, double u)
{
    if (act == ACT_SILU)
        return g / (1 + exp(-g)) * u;
    return g / 2 * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
}

static void
test(enum act act, const char *name, struct par *par)
{
    bool near = true;

    for (size_t i = 0; i < ROWS * N; i++)
        kept[i] = gate[i] = 8 * rnd();
    mlp_activate(par, act, inner, gate, up, N, ROWS);
    for (size_t i = 0; i < ROWS * N; i++) {
        double want = expected(act, (double)gate[i], (double)up[i]);

        near &= fabs((double)inner[i] - want) <= 1e-6 * (fabs(want) + 1);
    }
    tap_ok(near, "mlp_activate: %s is near the f64 formula", name);
    tap_ok(!memcmp(gate, kept, sizeof(gate)), "%s: gate stays as it is", name);
    mlp_activate(NULL, act, gate, gate, up, N, ROWS);
    tap_ok(!memcmp(gate, inner, sizeof(gate)),
           "%s in place, by one thread: the same bits", name);
}

/* Against differences of the f64 formula. */
static void
test_backward(enum act act, const char *name, struct par *par)
{
    static float dh[ROWS * N], g[ROWS * N], u[ROWS * N];
    bool near = true;

    for (size_t i = 0; i < ROWS * N; i++) {
        g[i] = gate[i] = 8 * rnd();
        u[i] = up[i];
        dh[i] = rnd();
    }
    mlp_backward(par, act, inner, g, u, dh, N, ROWS);
    for (size_t i = 0; i < ROWS * N; i++) {
        double x = (double)gate[i], y = (double)up[i], h = 1e-5;
        double dx = expected(act, x + h, y) - expected(act, x - h, y);

        near &= fabs((double)inner[i] - expected(act, x, y)) < 1e-5 &&
                fabs((double)g[i] - (double)dh[i] * dx / (2 * h)) < 1e-5 &&
                fabs((double)u[i] - (double)dh[i] * expected(act, x, 1)) < 1e-5;
    }
    tap_ok(near, "mlp_backward: %s is near the f64 formula", name);
}

int
main(void)
{
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err))
        return 1;
    for (size_t i = 0; i < ROWS * N; i++)
        up[i] = rnd();
    test(ACT_SILU, "silu", par);
    test(ACT_GELU_TANH, "gelu_pytorch_tanh", par);
    test_backward(ACT_SILU, "silu", par);
    test_backward(ACT_GELU_TANH, "gelu_pytorch_tanh", par);
    par_close(par);
    return tap_done();
}
