/*
 * --sample: the rows that come first in the order of --shuffle.  Keys below a
 * bound that lets through a few more than K are all that is kept.
 */
#include "cmd/saev-read/sample.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/saev-read/rows.h"
#include "core/mem.h"
#include "core/perm.h"

#define CHUNK ((size_t)1 << 18) /* rows that a thread looks at */
#define KEYS  1024

struct sample {
    const struct perm *perm;
    size_t n_rows;
    uint64_t bound; /* keys up to it */
    size_t *first;  /* [chunks + 1] counts, then places in 'items' */
    struct perm_item *items;
    size_t n, next;
};

/* Counts a chunk's keys up to the bound, or keeps them where it is known. */
static void
look(void *ctx, size_t begin, size_t end, int thread)
{
    struct sample *s = ctx;
    uint64_t keys[KEYS];
    size_t found = 0;
    struct perm_item *to = s->items ? s->items + s->first[begin / CHUNK] : NULL;

    (void)thread;
    for (size_t i = begin, n; i < end; i += n) {
        n = end - i < KEYS ? end - i : KEYS;
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

/* Finds the bound's rows, by number. */
static int
find(struct sample *s, size_t k, struct par *par, struct err *err)
{
    size_t n_chunks = (s->n_rows + CHUNK - 1) / CHUNK;

    s->first = mem_try(n_chunks + 1, sizeof(*s->first), "a sample", err);
    if (!s->first)
        return -1;
    for (s->bound = bound_for(k, s->n_rows);;
         s->bound = s->bound >> 63 ? UINT64_MAX : 2 * s->bound) {
        par_for(par, s->n_rows, CHUNK, look, s);
        s->n = 0;
        for (size_t c = 0; c < n_chunks; c++) {
            size_t n = s->first[c];

            s->first[c] = s->n;
            s->n += n;
        }
        if (s->n >= k)
            break;
    }
    s->items = mem_try(s->n, sizeof(*s->items), "a sample", err);
    if (!s->items)
        return -1;
    par_for(par, s->n_rows, CHUNK, look, s);
    return 0;
}

/* Of the rows that were found, keeps the first k of the order, by number. */
static int
keep(struct sample *s, size_t k, bool in_order, struct par *par,
     struct err *err)
{
    struct perm_item *order = mem_try(s->n, sizeof(*order), "a sample", err);
    size_t n = 0;

    if (!order)
        return -1;
    for (size_t i = 0; i < s->n; i++)
        order[i] = s->items[i];
    perm_sort(s->perm, order, s->n, NULL, NULL, par);
    for (size_t i = 0; i < s->n && !in_order; i++)
        if (!perm_before(s->perm, &order[k - 1], &s->items[i], NULL, NULL))
            s->items[n++] = s->items[i];
    for (; n < k; n++)
        s->items[n] = order[n];
    s->n = k;
    free(order);
    return 0;
}

static int
next(void *ctx, size_t *rows, size_t max, size_t *n, struct err *err)
{
    struct sample *s = ctx;

    (void)err;
    for (*n = 0; *n < max && s->next < s->n; s->next++)
        rows[(*n)++] = s->items[s->next].at;
    return 0;
}

int
sample_main(struct read_cmd *cmd, const struct dump_target *t, struct err *err)
{
    struct sample s = { .perm = &cmd->perm, .n_rows = t->n_rows };
    int rc = -1;

    if (cmd->sample > t->n_rows)
        return err_set(err, EX_DATAERR, "%s: --sample %llu, but %zu rows",
                       t->dir.path, (unsigned long long)cmd->sample, t->n_rows);
    if (par_open(&cmd->par, cmd->n_threads, err) == 0 &&
        find(&s, cmd->sample, cmd->par, err) == 0 &&
        keep(&s, cmd->sample, cmd->shuffle, cmd->par, err) == 0)
        rc = rows_put(cmd, t, s.n, next, &s, err);
    free(s.items);
    free(s.first);
    return rc;
}
