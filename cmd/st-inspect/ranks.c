#include "cmd/st-inspect/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/counts.h"
#include "core/dtype.h"
#include "core/le.h"
#include "core/mem.h"

#define SORT_BELOW 8192 /* elements: a table has more entries than that */
#define MAX_RANKS  (2 * MAX_QUANTILES)

/* An element by its place in the order: the 'upper' half of its key, then its
 * place among those that share it. */
struct rank {
    uint64_t at;
    unsigned upper;
    uint64_t within;
    double value;
};

struct ranking {
    const struct view *v;
    struct stats_scratch *s;
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

/* Both loops are compiled for F32 on its own: see count_piece(). */
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
count_piece(const struct ranking *r, struct thread_scratch *t, uint32_t *lower,
            size_t n)
{
    if (r->v->dtype == DT_F32 && !lower)
        count_upper(t->tables, t->piece, n, DT_F32);
    else if (r->v->dtype == DT_F32)
        count_lower(lower, r->slot, t->piece, n, DT_F32);
    else if (!lower)
        count_upper(t->tables, t->piece, n, r->v->dtype);
    else
        count_lower(lower, r->slot, t->piece, n, r->v->dtype);
}

static void
count_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct ranking *r = ctx;
    struct thread_scratch *t = &r->s->threads[thread];
    size_t per_piece = PIECE_NBYTES / 4;

    for (size_t i = begin; i < end && !t->err.status; i++) {
        uint64_t at = i * per_piece;
        size_t n = r->v->n - at < per_piece ? r->v->n - at : per_piece;

        if (view_read(r->v, t->piece, at, n, &t->err) < 0)
            return;
        count_piece(r, t, r->lower ? r->lower[thread] : NULL, n);
    }
}

static void
pass(struct ranking *r, struct par *par, int thread)
{
    size_t n = (r->v->nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES;

    if (par)
        par_for(par, n, 8, count_pieces, r);
    else
        count_pieces(r, 0, n, thread);
}

/* Where each rank falls in the counts of upper halves; the number of slots. */
static size_t
place_ranks(struct rank *ranks, size_t n_ranks, const uint64_t *totals,
            uint8_t *slot)
{
    size_t n_slots = 0;

    for (size_t i = 0; i < n_ranks; i++) {
        uint64_t before = 0;
        unsigned k = 0;

        while (k < COUNT_KEYS - 1 && ranks[i].at >= before + totals[k])
            before += totals[k++];
        ranks[i].upper = k;
        ranks[i].within = ranks[i].at - before;
        if (!slot[k])
            slot[k] = (uint8_t)++n_slots;
    }
    return n_slots;
}

static void
find_values(struct rank *ranks, size_t n_ranks, const struct ranking *r)
{
    for (size_t i = 0; i < n_ranks; i++) {
        size_t base = (r->slot[ranks[i].upper] - 1u) * (size_t)COUNT_KEYS;
        uint64_t before = 0, here = 0;
        unsigned k = 0;

        for (;; k++) {
            here = 0;
            for (int t = 0; t < r->s->n_threads; t++)
                here += r->lower[t] ? r->lower[t][base + k] : 0;
            if (ranks[i].within < before + here || k == COUNT_KEYS - 1)
                break;
            before += here;
        }
        ranks[i].value =
            value_of(r->v->dtype, (uint32_t)ranks[i].upper << 16 | k);
    }
}

static int
by_tables(struct rank *ranks, size_t n_ranks, struct ranking *r,
          struct par *par, int thread, struct err *err)
{
    size_t n_threads = (size_t)r->s->n_threads, n_slots = 0;
    uint8_t *slot = xcalloc(COUNT_KEYS, 1);
    uint64_t *totals = r->s->threads[thread].totals;
    uint32_t **lower = xcalloc(n_threads, sizeof(*lower));
    int rc = 0;

    memset(totals, 0, COUNT_KEYS * sizeof(*totals));
    pass(r, par, thread);
    for (size_t t = 0; t < n_threads; t++)
        if (par || t == (size_t)thread)
            counts_drain(totals, r->s->threads[t].tables, COUNT_KEYS);
    n_slots = place_ranks(ranks, n_ranks, totals, slot);
    for (size_t t = 0; rc == 0 && t < n_threads; t++)
        if ((par || t == (size_t)thread) &&
            !(lower[t] = mem_big(n_slots * COUNT_KEYS, sizeof(**lower),
                                 "tables of counts", err)))
            rc = -1;
    if (rc == 0) {
        r->lower = lower;
        r->slot = slot;
        pass(r, par, thread);
        find_values(ranks, n_ranks, r);
    }
    for (size_t t = 0; t < n_threads; t++)
        mem_big_free(lower[t], n_slots * COUNT_KEYS, sizeof(**lower));
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
by_sort(struct rank *ranks, size_t n_ranks, const struct ranking *r, int thread,
        struct err *err)
{
    uint8_t *piece = r->s->threads[thread].piece;
    uint32_t keys[SORT_BELOW];
    size_t n = 0;

    if (view_read(r->v, piece, 0, r->v->n, err) < 0)
        return -1;
    for (size_t i = 0; i < r->v->n; i++)
        if (is_finite(r->v->dtype, le32(piece + 4 * i)))
            keys[n++] = key_of(r->v->dtype, le32(piece + 4 * i));
    if (n == 0) /* another program writes into the file */
        return 0;
    qsort(keys, n, sizeof(*keys), by_value);
    for (size_t i = 0; i < n_ranks; i++)
        ranks[i].value =
            value_of(r->v->dtype, keys[ranks[i].at < n ? ranks[i].at : n - 1]);
    return 0;
}

void
ranks_quantiles(struct tensor_stats *st, const struct view *v,
                const struct inspect_cmd *cmd, struct stats_scratch *s,
                struct par *par, int thread)
{
    struct ranking r = { .v = v, .s = s };
    struct rank ranks[MAX_RANKS] = { { 0 } };
    struct err *err = &s->threads[thread].err;
    uint64_t last = st->n_finite - 1;
    int rc;

    for (size_t i = 0; i < cmd->n_quantiles; i++) {
        uint64_t at = (uint64_t)(cmd->quantiles[i] * (double)last);

        ranks[2 * i].at = at;
        ranks[2 * i + 1].at = at < last ? at + 1 : at;
    }
    rc = v->n < SORT_BELOW
             ? by_sort(ranks, 2 * cmd->n_quantiles, &r, thread, err)
             : by_tables(ranks, 2 * cmd->n_quantiles, &r, par, thread, err);
    for (size_t i = 0; rc == 0 && i < cmd->n_quantiles; i++)
        st->quantiles[i] = between(ranks[2 * i].value, ranks[2 * i + 1].value,
                                   cmd->quantiles[i] * (double)last);
    st->has_quantiles = rc == 0;
}
