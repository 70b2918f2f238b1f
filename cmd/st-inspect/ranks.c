/* SPDX-License-Identifier: ISC */
/*
 * Exact quantiles of 32-bit types, by two more passes: one counts the upper
 * halves of the elements, which says where each wanted rank falls; the other
 * counts the lower halves of only those.
 */
#include "cmd/st-inspect/stats.h"

#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/le.h"
#include "core/mem.h"

#define SORT_BELOW 8192 /* elements: a table has more entries than that */
#define MAX_RANKS  (2 * MAX_QUANTILES)

struct ranking {
    const struct stats_job *job;
    uint32_t **lower;    /* [thread] [n_slots][COUNT_KEYS]; NULL: first pass */
    const uint8_t *slot; /* [COUNT_KEYS] 1 + slot of an upper half, or 0 */
};

/* Keys are ordered as the numbers are. */
static uint32_t
key_of(enum dtype dtype, uint32_t u)
{
    if (dtype == DT_F32)
        return u ^ ((uint32_t) - (u >> 31) | 0x80000000);
    return dtype == DT_I32 ? u ^ 0x80000000 : u;
}

static double
value_of(enum dtype dtype, uint32_t key)
{
    uint8_t bytes[4];

    put_le32(bytes, dtype == DT_F32   ? key >> 31 ? key & 0x7fffffff : ~key
                    : dtype == DT_I32 ? key ^ 0x80000000
                                      : key);
    return dtype_get(dtype, bytes, 0);
}

static bool
is_finite(enum dtype dtype, uint32_t u)
{
    return dtype != DT_F32 || (u & 0x7f800000) != 0x7f800000;
}

/* Inlined for F32 and for the other types: see count_pieces(). */
static inline void
count_upper(uint32_t *tables, const uint8_t *p, size_t n, enum dtype dtype)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = le32(p + 4 * i);

        tables[i % COUNT_TABLES * COUNT_KEYS + (key_of(dtype, u) >> 16)] +=
            is_finite(dtype, u);
    }
}

static inline void
count_lower(uint32_t *lower, const uint8_t *slot, const uint8_t *p, size_t n,
            enum dtype dtype)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = le32(p + 4 * i), key = key_of(dtype, u);
        size_t k = slot[key >> 16];

        if (k && is_finite(dtype, u))
            lower[(k - 1) * COUNT_KEYS + (key & 0xffff)]++;
    }
}

static void
count_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct ranking *r = ctx;
    const struct view *v = &r->job->v;
    struct thread_scratch *t = &r->job->scratch->threads[thread];
    uint32_t *lower = r->lower ? r->lower[thread] : NULL;
    size_t per_piece = PIECE_NBYTES / 4;

    for (size_t i = begin; i < end && !t->err.status; i++) {
        uint64_t at = i * per_piece;
        size_t n = smaller(v->n - at, per_piece);

        if (view_read(v, t->piece, at, n, &t->err) < 0)
            return;
        if (v->dtype == DT_F32 && !lower)
            count_upper(t->tables, t->piece, n, DT_F32);
        else if (v->dtype == DT_F32)
            count_lower(lower, r->slot, t->piece, n, DT_F32);
        else if (!lower)
            count_upper(t->tables, t->piece, n, v->dtype);
        else
            count_lower(lower, r->slot, t->piece, n, v->dtype);
    }
}

/* values[i] becomes the element at place ranks[i] in the order of all finite
 * ones. */
