/*
 * Types of at most 16 bits have so few values that counting each of them says
 * everything exactly, in one pass over the data.
 */
#include "cmd/st-inspect/counts.h"

#include <math.h>
#include <string.h>

#include "cmd/st-inspect/hist.h"
#include "core/dtype.h"
#include "core/kernel/moments.h"
#include "core/le.h"

/* Fewer elements than this are sorted: the tables cost 65536 steps to read. */
#define SORT_BELOW 8192

/* A table's entry has 32 bits, so this many elements fit for certain. */
#define SPAN_PIECES ((size_t)16384)
_Static_assert(SPAN_PIECES *PIECE_NBYTES <= UINT32_MAX + (uint64_t)1,
               "a count must fit 32 bits");

struct counting {
    const struct view *v;
    struct stats_scratch *s;
    size_t first; /* piece of the tensor */
};

/* Adds n little-endian 16-bit values to four tables, each 65536 long:
 * neighbours go to different ones, so that equal values in a row do not wait
 * for each other's store. */
static void
count_u16(uint32_t *tables, const void *data, size_t n)
{
    const uint8_t *p = data;
    uint32_t *t0 = tables, *t1 = t0 + COUNT_KEYS;
    uint32_t *t2 = t1 + COUNT_KEYS, *t3 = t2 + COUNT_KEYS;

    for (; n >= 4; n -= 4, p += 8) {
        uint64_t four = le64(p);

        t0[four & 0xffff]++;
        t1[four >> 16 & 0xffff]++;
        t2[four >> 32 & 0xffff]++;
        t3[four >> 48]++;
    }
    for (; n > 0; n--, p += 2)
        t0[le16(p)]++;
}

static void
count_u8(uint32_t *tables, const uint8_t *p, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++)
            tables[k * COUNT_KEYS + p[i + k]]++;
    for (; i < n; i++)
        tables[p[i]]++;
}

/* Pieces [begin, end) after ctx->first, into the tables of 'thread'. */
static void
count_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct counting *c = ctx;
    struct thread_scratch *t = &c->s->threads[thread];
    size_t size = dtype_table[c->v->dtype].bits / 8;
    size_t per_piece = PIECE_NBYTES / size;

    for (size_t i = begin; i < end && !t->err.status; i++) {
        uint64_t at = (c->first + i) * per_piece;
        size_t n = c->v->n - at < per_piece ? c->v->n - at : per_piece;

        if (view_read(c->v, t->piece, at, n, &t->err) < 0)
            return;
        if (size == 2)
            count_u16(t->tables, t->piece, n);
        else
            count_u8(t->tables, t->piece, n);
    }
}

void
counts_drain(uint64_t *totals, uint32_t *tables, size_t n_keys)
{
    for (size_t k = 0; k < n_keys; k++) {
        uint64_t sum = 0;

        for (size_t i = 0; i < COUNT_TABLES; i++)
            sum += tables[i * COUNT_KEYS + k];
        totals[k] += sum;
    }
    for (size_t i = 0; i < COUNT_TABLES; i++)
        memset(tables + i * COUNT_KEYS, 0, n_keys * sizeof(*tables));
}

/* The i-th smallest element, walking on from where the last call stopped. */
static double
element(const struct bin *bins, size_t *bin, uint64_t *before, uint64_t i)
{
    while (i >= *before + bins[*bin].n)
        *before += bins[(*bin)++].n;
    return bins[*bin].v;
}

double
between(double a, double b, double at)
{
    double t = at - floor(at);

    return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t);
}

static double
quantile(const struct bin *bins, uint64_t n, double q)
{
    double at = q * (double)(n - 1);
    uint64_t i = (uint64_t)at;
    uint64_t before = 0;
    size_t bin = 0;
    double a = element(bins, &bin, &before, i);
    double b = i + 1 < n ? element(bins, &bin, &before, i + 1) : a;

    return between(a, b, at);
}

