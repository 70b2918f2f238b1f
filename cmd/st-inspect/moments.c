/*
 * Types of 32 and 64 bits: chunks are summed on their own and merged in their
 * order, so that no result depends on how many threads there are.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/inspect.h"
#include "core/le.h"
#include "core/mem.h"

#define LANES       4    /* numbers at once */
#define SPAN_CHUNKS 1024 /* between two merges */

/* Of one chunk; m2 is the sum of squared distances from the mean. */
struct moments {
    uint64_t n, n_nan, n_inf, n_zero;
    double min, max, mean, m2;
};

struct summing {
    const struct view *v;
    struct scratch *s;
    size_t first;            /* chunk of the tensor */
    struct moments *moments; /* [SPAN_CHUNKS]; NULL: fill histograms */
    const struct stats *st;
    size_t n_bins;
};

bool
widens(enum dtype dtype)
{
    return dtype_table[dtype].bits >= 8 &&
           dtype_table[dtype].kind != DK_COMPLEX;
}

void
widen(double *to, const void *from, enum dtype dtype, size_t n)
{
    if (dtype == DT_F32)
        for (size_t i = 0; i < n; i++)
            to[i] = (double)le_f32((const uint8_t *)from + 4 * i);
    else if (dtype == DT_F64)
        for (size_t i = 0; i < n; i++)
            to[i] = le_f64((const uint8_t *)from + 8 * i);
    else if (dtype == DT_BF16)
        for (size_t i = 0; i < n; i++)
            to[i] = bf16_to_f32(le16((const uint8_t *)from + 2 * i));
    else
        for (size_t i = 0; i < n; i++)
            to[i] = dtype_get(dtype, from, i);
}

/*
 * Pairs, which every 64-bit CPU adds at once, and several of them, so that no
 * sum waits for the one before it.  A comparison gives all bits or none, so
 * that '&' takes a number or makes it 0.
 */
typedef double pair __attribute__((vector_size(16), aligned(8)));
typedef int64_t pair_mask __attribute__((vector_size(16), aligned(8)));

#define PAIR_AT(x, i) (*(const pair *)(const void *)((x) + (i)))
#define SELECT(m, a, b) \
    ((pair)(((pair_mask)(a) & (m)) | ((pair_mask)(b) & ~(m))))

/* NaN if one of the n numbers is NaN or infinite, else 0. */
static double
not_finite(const double *x, size_t n)
{
    pair a = { 0 }, b = { 0 };

    size_t body = n - n % LANES;

    for (size_t i = 0; i < body; i += LANES) {
        a += PAIR_AT(x, i) - PAIR_AT(x, i);
        b += PAIR_AT(x, i + 2) - PAIR_AT(x, i + 2);
    }
    for (size_t i = body; i < n; i++)
        a[0] += x[i] - x[i];
    a += b;
    return a[0] + a[1];
}

/* Range and zeros of n > 0 finite numbers, n a multiple of LANES; the sum. */
static double
add_finite(struct moments *m, const double *x, size_t n)
{
    pair sum[2] = { { 0 } }, zero = { 0 };
    pair min[2] = { PAIR_AT(x, 0), PAIR_AT(x, 2) };
    pair max[2] = { min[0], min[1] };
    pair_mask n_zero[2] = { { 0 } };

    for (size_t i = 0; i < n; i += LANES)
        for (size_t k = 0; k < 2; k++) {
            const pair v = PAIR_AT(x, i + 2 * k);
            const pair_mask low = v<min[k], high = v> max[k];

            sum[k] += v;
            n_zero[k] -= v == zero;
            min[k] = SELECT(low, v, min[k]);
            max[k] = SELECT(high, v, max[k]);
        }
    sum[0] += sum[1];
    for (size_t k = 0; k < LANES; k++) {
        double low = min[k / 2][k % 2], high = max[k / 2][k % 2];

        m->min = low < m->min ? low : m->min;
        m->max = high > m->max ? high : m->max;
        m->n_zero += (uint64_t)n_zero[k / 2][k % 2];
    }
    return sum[0][0] + sum[0][1];
}

static double
squares(const double *x, size_t n, double mean)
{
    pair sum[2] = { { 0 } };

    for (size_t i = 0; i < n; i += LANES)
        for (size_t k = 0; k < 2; k++) {
            const pair d = PAIR_AT(x, i + 2 * k) - mean;

            sum[k] += d * d;
        }
    sum[0] += sum[1];
    return sum[0][0] + sum[0][1];
}
/* Moves the finite numbers together; counts the others. */
static size_t
keep_finite(struct moments *m, double *x, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        double v = x[i];

        m->n_nan += v != v;
        m->n_inf += fabs(v) == (double)INFINITY;
        x[kept] = v;
        kept += fabs(v) < (double)INFINITY;
    }
    return kept;
}

