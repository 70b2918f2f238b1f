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

#define LANES       8    /* independent sums, which the CPU adds at once */
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
            to[i] = le_f32((const uint8_t *)from + 4 * i);
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

/* Moves the finite elements together; counts the others. */
static size_t
keep_finite(struct moments *m, double *x, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        double v = x[i];

        m->n_nan += v != v;
        m->n_inf += fabs(v) == (double)INFINITY;
        m->n_zero += v == 0;
        x[kept] = v;
        kept += fabs(v) < (double)INFINITY;
    }
    return kept;
}

static double
sum_lanes(const double lanes[LANES])
{
    double s = 0;

    for (int k = 0; k < LANES; k++)
        s += lanes[k];
    return s;
}

static void
moments_of(struct moments *m, double *x, size_t all)
{
    double sum[LANES] = { 0 }, squares[LANES] = { 0 };

    *m = (struct moments){ .min = (double)INFINITY, .max = -(double)INFINITY };
    m->n = keep_finite(m, x, all);
    if (m->n == 0)
        return;
    for (size_t i = 0; i < m->n; i++) {
        sum[i % LANES] += x[i];
        m->min = x[i] < m->min ? x[i] : m->min;
        m->max = x[i] > m->max ? x[i] : m->max;
    }
    m->mean = sum_lanes(sum) / (double)m->n;
    for (size_t i = 0; i < m->n; i++) {
        double d = x[i] - m->mean;

        squares[i % LANES] += d * d;
    }
    m->m2 = sum_lanes(squares);
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
    if (st->hist)
        histogram(st, &c, par, thread);
}
