/*
 * --sample: the rows that come first in the order of --shuffle.  Only keys up
 * to a bound are kept, which a few more than K rows do not exceed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-read/shuffle.h"
#include "core/mem.h"
#include "core/tty.h"

#define CHUNK ((size_t)1 << 18) /* rows of a thread at a time */
#define KEYS  1024

struct sample {
    const struct perm *perm;
    uint64_t bound; /* keys up to it */
    size_t *first;  /* [chunks] counts, then where in 'items' each begins */
    struct perm_item *items;
};

/* Counts a chunk's keys up to the bound, or stores them if there is 'items'. */
static void
find_keys(void *ctx, size_t begin, size_t end, int thread)
{
    struct sample *s = ctx;
    uint64_t keys[KEYS];
    size_t found = 0;
    struct perm_item *to = s->items ? s->items + s->first[begin / CHUNK] : NULL;

    (void)thread;
    for (size_t i = begin, n; i < end; i += n) {
        n = smaller(end - i, KEYS);
        perm_keys(s->perm, i, n, keys);
        for (size_t j = 0; j < n; j++) {
            if (keys[j] > s->bound)
                continue;
            if (to)
                to[found] = (struct perm_item){ keys[j], i + j };
            found++;
        }
    }
    if (!to)
        s->first[begin / CHUNK] = found;
}

/* A bound that at least K keys do not exceed, but for a chance of 1e-15. */
static uint64_t
bound_for(size_t k, size_t n_rows)
{
    double p = ((double)k + 8 * sqrt((double)k) + 32) / (double)n_rows;

    return p < 1 ? (uint64_t)ldexp(p, 64) : UINT64_MAX;
}

struct perm_item *
sample_rows(struct read_cmd *cmd, const struct dump_target *t, struct err *err)
{
    struct sample s = { .perm = &cmd->perm };
    size_t n_chunks = (t->n_rows + CHUNK - 1) / CHUNK, k = cmd->sample, n = 0;
    struct perm_item *order = NULL;

    if (k > t->n_rows) {
        err_set(err, EX_DATAERR, "%s: --sample %zu, but %zu row%s", t->dir.path,
                k, t->n_rows, plural(t->n_rows));
        return NULL;
    }
    if (par_open(&cmd->par, cmd->n_threads, err) < 0)
        return NULL;
    s.first = mem_try(n_chunks, sizeof(*s.first), "a sample", err);
    if (!s.first)
        return NULL;
    for (s.bound = bound_for(k, t->n_rows);;
         s.bound = s.bound >> 63 ? UINT64_MAX : 2 * s.bound) {
        par_for(cmd->par, t->n_rows, CHUNK, find_keys, &s);
        n = 0;
        for (size_t c = 0; c < n_chunks; c++) {
            size_t found = s.first[c];

            s.first[c] = n;
            n += found;
        }
        if (n >= k)
            break;
    }
    s.items = mem_try(n, sizeof(*s.items), "a sample", err);
    if (s.items)
        order = mem_try(n, sizeof(*order), "a sample", err);
    if (order) {
        par_for(cmd->par, t->n_rows, CHUNK, find_keys, &s);
        memcpy(order, s.items, n * sizeof(*order));
        perm_sort(s.perm, order, n, NULL, NULL, cmd->par);
    }
    if (order && !cmd->shuffle) { /* the first k, by their numbers */
        struct perm_item last = order[k - 1], *to = order;

        for (size_t i = 0; i < n; i++)
            if (!perm_before(s.perm, &last, &s.items[i], NULL, NULL))
                *to++ = s.items[i];
    }
    free(s.items);
    free(s.first);
    return order;
}
