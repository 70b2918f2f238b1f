#include "cmd/saev-read/columns.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define BLOCK_ROWS    COLUMNS_BLOCK
#define BLOCK_COLUMNS ((size_t)256)      /* a block stays in the inner cache */
#define GRAIN_NBYTES  ((size_t)64 << 10) /* of rows, for a thread */

/*
 * Four floats, which become two pairs of doubles: what every 64-bit CPU does
 * at once.  In this shape compilers see one instruction in each function.
 */
typedef float quad __attribute__((vector_size(16), aligned(4)));
typedef double pair __attribute__((vector_size(16), aligned(8)));

#define QUAD(p)         (*(const quad *)(const void *)(p))
#define PAIR(p)         (*(const pair *)(const void *)(p))
#define PUT(type, p, v) (*(type *)(void *)(p) = (v)) /* unaligned */

static inline pair
wide(const float *p)
{
    return (pair){ (double)p[0], (double)p[1] };
}

static inline quad
least(quad a, quad b)
{
    quad r;

    for (int k = 0; k < 4; k++)
        r[k] = a[k] < b[k] ? a[k] : b[k];
    return r;
}

static inline quad
largest(quad a, quad b)
{
    quad r;

    for (int k = 0; k < 4; k++)
        r[k] = a[k] > b[k] ? a[k] : b[k];
    return r;
}

static int
moments_open(struct moments *m, size_t n, struct err *err)
{
    m->mean = mem_try(n, sizeof(*m->mean), "moments", err);
    m->m2 = mem_try(n, sizeof(*m->m2), "moments", err);
    m->min = mem_try(n, sizeof(*m->min), "moments", err);
    m->max = mem_try(n, sizeof(*m->max), "moments", err);
    m->n_nan = mem_try(n, sizeof(*m->n_nan), "moments", err);
    m->n_inf = mem_try(n, sizeof(*m->n_inf), "moments", err);
    return m->mean && m->m2 && m->min && m->max && m->n_nan && m->n_inf ? 0
                                                                        : -1;
}

static void
moments_close(struct moments *m)
{
    free(m->mean);
    free(m->m2);
    free(m->min);
    free(m->max);
    free(m->n_nan);
    free(m->n_inf);
}

/* The moments from 'at' on. */
static struct moments
moments_at(const struct moments *m, size_t at)
{
    return (struct moments){ m->mean + at, m->m2 + at,    m->min + at,
                             m->max + at,  m->n_nan + at, m->n_inf + at };
}

static void
moments_clear(struct moments *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        m->mean[i] = m->m2[i] = 0;
        m->min[i] = INFINITY;
        m->max[i] = -INFINITY;
        m->n_nan[i] = m->n_inf[i] = 0;
    }
}

int
columns_open(struct columns *c, size_t d, size_t span_rows, struct err *err)
{
    size_t n_blocks = (span_rows + BLOCK_ROWS - 1) / BLOCK_ROWS;

    *c = (struct columns){ .d = d, .span_rows = span_rows };
    c->norms = mem_try(span_rows, sizeof(*c->norms), "norms", err);
    if (!c->norms || moments_open(&c->all, d, err) < 0 ||
        moments_open(&c->parts, n_blocks * d, err) < 0) {
        columns_close(c);
        return -1;
    }
    moments_clear(&c->all, d);
    return 0;
}

void
columns_close(struct columns *c)
{
    moments_close(&c->all);
    moments_close(&c->parts);
    free(c->norms);
    *c = (struct columns){ 0 };
}

/* Sums and ranges of n_rows rows, 'd' apart, all of them finite. */
static void
sum_rows(const struct moments *m, const float *x, size_t d, size_t n_rows,
         size_t n_columns)
{
    size_t r = 0;

    for (; r + 4 <= n_rows; r += 4) {
        const float *a = x + r * d, *b = a + d, *c = b + d, *e = c + d;
        size_t i = 0;

        for (; i + 4 <= n_columns; i += 4) {
            quad low = least(least(QUAD(a + i), QUAD(b + i)),
                             least(QUAD(c + i), QUAD(e + i)));
            quad high = largest(largest(QUAD(a + i), QUAD(b + i)),
                                largest(QUAD(c + i), QUAD(e + i)));

            PUT(quad, m->min + i, least(low, QUAD(m->min + i)));
            PUT(quad, m->max + i, largest(high, QUAD(m->max + i)));
            for (size_t k = i; k < i + 4; k += 2)
                PUT(pair, m->mean + k,
                    PAIR(m->mean + k) + ((wide(a + k) + wide(b + k)) +
                                         (wide(c + k) + wide(e + k))));
        }
        for (; i < n_columns; i++) {
            m->min[i] =
                fminf(fminf(fminf(a[i], b[i]), fminf(c[i], e[i])), m->min[i]);
            m->max[i] =
                fmaxf(fmaxf(fmaxf(a[i], b[i]), fmaxf(c[i], e[i])), m->max[i]);
            m->mean[i] +=
                ((double)a[i] + (double)b[i]) + ((double)c[i] + (double)e[i]);
        }
    }
    for (; r < n_rows; r++)
        for (size_t i = 0; i < n_columns; i++) {
            float v = x[r * d + i];

            m->min[i] = v < m->min[i] ? v : m->min[i];
            m->max[i] = v > m->max[i] ? v : m->max[i];
            m->mean[i] += (double)v;
        }
}

