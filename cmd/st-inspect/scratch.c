/* Memory of the threads that count and sum for stats. */
#include "cmd/st-inspect/scratch.h"

#include <stdlib.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/view.h"
#include "core/le.h"
#include "core/mem.h"

int
scratch_open(struct stats_scratch *s, int n_threads, struct err *err)
{
    *s = (struct stats_scratch){ .n_threads = n_threads };
    s->threads = xcalloc((size_t)n_threads, sizeof(*s->threads));
    for (int i = 0; i < n_threads; i++) {
        struct thread_scratch *t = &s->threads[i];

        t->piece = mem_big(PIECE_NBYTES, 1, "a buffer", err);
        t->wide = mem_big(CHUNK, sizeof(*t->wide), "a buffer", err);
        t->tables = mem_big(COUNT_TABLES * COUNT_KEYS, sizeof(*t->tables),
                            "tables of counts", err);
        t->totals =
            mem_big(COUNT_KEYS, sizeof(*t->totals), "a table of counts", err);
        t->bins =
            mem_big(COUNT_KEYS, sizeof(*t->bins), "a table of values", err);
        t->hist = xcalloc(MAX_BINS, sizeof(*t->hist));
        if (!t->piece || !t->wide || !t->tables || !t->totals || !t->bins) {
            scratch_close(s);
            return -1;
        }
    }
    return 0;
}

void
scratch_close(struct stats_scratch *s)
{
    for (int i = 0; i < s->n_threads && s->threads; i++) {
        struct thread_scratch *t = &s->threads[i];

        mem_big_free(t->piece, PIECE_NBYTES, 1);
        mem_big_free(t->wide, CHUNK, sizeof(*t->wide));
        mem_big_free(t->tables, COUNT_TABLES * COUNT_KEYS, sizeof(*t->tables));
        mem_big_free(t->totals, COUNT_KEYS, sizeof(*t->totals));
        mem_big_free(t->bins, COUNT_KEYS, sizeof(*t->bins));
        free(t->hist);
    }
    for (int i = 0; i < DT_COUNT; i++) {
        free(s->order[i].values);
        free(s->order[i].keys);
        free(s->order[i].ranks);
    }
    free(s->threads);
    *s = (struct stats_scratch){ 0 };
}

bool
is_counted(enum dtype dtype)
{
    return dtype_table[dtype].bits == 8 || dtype_table[dtype].bits == 16;
}

static unsigned
key_of_rank(enum dtype dtype, unsigned rank)
{
    unsigned half = 1u << (dtype_table[dtype].bits - 1);

    if (dtype == DT_F8_E8M0) /* has no sign */
        return rank;
    switch (dtype_table[dtype].kind) {
    case DK_FLOAT:
        return rank < half ? 2 * half - 1 - rank : rank - half;
    case DK_INT:
        return rank ^ half;
    default:
        return rank;
    }
}

void
scratch_prepare(struct stats_scratch *s, enum dtype dtype)
{
    struct key_order *o = &s->order[dtype];
    size_t n;

    if (!is_counted(dtype) || o->values)
        return;
    n = (size_t)1 << dtype_table[dtype].bits;
    o->values = xcalloc(n, sizeof(*o->values));
    o->keys = xcalloc(n, sizeof(*o->keys));
    o->ranks = xcalloc(n, sizeof(*o->ranks));
    for (unsigned r = 0; r < n; r++) {
        unsigned key = key_of_rank(dtype, r);
        uint8_t bytes[2];

        put_le16(bytes, (uint16_t)key);
        o->values[r] = dtype_get(dtype, bytes, 0);
        o->keys[r] = (uint16_t)key;
        o->ranks[key] = (uint16_t)r;
    }
}

int
scratch_error(struct stats_scratch *s, struct err *err)
{
    for (int i = 0; i < s->n_threads; i++)
        if (s->threads[i].err.status) {
            *err = s->threads[i].err;
            return -1;
        }
    return 0;
}
