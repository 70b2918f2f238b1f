/* SPDX-License-Identifier: ISC */
/* Norms of rows against their formulas in f64. */
#include "core/model/norm.h"

#include <string.h>

#include "test/unit/isa.h"
#include "test/unit/norm-ref.h"
#include "test/unit/tap.h"

enum { ROWS = 13, MAX_N = 130, SETS = 3 };

static float x[ROWS * MAX_N], y[ROWS * MAX_N];
static float weight[SETS * MAX_N], bias[SETS * MAX_N];

/* With the weights that row i has, alone. */
static struct norm
norm_of(const struct norm *norm, size_t i)
{
    size_t set = norm->n_sets ? i % norm->n_sets : 0;
    struct norm one = *norm;

    one.weight += norm->weight ? set * norm->n : 0;
    one.bias += norm->bias ? set * norm->n : 0;
    one.n_sets = 1;
    return one;
}

/* Row i of y is that of row from[i] of x, or i? */
static bool
near(const struct norm *norm, const size_t *from, size_t n_rows)
{
    bool near = true, loses = norm->form == NORM_LAYER || norm->bias;

    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; k < norm->n; k++) {
            const float *row = x + (from ? from[i] : i) * norm->n;
            const struct norm one = norm_of(norm, i);
            double want = norm_ref(&one, row, k);

            /* x - mean(x) and + bias lose what is small beside them */
            near &= fabs((double)y[i * norm->n + k] - want) <=
                    1e-6 * (fabs(want) + (loses ? 1 : 1e-3));
        }
    return near;
}

static void
test(const struct norm *norm, const char *name, struct par *par)
{
    static const size_t from[] = { 12, 0, 3, 3, 7 };
    static float in_place[ROWS * MAX_N];
    size_t n = norm->n;

    norm_rows(par, norm, y, x, NULL, ROWS);
    tap_ok(near(norm, NULL, ROWS), "norm_rows: %s of %zu, eps %g", name, n,
           (double)norm->eps);
    memcpy(in_place, x, sizeof(x));
    norm_rows(NULL, norm, in_place, in_place, NULL, ROWS);
    tap_ok(!memcmp(in_place, y, ROWS * n * sizeof(*y)),
           "norm_rows: %s of %zu in place, by one thread: the same bits", name,
           n);
    norm_rows(par, norm, y, x, from, 5);
    tap_ok(near(norm, from, 5), "norm_rows: %s of some rows of %zu, one twice",
           name, n);
}

/* Against differences of the f64 formula, which the gradient dy weighs. */
static bool
back_near(const struct norm *norm, const float *dx, const float *dy)
{
    static float moved[MAX_N];
    bool near = true;

    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < norm->n; k++) {
            const struct norm one = norm_of(norm, i);
            double h = 0x1p-8, change = 0, size = 0;

            for (int side = -1; side <= 1; side += 2) {
                memcpy(moved, x + i * norm->n, norm->n * sizeof(*moved));
                moved[k] += (float)(side * h);
                for (size_t j = 0; j < norm->n; j++) {
                    double v =
                        (double)dy[i * norm->n + j] * norm_ref(&one, moved, j);

                    change += side * v;
                    size += fabs(v);
                }
            }
            near &= fabs((double)dx[i * norm->n + k] - change / (2 * h)) <=
                    1e-4 * size + 1e-4;
        }
    return near;
}

static void
test_backward(const struct norm *norm, const char *name, struct par *par)
{
    static float dy[ROWS * MAX_N], dx[ROWS * MAX_N], sum[ROWS * MAX_N];
    static float lost[ROWS * MAX_N];
    size_t n = norm->n;
    bool added = true;

    for (size_t i = 0; i < ROWS * n; i++)
        dy[i] = dx[i] = rnd();
    memcpy(lost, x, sizeof(x));
    norm_backward(par, norm, NULL, dx, lost, ROWS);
    tap_ok(back_near(norm, dx, dy), "norm_backward: %s of %zu", name, n);
    for (size_t i = 0; i < ROWS * n; i++)
        sum[i] = (float)i;
    memcpy(lost, x, sizeof(x));
    norm_backward(NULL, norm, sum, dy, lost, ROWS);
    for (size_t i = 0; i < ROWS * n; i++)
        added &= sum[i] == (float)i + dx[i];
    tap_ok(added, "norm_backward: %s of %zu, added to others", name, n);
}

/* What a file says, and what of it is multiplied by. */
static void
test_bind(void)
{
    struct norm_kind kind = { NORM_LAYER, .has_bias = true };
    float w[] = { 0.5f, -1, 0x1p-24f, 2 }, b[] = { 1, 2, 3 };
    struct norm norm;

    norm_bind(&norm, &kind, w, b, 1, 3, 1e-5f);
    tap_ok(norm.form == NORM_LAYER && norm.weight == w && w[0] == 0.5f &&
               norm.bias == b && norm.n == 3 && norm.eps == 1e-5f,
           "norm_bind: a weight as it is");
    kind.plus_one = true;
    norm_bind(&norm, &kind, w, NULL, 1, 3, 1e-5f);
    tap_ok(w[0] == 1.5f && w[1] == 0 && w[2] == 1 && !norm.bias,
           "norm_bind: 1 + w");
    norm_bind(&norm, &kind, w, NULL, 2, 2, 1e-5f);
    tap_ok(w[0] == 2.5f && w[3] == 3 && norm.n == 2 && norm.n_sets == 2,
           "norm_bind: 1 + w of two heads");
}

int
main(void)
{
    static const struct {
        const char *name;
        struct norm norm;
    } forms[] = {
        { "RMS", { NORM_RMS, weight, NULL, 0, 0, 0 } },
        { "RMS + bias", { NORM_RMS, weight, bias, 0, 0, 0 } },
        { "layer", { NORM_LAYER, weight, NULL, 0, 0, 0 } },
        { "layer + bias", { NORM_LAYER, weight, bias, 0, 0, 0 } },
        { "layer of each of 3 heads",
          { NORM_LAYER, weight, bias, 0, 0, SETS } },
        { "none", { NORM_NONE, NULL, NULL, 0, 0, 0 } },
    };
    static const struct {
        size_t n;
        float eps;
    } sizes[] = { { 1, 1e-6f }, { 8, 1e-5f }, { MAX_N, 0 } };
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err))
        return 1;
    for (size_t i = 0; i < ROWS * MAX_N; i++)
        x[i] = 3 * rnd();
    for (size_t i = 0; i < SETS * MAX_N; i++)
        weight[i] = 1 + rnd();
    for (size_t i = 0; i < SETS * MAX_N; i++)
        bias[i] = rnd();
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
            struct norm norm = forms[i].norm;

            norm.n = sizes[k].n;
            norm.eps = sizes[k].eps;
            test(&norm, forms[i].name, par);
            norm.eps = 0.1f;
            test_backward(&norm, forms[i].name, par);
        }
    test_bind();
    memset(x, 0, sizeof(x));
    test(&(struct norm){ NORM_RMS, weight, NULL, 64, 1e-6f, 1 }, "zeros", par);
    for (size_t i = 0; i < ROWS * MAX_N; i++)
        x[i] = 1000;
    test(&(struct norm){ NORM_LAYER, weight, bias, 64, 1e-6f, 1 }, "a constant",
         par);
    par_close(par);
    return tap_done();
}