/* Adds squared distances from the means to m2. */
static void
square_rows(const struct moments *m, const float *x, size_t d, size_t n_rows,
            size_t n_columns)
{
    size_t r = 0, i;

    for (; r + 4 <= n_rows; r += 4) {
        const float *a = x + r * d, *b = a + d, *c = b + d, *e = c + d;

        for (i = 0; i + 2 <= n_columns; i += 2) {
            pair mean = PAIR(m->mean + i);
            pair p = wide(a + i) - mean, q = wide(b + i) - mean;
            pair s = wide(c + i) - mean, t = wide(e + i) - mean;

            PUT(pair, m->m2 + i,
                PAIR(m->m2 + i) + ((p * p + q * q) + (s * s + t * t)));
        }
        if (i < n_columns) { /* the last of an odd number */
            double p = (double)a[i] - m->mean[i], q = (double)b[i] - m->mean[i];
            double s = (double)c[i] - m->mean[i], t = (double)e[i] - m->mean[i];

            m->m2[i] += (p * p + q * q) + (s * s + t * t);
        }
    }
    for (; r < n_rows; r++)
        for (i = 0; i < n_columns; i++) {
            double p = (double)x[r * d + i] - m->mean[i];

            m->m2[i] += p * p;
        }
}

/* The same of rows in which not all is finite. */
static void
sum_finite(const struct moments *m, const float *x, size_t d, size_t n_rows,
           size_t n_columns)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n_columns; i++) {
            float v = x[r * d + i];

            if (isfinite(v)) {
                m->min[i] = v < m->min[i] ? v : m->min[i];
                m->max[i] = v > m->max[i] ? v : m->max[i];
                m->mean[i] += (double)v;
            } else if (isnan(v)) {
                m->n_nan[i]++;
            } else {
                m->n_inf[i]++;
            }
        }
}

static void
square_finite(const struct moments *m, const float *x, size_t d, size_t n_rows,
              size_t n_columns)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n_columns; i++) {
            double p = (double)x[r * d + i] - m->mean[i];

            if (isfinite(p))
                m->m2[i] += p * p;
        }
}

static bool
all_finite(const double *norms, size_t n)
{
    double bad = 0;

    for (size_t i = 0; i < n; i++)
        bad += norms[i] - norms[i];
    return bad == 0;
}

/* n rows x n_columns numbers: 'm' has room for the columns. */
static void
block_moments(struct moments *m, const float *x, size_t d, size_t n,
              size_t n_columns, bool finite)
{
    moments_clear(m, n_columns);
    if (finite)
        sum_rows(m, x, d, n, n_columns);
    else
        sum_finite(m, x, d, n, n_columns);
    for (size_t i = 0; i < n_columns; i++) {
        uint64_t count = n - m->n_nan[i] - m->n_inf[i];

        m->mean[i] = count ? m->mean[i] / (double)count : 0;
    }
    if (finite)
        square_rows(m, x, d, n, n_columns);
    else
        square_finite(m, x, d, n, n_columns);
}

/* Four sums, so that none waits for the one before it. */
static double
distance(const float *x, const double *mean, size_t d)
{
    pair a = { 0 }, b = { 0 }, c = { 0 }, e = { 0 };
    double rest = 0;
    size_t i = 0;

    for (; i + 8 <= d; i += 8) {
        pair p = wide(x + i) - PAIR(mean + i);
        pair q = wide(x + i + 2) - PAIR(mean + i + 2);
        pair r = wide(x + i + 4) - PAIR(mean + i + 4);
        pair s = wide(x + i + 6) - PAIR(mean + i + 6);

        a += p * p;
        b += q * q;
        c += r * r;
        e += s * s;
    }
    for (; i < d; i++)
        rest += ((double)x[i] - mean[i]) * ((double)x[i] - mean[i]);
    a = (a + b) + (c + e);
    return sqrt(a[0] + a[1] + rest);
}