/* The numbers after the last whole LANES, one by one. */
static double
add_tail(struct moments *m, const double *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        m->min = x[i] < m->min ? x[i] : m->min;
        m->max = x[i] > m->max ? x[i] : m->max;
        m->n_zero += x[i] == 0;
        sum += x[i];
    }
    return sum;
}

static void
moments_of(struct moments *m, double *x, size_t n)
{
    size_t body, tail;

    *m = (struct moments){ .min = (double)INFINITY, .max = -(double)INFINITY };
    if (not_finite(x, n) != 0) /* NaN, that is */
        n = keep_finite(m, x, n);
    m->n = n;
    if (n == 0)
        return;
    tail = n % LANES;
    body = n - tail;
    if (body)
        m->mean = add_finite(m, x, body);
    m->mean = (m->mean + add_tail(m, x + body, tail)) / (double)n;
    m->m2 = squares(x, body, m->mean);
    for (size_t i = body; i < n; i++)
        m->m2 += (x[i] - m->mean) * (x[i] - m->mean);
}

/* Chan, Golub and LeVeque: the moments of two sets from those of each. */
static void
merge(struct moments *a, const struct moments *b)
{
    double n = (double)(a->n + b->n), d = b->mean - a->mean;

    a->n_nan += b->n_nan;
    a->n_inf += b->n_inf;
    a->n_zero += b->n_zero;
    if (b->n == 0)
        return;
    if (a->n == 0) { /* nothing to merge: d * d could be infinite */
        a->mean = b->mean;
        d = 0;
    }
    a->min = b->min < a->min ? b->min : a->min;
    a->max = b->max > a->max ? b->max : a->max;
    a->mean += d * (double)b->n / n;
    a->m2 += b->m2 + d * d * ((double)a->n * (double)b->n / n);
    a->n += b->n;
}

static void
count_bins(const struct summing *c, uint64_t *hist, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            hist[hist_bin(c->st, c->n_bins, x[i])]++;
}

static void
do_chunks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct summing *c = ctx;
    struct thread_scratch *t = &c->s->threads[thread];

    for (size_t i = begin; i < end && !t->err.status; i++) {
        uint64_t at = (c->first + i) * CHUNK;
        size_t n = c->v->n - at < CHUNK ? c->v->n - at : CHUNK;

        if (view_read(c->v, t->piece, at, n, &t->err) < 0)
            return;
        widen(t->wide, t->piece, c->v->dtype, n);
        if (c->moments)
            moments_of(&c->moments[i], t->wide, n);
        else
            count_bins(c, t->hist, t->wide, n);
    }
}

/* All chunks, a span at a time; 'all' gets the merged moments if wanted. */
static void
pass(struct summing *c, struct par *par, int thread, struct moments *all)
{
    size_t n_chunks = (c->v->n + CHUNK - 1) / CHUNK;

    for (c->first = 0; c->first < n_chunks; c->first += SPAN_CHUNKS) {
        size_t n = n_chunks - c->first < SPAN_CHUNKS ? n_chunks - c->first
                                                     : SPAN_CHUNKS;

        if (par)
            par_for(par, n, 1, do_chunks, c);
        else
            do_chunks(c, 0, n, thread);
        for (size_t i = 0; c->moments && i < n; i++)
            merge(all, &c->moments[i]);
    }
}

static void
histogram(struct stats *st, struct summing *c, struct par *par, int thread)
{
    c->moments = NULL;
    hist_range(st);
    pass(c, par, thread, NULL);
    for (int i = 0; i < c->s->n_threads; i++) {
        uint64_t *hist = c->s->threads[i].hist;

        if (!par && i != thread)
            continue;
        for (size_t k = 0; k < c->n_bins; k++)
            st->hist[k] += hist[k];
        memset(hist, 0, c->n_bins * sizeof(*hist));
    }
}

void
moments_stats(struct stats *st, const struct view *v, const struct cmd *cmd,
              struct scratch *s, struct par *par, int thread)
{
    struct moments all = { .min = (double)INFINITY, .max = -(double)INFINITY };
    struct summing c = { .v = v, .s = s, .st = st };

    c.n_bins = (size_t)cmd->n_bins;
    c.moments = xcalloc(SPAN_CHUNKS, sizeof(*c.moments));
    pass(&c, par, thread, &all);
    free(c.moments);
    st->n_nan = all.n_nan;
    st->n_inf = all.n_inf;
    st->n_zero = all.n_zero;
    st->n_finite = all.n;
    if (all.n == 0)
        return;
    st->min = all.min;
    st->max = all.max;
    st->mean = all.mean;
    st->std = sqrt(all.m2 / (double)all.n);
    if (all.min == all.max) {   /* whatever a sum of them was rounded to */
        st->mean = all.min + 0; /* -0 as 0, which their sum is, too */
        st->std = 0;
    }
    if (dtype_table[v->dtype].bits == 32 && v->n <= UINT32_MAX)
        ranks_quantiles(st, v, cmd, s, par, thread);
    if (st->hist)
        histogram(st, &c, par, thread);
}
