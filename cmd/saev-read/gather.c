#include "cmd/saev-read/gather.h"

#include <stdlib.h>

#include "core/format/saev.h"
#include "core/mem.h"

#define MAX_WANTS ((size_t)64 << 10) /* rows sorted at a time */
#define RADIX     256
#define PIECE     ((size_t)1 << 20) /* bytes that one thread reads at a time */

int
gather_open(struct gather *g, const struct dump_target *t, int n_threads,
            bool direct, struct err *err)
{
    *g = (struct gather){ .t = t, .row_nbytes = t->dir.saev.row_nbytes };
    if (shards_open(&g->shards, &t->dir, n_threads, direct, err) < 0)
        return -1;
    g->wants = xcalloc(2 * MAX_WANTS, sizeof(*g->wants));
    g->pieces = xcalloc(MAX_WANTS, sizeof(*g->pieces));
    return 0;
}

void
gather_close(struct gather *g)
{
    shards_close(&g->shards);
    free(g->wants);
    free(g->pieces);
    *g = (struct gather){ 0 };
}

/* By one byte of the row numbers; stable. */
static void
sort_by_byte(struct want *to, const struct want *from, size_t n, int shift)
{
    size_t at[RADIX] = { 0 }, sum = 0;

    for (size_t i = 0; i < n; i++)
        at[from[i].row >> shift & (RADIX - 1)]++;
    for (size_t k = 0; k < RADIX; k++) {
        size_t count = at[k];

        at[k] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        to[at[from[i].row >> shift & (RADIX - 1)]++] = from[i];
}

/* A view's rows lie in their order, so this is by shard and offset. */
static const struct want *
sort_wants(struct want *wants, size_t n)
{
    struct want *a = wants, *b = wants + MAX_WANTS;
    bool sorted = true;
    size_t all = 0;

    for (size_t i = 0; i < n; i++) {
        all |= a[i].row;
        sorted &= i == 0 || a[i - 1].row <= a[i].row;
    }
    for (int shift = 0; !sorted && shift < 64 && all >> shift; shift += 8) {
        struct want *was = a;

        sort_by_byte(b, a, n, shift);
        a = b;
        b = was;
    }
    return a;
}

static int
gather_some(struct gather *g, const size_t *rows, size_t n, char *to,
            struct err *err)
{
    const struct want *sorted;

    for (size_t i = 0; i < n; i++)
        g->wants[i] = (struct want){ rows[i], i };
    sorted = sort_wants(g->wants, n);
    for (size_t i = 0; i < n; i++) {
        struct saev_place p = target_at(g->t, sorted[i].row);

        g->pieces[i] = (struct piece){ p.shard, p.offset, g->row_nbytes,
                                       to + sorted[i].at * g->row_nbytes };
    }
    return shards_read(&g->shards, g->pieces, n, err);
}

int
gather_rows(struct gather *g, const size_t *rows, size_t n, void *to,
            struct err *err)
{
    char *at = to;

    g->shards.sequential = false;
    for (size_t k; n > 0; n -= k, rows += k, at += k * g->row_nbytes) {
        k = n < MAX_WANTS ? n : MAX_WANTS;
        if (gather_some(g, rows, k, at, err) < 0)
            return -1;
    }
    return 0;
}

size_t
gather_run(const struct dump_target *t, size_t row)
{
    const struct saev *s = &t->dir.saev;
    const struct saev_view *v = &t->view;
    size_t shard_rows = s->shard_imgs * v->img_rows;
    size_t at = t->first + row, run;

    if (v->img_rows == s->n_layers * s->n_tokens)
        run = shard_rows - at % shard_rows;
    else
        run = v->n_tokens - at % v->n_tokens;
    return run < t->n_rows - row ? run : t->n_rows - row;
}

int
gather_range(struct gather *g, size_t first, size_t n, void *to,
             struct err *err)
{
    size_t most = g->row_nbytes < PIECE ? PIECE / g->row_nbytes : 1;
    char *at = to;
    size_t k = 0;

    g->shards.sequential = true;
    for (size_t run; n > 0; n -= run, first += run, at += run * g->row_nbytes) {
        struct saev_place p = target_at(g->t, first);

        run = gather_run(g->t, first);
        run = run < n ? run : n;
        run = run < most ? run : most;
        g->pieces[k++] =
            (struct piece){ p.shard, p.offset, run * g->row_nbytes, at };
        if (k == MAX_WANTS || run == n) {
            if (shards_read(&g->shards, g->pieces, k, err) < 0)
                return -1;
            k = 0;
        }
    }
    return 0;
}
