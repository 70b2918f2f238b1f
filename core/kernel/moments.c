/* SPDX-License-Identifier: ISC */
#include "core/kernel/moments.h"

/* Sums side by side: with MOMENTS_ROWS, 32 KiB of float64 in the first cache.
 */
#define WIDTH ((size_t)64)

/*
 * Pairs, which every 64-bit CPU computes at once.  In this shape compilers see
 * one instruction in each function.
 */
typedef double pair __attribute__((vector_size(16), aligned(8)));
typedef int64_t pair_mask __attribute__((vector_size(16), aligned(8)));

#define AT(p)     (*(const pair *)(const void *)(p))
#define PUT(p, v) (*(pair *)(void *)(p) = (v))

static inline pair
smaller_of(pair a, pair b)
{
    pair r;

    for (int k = 0; k < 2; k++)
        r[k] = a[k] < b[k] ? a[k] : b[k];
    return r;
}

static inline pair
larger_of(pair a, pair b)
{
    pair r;

    for (int k = 0; k < 2; k++)
        r[k] = a[k] > b[k] ? a[k] : b[k];
    return r;
}

/* Of columns side by side. */
struct sums {
    double mean[WIDTH]; /* the sum, at first */
    double m2[WIDTH], min[WIDTH], max[WIDTH];
    uint64_t n_nan[WIDTH], n_inf[WIDTH];
};

static void
clear(struct sums *s)
{
    *s = (struct sums){ 0 };
    for (size_t i = 0; i < WIDTH; i++) {
        s->min[i] = (double)INFINITY;
        s->max[i] = -(double)INFINITY;
    }
}

/* Sums and ranges of x [n_rows, n], rows ld apart.  n is even, or there are
 * under four rows; finite: all of x is. */
static void
sum_rows(struct sums *s, const double *x, size_t ld, size_t n_rows, size_t n,
         bool finite)
{
    size_t r = 0;

    for (; finite && r + 4 <= n_rows; r += 4)
        for (size_t i = 0; i < n; i += 2) {
            const double *p = x + r * ld + i;
            pair a = AT(p), b = AT(p + ld);
            pair c = AT(p + 2 * ld), d = AT(p + 3 * ld);
            pair low = smaller_of(smaller_of(a, b), smaller_of(c, d));
            pair high = larger_of(larger_of(a, b), larger_of(c, d));

            PUT(s->min + i, smaller_of(low, AT(s->min + i)));
            PUT(s->max + i, larger_of(high, AT(s->max + i)));
            PUT(s->mean + i, AT(s->mean + i) + ((a + b) + (c + d)));
        }
    for (; r < n_rows; r++)
        for (size_t i = 0; i < n; i++) {
            double v = x[r * ld + i];

            if (isfinite(v)) {
                s->min[i] = v < s->min[i] ? v : s->min[i];
                s->max[i] = v > s->max[i] ? v : s->max[i];
                s->mean[i] += v;
            } else {
                s->n_nan[i] += isnan(v) ? 1 : 0;
                s->n_inf[i] += isnan(v) ? 0 : 1;
            }
        }
}

/* Squared distances from the means. */
static void
square_rows(struct sums *s, const double *x, size_t ld, size_t n_rows, size_t n,
            bool finite)
{
    size_t r = 0;

    for (; finite && r + 4 <= n_rows; r += 4)
        for (size_t i = 0; i < n; i += 2) {
            const double *p = x + r * ld + i;
            pair mean = AT(s->mean + i);
            pair a = AT(p) - mean, b = AT(p + ld) - mean;
            pair c = AT(p + 2 * ld) - mean, d = AT(p + 3 * ld) - mean;

            PUT(s->m2 + i, AT(s->m2 + i) + ((a * a + b * b) + (c * c + d * d)));
        }
    for (; r < n_rows; r++)
        for (size_t i = 0; i < n; i++) {
            double d = x[r * ld + i] - s->mean[i];

            s->m2[i] += isfinite(x[r * ld + i]) ? d * d : 0;
        }
}

static inline pair
widened(const float *p)
{
    return (pair){ (double)p[0], (double)p[1] };
}

/* n <= WIDTH columns, widened once for both passes. */
static void
stripe(struct moments *m, const float *x, size_t ld, size_t n_rows, size_t n,
       bool finite)
{
    double block[MOMENTS_ROWS * WIDTH];
    size_t even = n + n % 2;
    struct sums s;

    if (n_rows == 0) { /* gcc for ARM warns of a block that nobody filled */
        for (size_t i = 0; i < n; i++)
            m[i] = MOMENTS_NONE;
        return;
    }
    clear(&s);
    for (size_t r = 0; r < n_rows; r++, x += ld) {
        double *to = block + r * WIDTH;

        for (size_t i = 0; i + 2 <= n; i += 2)
            PUT(to + i, widened(x + i));
        if (n % 2)
            PUT(to + n - 1, ((pair){ (double)x[n - 1], 0 }));
    }
    sum_rows(&s, block, WIDTH, n_rows, even, finite);
    for (size_t i = 0; i < even; i++) {
        uint64_t count = n_rows - s.n_nan[i] - s.n_inf[i];

        s.mean[i] = count ? s.mean[i] / (double)count : 0;
    }
    square_rows(&s, block, WIDTH, n_rows, even, finite);
    for (size_t i = 0; i < n; i++)
        m[i] = (struct moments){ .n = n_rows - s.n_nan[i] - s.n_inf[i],
                                 .n_nan = s.n_nan[i],
                                 .min = s.min[i],
                                 .max = s.max[i],
                                 .mean = s.mean[i],
                                 .m2 = s.m2[i] };
}

