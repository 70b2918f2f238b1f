/* Which experts a token gets, and their weights, against f64 sums. */
#include "core/model/router.h"

#include <math.h>
#include <string.h>

#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { ROWS = 21, MAX_N = 70 };

static float logits[ROWS * MAX_N], p[ROWS * MAX_N];
static uint32_t chosen[ROWS * MAX_N];

/* How many experts come before i: larger logits, or equal ones before it. */
static size_t
rank(const float *row, size_t n, size_t i)
{
    size_t rank = 0;

    for (size_t j = 0; j < n; j++)
        rank += row[j] > row[i] || (row[j] == row[i] && j < i);
    return rank;
}

static bool
check_row(const float *row, const float *got, const uint32_t *ids, size_t n,
          size_t k, bool normalize)
{
    double total = 0, of_chosen = 0;
    bool good = true;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        double e = exp((double)row[i]);

        total += e;
        of_chosen += rank(row, n, i) < k ? e : 0;
    }
    for (size_t i = 0; i < n; i++) {
        bool is_chosen = rank(row, n, i) < k;
        double want =
            exp((double)row[i]) / (is_chosen && normalize ? of_chosen : total);

        good &= fabs((double)got[i] - want) < 1e-6;
        if (is_chosen)
            good &= ids[at++] == i;
    }
    return good;
}

static void
test(size_t n, size_t k, bool normalize, struct par *par)
{
    bool good = true;

    for (size_t i = 0; i < ROWS * n; i++)
        p[i] = logits[i] = i % 5 ? 4 * rnd() : 1; /* some are equal */
    router_select(par, p, chosen, n, k, normalize, ROWS);
    for (size_t i = 0; i < ROWS; i++)
        good &= check_row(logits + i * n, p + i * n, chosen + i * k, n, k,
                          normalize);
    tap_ok(good, "router_select: %zu of %zu%s: ids ascending, weights of f64",
           k, n, normalize ? ", normalized" : "");
}

int
main(void)
{
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err))
        return 1;
    for (int normalize = 0; normalize < 2; normalize++) {
        test(1, 1, normalize, par);
        test(8, 2, normalize, par);
        test(7, 7, normalize, par);
        test(MAX_N, 9, normalize, par);
    }
    par_close(par);
    return tap_done();
}