static double
norm(const float *x, size_t d)
{
    pair a = { 0 }, b = { 0 }, c = { 0 }, e = { 0 };
    double rest = 0;
    size_t i = 0;

    for (; i + 8 <= d; i += 8) {
        pair p = wide(x + i), q = wide(x + i + 2);
        pair r = wide(x + i + 4), s = wide(x + i + 6);

        a += p * p;
        b += q * q;
        c += r * r;
        e += s * s;
    }
    for (; i < d; i++)
        rest += (double)x[i] * (double)x[i];
    a = (a + b) + (c + e);
    return sqrt(a[0] + a[1] + rest);
}

/* What the threads share. */
struct task {
    struct columns *c;
    const float *x;
    size_t n, n_across; /* rows; blocks side by side */
    const double *mean;
};

static void
measure_some(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    size_t d = t->c->d;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const float *x = t->x + r * d;
        double v = t->mean ? distance(x, t->mean, d) : norm(x, d);

        t->c->norms[r] = isfinite(v) ? v : (double)NAN;
    }
}

static void
block_some(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    size_t d = t->c->d;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t block = i / t->n_across, row = block * BLOCK_ROWS;
        size_t column = i % t->n_across * BLOCK_COLUMNS;
        size_t n = t->n - row < BLOCK_ROWS ? t->n - row : BLOCK_ROWS;
        size_t n_columns =
            d - column < BLOCK_COLUMNS ? d - column : BLOCK_COLUMNS;
        struct moments m = moments_at(&t->c->parts, block * d + column);

        block_moments(&m, t->x + row * d + column, d, n, n_columns,
                      all_finite(t->c->norms + row, n));
    }
}

/* Chan, Golub and LeVeque: the moments of two sets from those of each.  Both
 * counts are of rows, whatever is in them. */
static void
merge(const struct moments *a, size_t i, const struct moments *b, size_t k,
      uint64_t a_rows, uint64_t b_rows)
{
    uint64_t n_a = a_rows - a->n_nan[i] - a->n_inf[i];
    uint64_t n_b = b_rows - b->n_nan[k] - b->n_inf[k];
    double n = (double)(n_a + n_b), by = b->mean[k] - a->mean[i];

    a->n_nan[i] += b->n_nan[k];
    a->n_inf[i] += b->n_inf[k];
    if (n_b == 0)
        return;
    a->min[i] = b->min[k] < a->min[i] ? b->min[k] : a->min[i];
    a->max[i] = b->max[k] > a->max[i] ? b->max[k] : a->max[i];
    a->mean[i] += by * ((double)n_b / n);
    a->m2[i] += b->m2[k] + by * by * ((double)n_a * ((double)n_b / n));
}

static void
merge_some(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    struct columns *c = t->c;

    (void)thread;
    for (size_t row = 0; row < t->n; row += BLOCK_ROWS) {
        size_t n = t->n - row < BLOCK_ROWS ? t->n - row : BLOCK_ROWS;
        size_t part = row / BLOCK_ROWS * c->d;

        for (size_t i = begin; i < end; i++)
            merge(&c->all, i, &c->parts, part + i, c->n_rows + row, n);
    }
}

static void
measure(struct task *t, struct par *par)
{
    size_t grain = GRAIN_NBYTES / (t->c->d * sizeof(float)) + 1;

    par_for(par, t->n, grain, measure_some, t);
}

void
columns_add(struct columns *c, const float *x, size_t n, struct par *par)
{
    struct task t = { .c = c, .x = x, .n = n };
    size_t n_blocks = (n + BLOCK_ROWS - 1) / BLOCK_ROWS;

    t.n_across = (c->d + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    measure(&t, par);
    par_for(par, n_blocks * t.n_across, 1, block_some, &t);
    par_for(par, c->d, BLOCK_COLUMNS, merge_some, &t);
    c->n_rows += n;
}

void
columns_distances(struct columns *c, const float *x, size_t n,
                  const double *mean, struct par *par)
{
    struct task t = { .c = c, .x = x, .n = n, .mean = mean };

    measure(&t, par);
}

uint64_t
columns_n(const struct columns *c, size_t i)
{
    return c->n_rows - c->all.n_nan[i] - c->all.n_inf[i];
}

/* Where all numbers are the same, whatever a sum of them was rounded to. */
double
columns_mean(const struct columns *c, size_t i)
{
    if (columns_n(c, i) == 0)
        return (double)NAN;
    if (c->all.min[i] == c->all.max[i])
        return (double)c->all.min[i] + 0; /* -0 as 0 */
    return c->all.mean[i];
}

double
columns_std(const struct columns *c, size_t i)
{
    uint64_t n = columns_n(c, i);

    if (n == 0)
        return (double)NAN;
    if (c->all.min[i] == c->all.max[i])
        return 0;
    return sqrt(c->all.m2[i] / (double)n);
}