void
moments_columns(struct moments *m, const float *x, size_t ld, size_t n_rows,
                size_t n_columns, bool finite)
{
    for (size_t i = 0, n; i < n_columns; i += n) {
        n = n_columns - i < WIDTH ? n_columns - i : WIDTH;
        stripe(m + i, x + i, ld, n_rows, n, finite);
    }
}

/* How many of n numbers are 0; *finite: none is NaN or infinite, whose
 * difference from itself is NaN. */
static uint64_t
count_zeros(const double *x, size_t n, bool *finite)
{
    pair none = { 0 }, nan = { 0 };
    pair_mask zeros = { 0 };
    size_t i = 0;

    for (; i + 2 <= n; i += 2) {
        nan += AT(x + i) - AT(x + i);
        zeros -= AT(x + i) == none;
    }
    if (i < n) {
        nan[0] += x[i] - x[i];
        zeros[0] += x[i] == 0;
    }
    *finite = nan[0] + nan[1] == 0;
    return (uint64_t)(zeros[0] + zeros[1]);
}

/* Halves to halves. */
static double
total(double *v)
{
    for (size_t n = WIDTH / 2; n > 0; n /= 2)
        for (size_t i = 0; i < n; i++)
            v[i] += v[i + n];
    return v[0];
}

uint64_t
moments_of(struct moments *m, const double *x, size_t n)
{
    size_t rest = n % WIDTH, body = n - rest;
    bool finite;
    uint64_t n_zero = count_zeros(x, n, &finite);
    struct sums s;

    clear(&s);
    sum_rows(&s, x, WIDTH, n / WIDTH, WIDTH, finite);
    sum_rows(&s, x + body, WIDTH, 1, rest, finite);
    *m = MOMENTS_NONE;
    m->n = n;
    for (size_t i = 0; i < WIDTH; i++) {
        m->min = s.min[i] < m->min ? s.min[i] : m->min;
        m->max = s.max[i] > m->max ? s.max[i] : m->max;
        m->n_nan += s.n_nan[i];
        m->n -= s.n_nan[i] + s.n_inf[i];
    }
    m->mean = m->n ? total(s.mean) / (double)m->n : 0;
    for (size_t i = 0; i < WIDTH; i++)
        s.mean[i] = m->mean;
    square_rows(&s, x, WIDTH, n / WIDTH, WIDTH, finite);
    square_rows(&s, x + body, WIDTH, 1, rest, finite);
    m->m2 = total(s.m2);
    return n_zero;
}

/* Chan, Golub and LeVeque: the moments of two sets from those of each. */
void
moments_merge(struct moments *a, const struct moments *b)
{
    double n = (double)(a->n + b->n), d = b->mean - a->mean;

    a->n_nan += b->n_nan;
    if (b->n == 0)
        return;
    if (a->n == 0) { /* nothing to merge: d * d could be infinite */
        a->mean = b->mean;
        d = 0;
    }
    a->min = b->min < a->min ? b->min : a->min;
    a->max = b->max > a->max ? b->max : a->max;
    a->mean += d * ((double)b->n / n);
    a->m2 += b->m2 + d * d * ((double)a->n * ((double)b->n / n));
    a->n += b->n;
}

double
moments_mean(const struct moments *m)
{
    if (m->n == 0)
        return (double)NAN;
    return m->min == m->max ? m->min + 0 /* -0 as 0 */ : m->mean;
}

double
moments_std(const struct moments *m)
{
    if (m->n == 0)
        return (double)NAN;
    return m->min == m->max ? 0 : sqrt(m->m2 / (double)m->n);
}

/* Four sums, so that none waits for the one before it. */
static inline __attribute__((always_inline)) double
distance(const float *x, const double *from, size_t n)
{
    pair a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    double rest = 0;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        pair p = widened(x + i), q = widened(x + i + 2);
        pair r = widened(x + i + 4), s = widened(x + i + 6);

        if (from) {
            p -= AT(from + i);
            q -= AT(from + i + 2);
            r -= AT(from + i + 4);
            s -= AT(from + i + 6);
        }
        a += p * p;
        b += q * q;
        c += r * r;
        d += s * s;
    }
    for (; i < n; i++) {
        double v = (double)x[i] - (from ? from[i] : 0);

        rest += v * v;
    }
    a = (a + b) + (c + d);
    return sqrt(a[0] + a[1] + rest);
}

double
moments_distance(const float *x, const double *from, size_t n)
{
    return from ? distance(x, from, n) : distance(x, NULL, n);
}