/* Everything over the finite values, from them and their counts. */
static void
summarize(struct tensor_stats *st, const struct bin *bins, size_t n_bins,
          const struct inspect_cmd *cmd)
{
    struct moments_sum sum = { 0 }, squares = { 0 };

    if (n_bins == 0)
        return;
    for (size_t i = 0; i < n_bins; i++)
        moments_add(&sum, bins[i].v * (double)bins[i].n);
    st->min = bins[0].v;
    st->max = bins[n_bins - 1].v;
    st->mean = (sum.s + sum.c) / (double)st->n_finite;
    for (size_t i = 0; i < n_bins; i++) {
        double d = bins[i].v - st->mean;

        moments_add(&squares, d * d * (double)bins[i].n);
    }
    st->std = sqrt((squares.s + squares.c) / (double)st->n_finite);
    for (size_t i = 0; i < cmd->n_quantiles; i++)
        st->quantiles[i] = quantile(bins, st->n_finite, cmd->quantiles[i]);
    st->has_quantiles = true;
    if (!st->hist)
        return;
    hist_range(st);
    for (size_t i = 0; i < n_bins; i++)
        st->hist[hist_bin(st, (size_t)cmd->n_bins, bins[i].v)] += bins[i].n;
}

/* One more value: to the bins, or to what is only counted. */
static size_t
add_value(struct tensor_stats *st, struct bin *bins, size_t n_bins, double v,
          uint64_t n)
{
    if (isnan(v)) {
        st->n_nan += n;
    } else if (isinf(v)) {
        st->n_inf += n;
    } else {
        st->n_finite += n;
        if (v == 0)
            st->n_zero += n;
        bins[n_bins++] = (struct bin){ v, n };
    }
    return n_bins;
}

/* Counts the tensor over all threads of 'par', and lists what occurs. */
static size_t
bins_by_table(struct tensor_stats *st, struct counting *c, struct par *par,
              int thread)
{
    struct thread_scratch *t = &c->s->threads[thread];
    const struct key_order *o = &c->s->order[c->v->dtype];
    size_t n_keys = (size_t)1 << dtype_table[c->v->dtype].bits;
    size_t n_pieces = (c->v->nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES;
    size_t n_bins = 0;

    memset(t->totals, 0, n_keys * sizeof(*t->totals));
    for (; c->first < n_pieces; c->first += SPAN_PIECES) {
        size_t n = n_pieces - c->first < SPAN_PIECES ? n_pieces - c->first
                                                     : SPAN_PIECES;

        if (par)
            par_for(par, n, 8, count_pieces, c);
        else
            count_pieces(c, 0, n, thread);
        for (int i = 0; i < c->s->n_threads; i++)
            if (par || i == thread)
                counts_drain(t->totals, c->s->threads[i].tables, n_keys);
    }
    for (size_t r = 0; r < n_keys; r++)
        if (t->totals[o->keys[r]])
            n_bins = add_value(st, t->bins, n_bins, o->values[r],
                               t->totals[o->keys[r]]);
    return n_bins;
}

/* One pass of a radix sort, by the byte at 'shift'. */
static void
sort_by_byte(uint16_t *to, const uint16_t *from, size_t n, int shift)
{
    size_t at[257] = { 0 };

    for (size_t i = 0; i < n; i++)
        at[(from[i] >> shift & 0xff) + 1]++;
    for (size_t i = 0; i < 256; i++)
        at[i + 1] += at[i];
    for (size_t i = 0; i < n; i++)
        to[at[from[i] >> shift & 0xff]++] = from[i];
}

/* The same for few elements. */
static size_t
bins_by_sort(struct tensor_stats *st, const struct counting *c, int thread)
{
    struct thread_scratch *t = &c->s->threads[thread];
    const struct key_order *o = &c->s->order[c->v->dtype];
    uint16_t a[SORT_BELOW], b[SORT_BELOW];
    size_t n = c->v->n, n_bins = 0;
    bool two = dtype_table[c->v->dtype].bits == 16;

    if (n == 0 || view_read(c->v, t->piece, 0, n, &t->err) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        a[i] = o->ranks[two ? le16(t->piece + 2 * i) : t->piece[i]];
    sort_by_byte(b, a, n, 0);
    sort_by_byte(a, b, n, 8);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && a[end] == a[i];)
            end++;
        n_bins = add_value(st, t->bins, n_bins, o->values[a[i]], end - i);
    }
    return n_bins;
}

void
counts_stats(struct tensor_stats *st, const struct view *v,
             const struct inspect_cmd *cmd, struct stats_scratch *s,
             struct par *par, int thread)
{
    struct counting c = { .v = v, .s = s };
    size_t n_bins = v->n < SORT_BELOW ? bins_by_sort(st, &c, thread)
                                      : bins_by_table(st, &c, par, thread);

    summarize(st, s->threads[thread].bins, n_bins, cmd);
}
