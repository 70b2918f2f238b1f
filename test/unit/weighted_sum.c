/* SPDX-License-Identifier: ISC */
/* weighted_sum() against sums in f64, on every instruction set that runs here.
 */
#include "core/kernel/sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/edge.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { ROWS = 64, COLS = 67, N = 14, ROOM = 1 << 16 };

static const enum dtype dtypes[] = { DT_BF16, DT_F16, DT_F32 };

static float p[N * (ROWS + 3)], y[N * (COLS + 5)], before[N * (COLS + 5)];
static double v[ROWS * COLS];

/* Is output (i, c) near the sum in f64, and the same bits by itself? */
static bool
check_sum(const struct weighted_sum *m, const struct sums_ops *ops, size_t i,
          size_t c)
{
    double sum = m->add ? (double)before[i * m->ldy + c] : 0, abs = fabs(sum);
    size_t size = m->w_dtype == DT_F32 ? 4 : 2;
    float alone = before[i * m->ldy + c];
    struct weighted_sum one = *m;

    for (size_t r = 0; r < m->rows; r++) {
        double term = (double)m->p[i * m->ldp + r] * v[r * m->ldw + c];

        sum += term;
        abs += fabs(term);
    }
    one.y = &alone;
    one.w = (const char *)m->w + c * size;
    one.p = m->p + i * m->ldp;
    one.cols = one.n = 1;
    ops->weighted(&one);
    return fabs((double)y[i * m->ldy + c] - sum) <= abs * 0x1p-18 &&
           memcmp(&alone, &y[i * m->ldy + c], sizeof(alone)) == 0;
}

static bool
check_shape(char *end, const struct sums_ops *ops, struct weighted_sum m)
{
    bool good = true;

    m.ldw = m.cols;
    m.ldp = m.rows + 3;
    m.ldy = m.cols + 5;
    m.w = edge_weights(end, m.w_dtype, m.rows * m.cols, v);
    m.p = p;
    m.y = y;
    m.next = m.rows % 2 ? end : NULL; /* is never read */
    for (size_t i = 0; i < sizeof(p) / sizeof(*p); i++)
        p[i] = rnd();
    for (size_t i = 0; i < sizeof(y) / sizeof(*y); i++)
        before[i] = y[i] = rnd();
    ops->weighted(&m);
    for (size_t i = 0; i < sizeof(y) / sizeof(*y); i++) {
        size_t row = i / m.ldy, c = i % m.ldy;

        if (row < m.n && c < m.cols)
            good &= check_sum(&m, ops, row, c);
        else
            good &= memcmp(&y[i], &before[i], sizeof(*y)) == 0;
    }
    return good;
}

static void
test_isa(char *end, enum isa isa, enum dtype dtype)
{
    const struct sums_ops *ops = sums_ops_of(isa);
    struct weighted_sum bad = { 0 }, m = { .w_dtype = dtype };
    size_t n_bad = 0;

    for (m.cols = 0; m.cols <= COLS; m.cols++)
        for (m.n = 0; m.n <= N; m.n += m.cols == COLS ? 1 : 13)
            for (m.rows = 0; m.rows <= ROWS; m.rows += 1 + m.rows * 2) {
                m.add = (m.cols + m.rows) % 2;
                if (check_shape(end, ops, m))
                    continue;
                bad = m;
                n_bad++;
            }
    tap_ok(
        n_bad == 0,
        "weighted_sum %s: %s: within 2^-18 of f64, each alone has its bits, nothing "
        "else is touched (%zu x %zu, n %zu)",
        isa_name(isa), dtype_table[dtype].name, bad.rows, bad.cols, bad.n);
}

int
main(void)
{
    char *end = edge_make(ROOM);

    FOR_EACH_TABLE(sums, isa)
    {
        for (size_t i = 0; i < 3; i++)
            test_isa(end, isa, dtypes[i]);
    }
    return tap_done();
}
