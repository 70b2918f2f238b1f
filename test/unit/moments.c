/* SPDX-License-Identifier: ISC */
/*
 * core/kernel/moments against sums in long double: tails of vectors, columns of
 * rows that lie apart, NaN and infinities, sets merged in parts.
 */
#include "core/kernel/moments.h"

#include <stdlib.h>

#include "core/rng.h"
#include "test/unit/tap.h"

enum { ROWS = 64, COLS = 131, LD = 140, MAX_N = 300 };

/* In 1000 .. 1001, where squares less the mean's would lose all; 'odd': some
 * are NaN or infinite. */
static float
number(size_t i, bool odd)
{
    if (odd && i % 7 == 3)
        return i % 2 ? NAN : -INFINITY;
    return i % 11 ? 1000 + rng_f32(1, 2, i) : 1000.5f;
}

static bool
near(double got, double want, double scale)
{
    return isnan(want) ? isnan(got) : fabs(got - want) <= 1e-14 * scale;
}

/* The moments of v[0], v[step], ... */
static bool
right(const struct moments *m, const float *v, size_t step, size_t n)
{
    double low = (double)INFINITY, high = -(double)INFINITY;
    long double sum = 0, squares = 0, mean;
    uint64_t count = 0, n_nan = 0;

    for (size_t i = 0; i < n; i++) {
        double x = (double)v[i * step];

        n_nan += isnan(x) ? 1 : 0;
        if (!isfinite(x))
            continue;
        count++;
        sum += x;
        low = fmin(low, x);
        high = fmax(high, x);
    }
    mean = sum / count; /* NaN for none */
    for (size_t i = 0; i < n; i++) {
        long double d = v[i * step] - mean;

        if (isfinite(d))
            squares += d * d;
    }
    return m->n == count && m->n_nan == n_nan && m->min == low &&
           m->max == high && near(moments_mean(m), (double)mean, 1000) &&
           near(moments_std(m), sqrt((double)(squares / count)), 10);
}

static void
test_of(bool odd)
{
    static float v[MAX_N];
    static double x[MAX_N];
    bool good = true, zeros = true, merged = true;

    for (size_t i = 0; i < MAX_N; i++)
        x[i] = (double)(v[i] = number(i, odd));
    for (size_t n = 0; n <= MAX_N; n++) {
        struct moments m, all = MOMENTS_NONE;

        zeros &= moments_of(&m, x, n) == 0;
        good &= right(&m, v, 1, n);
        for (size_t i = 0, k; i < n; i += k) {
            k = n - i < 37 ? n - i : 37;
            moments_of(&m, x + i, k);
            moments_merge(&all, &m);
        }
        merged &= right(&all, v, 1, n);
    }
    tap_ok(good, "moments_of: 0..%d numbers%s", MAX_N, odd ? ", NaN" : "");
    tap_ok(merged, "moments_merge: the same in parts");
    for (size_t n = 1; n <= MAX_N; n++) {
        struct moments m;

        x[n - 1] = n % 2 ? -0.0 : 0;
        zeros &= moments_of(&m, x, MAX_N) == n;
    }
    tap_ok(zeros, "moments_of: counts zeros of both signs");
}

static void
test_columns(bool odd)
{
    static float x[ROWS * LD];
    static struct moments m[COLS + 1];
    bool good = true;

    for (size_t i = 0; i < ROWS * LD; i++)
        x[i] = number(i, odd && i % LD != 5);
    for (size_t rows = 0; rows <= ROWS; rows++)
        for (size_t cols = 1; cols <= COLS; cols += 13) {
            m[cols].n = 77;
            moments_columns(m, x, LD, rows, cols, !odd);
            for (size_t i = 0; i < cols; i++)
                good &= right(&m[i], x + i, LD, rows);
            good &= m[cols].n == 77;
        }
    tap_ok(good, "moments_columns: 0..%d rows, 1..%d columns%s", ROWS, COLS,
           odd ? ", NaN" : "");
}

/* sqrt(1 + 4 + ... + n^2), by hand: n (n + 1) (2 n + 1) / 6. */
static void
test_distance(void)
{
    float x[40];
    double from[40];
    bool good = true;

    for (size_t n = 0; n < 40; n++) {
        double want = sqrt((double)(n * (n + 1) * (2 * n + 1) / 6));

        for (size_t i = 0; i < n; i++) {
            x[i] = (float)(i + 1);
            from[i] = 2.0 * (double)(i + 1);
        }
        good &= moments_distance(x, NULL, n) == want &&
                moments_distance(x, from, n) == want;
    }
    tap_ok(good, "moments_distance: 0..39 numbers, from 0 and from others");
}

int
main(void)
{
    for (int odd = 0; odd < 2; odd++) {
        test_of(odd);
        test_columns(odd);
    }
    test_distance();
    return tap_done();
}
