/* RMSNorm of rows against its formula in f64. */
#include "core/model/norm.h"

#include <math.h>
#include <string.h>

#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { ROWS = 13, MAX_N = 130 };

static float x[ROWS * MAX_N], y[ROWS * MAX_N], weight[MAX_N];

static double
expected(const float *row, size_t n, double eps, size_t i)
{
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += (double)row[k] * (double)row[k];
    return (double)row[i] / sqrt(sum / (double)n + eps) * (double)weight[i];
}

/* Row i of y is that of row from[i] of x, or i? */
static bool
near(const struct norm *norm, const size_t *from, size_t n_rows)
{
    bool near = true;

    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; k < norm->n; k++) {
            const float *row = x + (from ? from[i] : i) * norm->n;
            double want = expected(row, norm->n, (double)norm->eps, k);

            near &= fabs((double)y[i * norm->n + k] - want) <=
                    1e-6 * (fabs(want) + 1e-3);
        }
    return near;
}

static void
test(size_t n, float eps, struct par *par)
{
    static const size_t from[] = { 12, 0, 3, 3, 7 };
    const struct norm norm = { weight, n, eps };
    static float in_place[ROWS * MAX_N];

    norm_rows(par, &norm, y, x, NULL, ROWS);
    tap_ok(near(&norm, NULL, ROWS), "norm_rows: %zu numbers, eps %g", n,
           (double)eps);
    memcpy(in_place, x, sizeof(x));
    norm_rows(NULL, &norm, in_place, in_place, NULL, ROWS);
    tap_ok(!memcmp(in_place, y, ROWS * n * sizeof(*y)),
           "norm_rows: %zu numbers in place, by one thread: the same bits", n);
    norm_rows(par, &norm, y, x, from, 5);
    tap_ok(near(&norm, from, 5), "norm_rows: some rows of %zu, one twice", n);
}

/* Against differences of the f64 formula, which the gradient dy weighs. */
static bool
back_near(const struct norm *norm, const float *dx, const float *dy)
{
    static float moved[MAX_N];
    bool near = true;

    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < norm->n; k++) {
            double h = 0x1p-8, change = 0, size = 0;

            for (int side = -1; side <= 1; side += 2) {
                memcpy(moved, x + i * norm->n, norm->n * sizeof(*moved));
                moved[k] += (float)(side * h);
                for (size_t j = 0; j < norm->n; j++) {
                    double v = (double)dy[i * norm->n + j] *
                               expected(moved, norm->n, (double)norm->eps, j);

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
test_backward(size_t n, struct par *par)
{
    const struct norm norm = { weight, n, 0.1f };
    static float dy[ROWS * MAX_N], dx[ROWS * MAX_N], sum[ROWS * MAX_N];
    bool added = true;

    for (size_t i = 0; i < ROWS * n; i++)
        dy[i] = dx[i] = rnd();
    norm_backward(par, &norm, NULL, dx, x, ROWS);
    tap_ok(back_near(&norm, dx, dy), "norm_backward: %zu numbers", n);
    for (size_t i = 0; i < ROWS * n; i++)
        sum[i] = (float)i;
    norm_backward(NULL, &norm, sum, dy, x, ROWS);
    for (size_t i = 0; i < ROWS * n; i++)
        added &= sum[i] == (float)i + dx[i];
    tap_ok(added, "norm_backward: %zu numbers, added to others", n);
}

int
main(void)
{
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err))
        return 1;
    for (size_t i = 0; i < ROWS * MAX_N; i++)
        x[i] = 3 * rnd();
    for (size_t i = 0; i < MAX_N; i++)
        weight[i] = 1 + rnd();
    test(1, 1e-6f, par);
    test(8, 1e-5f, par);
    test(MAX_N, 0, par);
    test_backward(1, par);
    test_backward(8, par);
    test_backward(MAX_N, par);
    memset(x, 0, sizeof(x));
    test(64, 1e-6f, par);
    par_close(par);
    return tap_done();
}