static int
by_tables(const struct stats_job *j, const uint64_t *ranks, double *values,
          size_t n, struct err *err)
{
    struct ranking r = { .job = j };
    struct stats_scratch *s = j->scratch;
    size_t n_pieces = (j->v.nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES;
    size_t n_slots = 0, n_lower;
    uint8_t *slot = xcalloc(COUNT_KEYS, 1);
    uint64_t *totals = s->threads[j->thread].totals;
    uint32_t **lower = xcalloc((size_t)s->n_threads, sizeof(*lower));
    unsigned upper[MAX_RANKS];  /* half of the key at ranks[i] */
    uint64_t within[MAX_RANKS]; /* its place among those that share it */
    int rc = 0;

    memset(totals, 0, COUNT_KEYS * sizeof(*totals));
    stats_for(j, n_pieces, 8, count_pieces, &r);
    for (int t = 0; t < s->n_threads; t++)
        if (stats_thread(j, t))
            counts_drain(totals, s->threads[t].tables, COUNT_KEYS);
    for (size_t i = 0; i < n; i++) {
        unsigned k = 0;

        within[i] = ranks[i];
        while (k < COUNT_KEYS - 1 && within[i] >= totals[k])
            within[i] -= totals[k++];
        upper[i] = k;
        if (!slot[k])
            slot[k] = (uint8_t)++n_slots;
    }
    n_lower = n_slots * COUNT_KEYS;
    for (int t = 0; rc == 0 && t < s->n_threads; t++)
        if (stats_thread(j, t) &&
            !(lower[t] =
                  mem_big(n_lower, sizeof(**lower), "tables of counts", err)))
            rc = -1;
    if (rc == 0) {
        r.lower = lower;
        r.slot = slot;
        stats_for(j, n_pieces, 8, count_pieces, &r);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        size_t base = (slot[upper[i]] - 1u) * (size_t)COUNT_KEYS;
        unsigned k = 0;

        for (; k < COUNT_KEYS - 1; k++) {
            uint64_t here = 0;

            for (int t = 0; t < s->n_threads; t++)
                here += lower[t] ? lower[t][base + k] : 0;
            if (within[i] < here)
                break;
            within[i] -= here;
        }
        values[i] = value_of(j->v.dtype, (uint32_t)upper[i] << 16 | k);
    }
    for (int t = 0; t < s->n_threads; t++)
        mem_big_free(lower[t], n_lower, sizeof(**lower));
    free(lower);
    free(slot);
    return rc;
}

static int
by_value(const void *pa, const void *pb)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

    return (a > b) - (a < b);
}

static int
by_sort(const struct stats_job *j, const uint64_t *ranks, double *values,
        size_t n, struct err *err)
{
    uint8_t *piece = j->scratch->threads[j->thread].piece;
    uint32_t keys[SORT_BELOW];
    size_t n_keys = 0;

    if (view_read(&j->v, piece, 0, j->v.n, err) < 0)
        return -1;
    for (size_t i = 0; i < j->v.n; i++)
        if (is_finite(j->v.dtype, le32(piece + 4 * i)))
            keys[n_keys++] = key_of(j->v.dtype, le32(piece + 4 * i));
    if (n_keys == 0) /* another program writes into the file */
        return 0;
    qsort(keys, n_keys, sizeof(*keys), by_value);
    for (size_t i = 0; i < n; i++)
        values[i] = value_of(j->v.dtype,
                             keys[ranks[i] < n_keys ? ranks[i] : n_keys - 1]);
    return 0;
}

void
ranks_quantiles(struct stats_job *j)
{
    size_t n = j->cmd->n_quantiles;
    const double *q = j->cmd->quantiles;
    struct err *err = &j->scratch->threads[j->thread].err;
    uint64_t last = j->st->n_finite - 1, ranks[MAX_RANKS] = { 0 };
    double values[MAX_RANKS] = { 0 };
    int rc;

    for (size_t i = 0; i < n; i++) {
        ranks[2 * i] = (uint64_t)(q[i] * (double)last);
        ranks[2 * i + 1] = ranks[2 * i] + (ranks[2 * i] < last);
    }
    rc = (j->v.n < SORT_BELOW ? by_sort : by_tables)(j, ranks, values, 2 * n,
                                                     err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        j->st->quantiles[i] =
            between(values[2 * i], values[2 * i + 1], q[i] * (double)last);
    j->st->has_quantiles = rc == 0;
}
