/* SPDX-License-Identifier: ISC */
/*
 * Types of at most 16 bits have so few values that counting each of them gives
 * exact results in one pass over the data.
 */
#include "cmd/st-inspect/stats.h"

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/kernel/moments.h"
#include "core/le.h"
#include "core/mem.h"

/* Fewer elements than this are sorted: reading the tables takes 65536 steps. */
#define SORT_BELOW 8192

/* An entry of a table has 32 bits: the counts of so many pieces fit. */
#define SPAN_PIECES ((size_t)16384)
_Static_assert(SPAN_PIECES *PIECE_NBYTES <= UINT32_MAX + (uint64_t)1,
               "a count must fit 32 bits");

/* Pieces [begin, end) after j->first, into the four tables of 'thread'.
 * Neighbours go to different tables, so that equal values in a row need not
 * wait for each other's store. */
static void
count_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct stats_job *j = ctx;
    struct thread_scratch *t = &j->scratch->threads[thread];
    size_t size = dtype_size(j->v.dtype);
    size_t per_piece = PIECE_NBYTES / size;
    uint32_t *t0 = t->tables, *t1 = t0 + COUNT_KEYS;
    uint32_t *t2 = t1 + COUNT_KEYS, *t3 = t2 + COUNT_KEYS;

    for (size_t i = begin; i < end && !t->err.status; i++) {
        uint64_t at = (j->first + i) * per_piece;
        size_t n = smaller(j->v.n - at, per_piece);
        const uint8_t *p = t->piece;

        if (view_read(&j->v, t->piece, at, n, &t->err) < 0)
            return;
        for (; size == 2 && n >= 4; n -= 4, p += 8) {
            uint64_t four = le64(p);

            t0[four & 0xffff]++;
            t1[four >> 16 & 0xffff]++;
            t2[four >> 32 & 0xffff]++;
            t3[four >> 48]++;
        }
        for (; size == 1 && n >= 4; n -= 4, p += 4) {
            t0[p[0]]++;
            t1[p[1]]++;
            t2[p[2]]++;
            t3[p[3]]++;
        }
        for (; n > 0; n--, p += size)
            t0[size == 2 ? le16(p) : *p]++;
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

double
between(double a, double b, double at)
{
    double t = at - floor(at);

    return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t);
}

/* Adds a value to the list of n_values, or only counts it if it is not finite.
 */
static size_t
add_value(struct tensor_stats *st, struct value_count *values, size_t n_values,
          double v, uint64_t n)
{
    if (isnan(v)) {
        st->n_nan += n;
    } else if (isinf(v)) {
        st->n_inf += n;
    } else {
        st->n_finite += n;
        if (v == 0)
            st->n_zero += n;
        values[n_values++] = (struct value_count){ v, n };
    }
    return n_values;
}

/* Counts the tensor by all threads of the job, and lists its values. */
static size_t
values_by_table(struct stats_job *j)
{
    struct thread_scratch *t = &j->scratch->threads[j->thread];
    const struct key_order *o = &j->scratch->order[j->v.dtype];
    size_t n_keys = (size_t)1 << dtype_table[j->v.dtype].bits;
    size_t n_pieces = (j->v.nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES;
    size_t n_values = 0;

    memset(t->totals, 0, n_keys * sizeof(*t->totals));
    for (; j->first < n_pieces; j->first += SPAN_PIECES) {
        size_t n = smaller(n_pieces - j->first, SPAN_PIECES);

        stats_for(j, n, 8, count_pieces, j);
        for (int i = 0; i < j->scratch->n_threads; i++)
            if (stats_thread(j, i))
                counts_drain(t->totals, j->scratch->threads[i].tables, n_keys);
    }
    for (size_t r = 0; r < n_keys; r++)
        if (t->totals[o->keys[r]])
            n_values = add_value(j->st, t->values, n_values, o->values[r],
                                 t->totals[o->keys[r]]);
    return n_values;
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
values_by_sort(const struct stats_job *j)
{
    struct thread_scratch *t = &j->scratch->threads[j->thread];
    const struct key_order *o = &j->scratch->order[j->v.dtype];
    uint16_t a[SORT_BELOW], b[SORT_BELOW];
    size_t n = j->v.n, n_values = 0;
    bool two = dtype_table[j->v.dtype].bits == 16;

    if (n == 0 || view_read(&j->v, t->piece, 0, n, &t->err) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        a[i] = o->ranks[two ? le16(t->piece + 2 * i) : t->piece[i]];
    sort_by_byte(b, a, n, 0);
    sort_by_byte(a, b, n, 8);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && a[end] == a[i];)
            end++;
        n_values =
            add_value(j->st, t->values, n_values, o->values[a[i]], end - i);
    }
    return n_values;
}

void
counts_stats(struct stats_job *j)
{
    size_t n = j->v.n < SORT_BELOW ? values_by_sort(j) : values_by_table(j);
    const struct value_count *values = j->scratch->threads[j->thread].values;
    const struct inspect_cmd *cmd = j->cmd;
    struct moments_sum sum = { 0 }, squares = { 0 };
    struct tensor_stats *st = j->st;

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        moments_add(&sum, values[i].v * (double)values[i].n);
    st->min = values[0].v;
    st->max = values[n - 1].v;
    st->mean = (sum.s + sum.c) / (double)st->n_finite;
    for (size_t i = 0; i < n; i++) {
        double d = values[i].v - st->mean;

        moments_add(&squares, d * d * (double)values[i].n);
    }
    st->std = sqrt((squares.s + squares.c) / (double)st->n_finite);
    for (size_t i = 0; i < cmd->n_quantiles; i++) {
        double at = cmd->quantiles[i] * (double)(st->n_finite - 1);
        const struct value_count *v = values, *next;
        uint64_t k = (uint64_t)at, end = v->n; /* of those up to *v */

        for (; k >= end; end += v->n)
            v++;
        next = k + 1 < st->n_finite && k + 1 >= end ? v + 1 : v;
        st->quantiles[i] = between(v->v, next->v, at);
    }
    st->has_quantiles = true;
    if (!st->hist)
        return;
    hist_range(st);
    for (size_t i = 0; i < n; i++)
        st->hist[hist_bin(st, (size_t)cmd->n_bins, values[i].v)] += values[i].n;
}

bool
is_counted(enum dtype dtype)
{
    return dtype_table[dtype].bits == 8 || dtype_table[dtype].bits == 16;
}

void
counts_prepare(struct stats_scratch *s, enum dtype dtype)
{
    const struct dtype_info *type = &dtype_table[dtype];
    struct key_order *o = &s->order[dtype];
    unsigned n, half;

    if (!is_counted(dtype) || o->values)
        return;
    n = 1u << type->bits;
    half = n / 2;
    o->values = xcalloc(n, sizeof(*o->values));
    o->keys = xcalloc(n, sizeof(*o->keys));
    o->ranks = xcalloc(n, sizeof(*o->ranks));
    for (unsigned r = 0; r < n; r++) {
        unsigned key = r;
        uint8_t bytes[2];

        if (type->kind == DK_INT)
            key = r ^ half;
        else if (type->kind == DK_FLOAT && dtype != DT_F8_E8M0) /* no sign */
            key = r < half ? n - 1 - r : r - half;
        put_le16(bytes, (uint16_t)key);
        o->values[r] = dtype_get(dtype, bytes, 0);
        o->keys[r] = (uint16_t)key;
        o->ranks[key] = (uint16_t)r;
    }
}
