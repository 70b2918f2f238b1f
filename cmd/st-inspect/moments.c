#include "cmd/st-inspect/moments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/hist.h"
#include "cmd/st-inspect/ranks.h"
#include "core/dtype.h"
#include "core/kernel/moments.h"
#include "core/mem.h"

#define SPAN_CHUNKS 1024 /* between two merges */

struct chunk_sums {
    struct moments m;
    uint64_t n_zero;
};

struct summing {
    const struct view *v;
    struct stats_scratch *s;
    size_t first;              /* chunk of the tensor */
    struct chunk_sums *chunks; /* [SPAN_CHUNKS]; NULL: fill histograms */
    const struct tensor_stats *st;
    size_t n_bins;
};

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
        if (c->chunks) {
            c->chunks[i].n_zero = moments_of(&c->chunks[i].m, t->wide, n);
            continue;
        }
        for (size_t k = 0; k < n; k++)
            if (isfinite(t->wide[k]))
                t->hist[hist_bin(c->st, c->n_bins, t->wide[k])]++;
    }
}

/* All chunks, a span at a time; 'all' gets what they are together, if wanted.
 */
static void
pass(struct summing *c, struct par *par, int thread, struct chunk_sums *all)
{
    size_t n_chunks = (c->v->n + CHUNK - 1) / CHUNK;

    for (c->first = 0; c->first < n_chunks; c->first += SPAN_CHUNKS) {
        size_t n = n_chunks - c->first < SPAN_CHUNKS ? n_chunks - c->first
                                                     : SPAN_CHUNKS;

        if (par)
            par_for(par, n, 1, do_chunks, c);
        else
            do_chunks(c, 0, n, thread);
        for (size_t i = 0; c->chunks && i < n; i++) {
            moments_merge(&all->m, &c->chunks[i].m);
            all->n_zero += c->chunks[i].n_zero;
        }
    }
}

static void
histogram(struct tensor_stats *st, struct summing *c, struct par *par,
          int thread)
{
    c->chunks = NULL;
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
moments_stats(struct tensor_stats *st, const struct view *v,
              const struct inspect_cmd *cmd, struct stats_scratch *s,
              struct par *par, int thread)
{
    struct chunk_sums all = { .m = MOMENTS_NONE };
    struct summing c = { .v = v, .s = s, .st = st };

    c.n_bins = (size_t)cmd->n_bins;
    c.chunks = xcalloc(SPAN_CHUNKS, sizeof(*c.chunks));
    pass(&c, par, thread, &all);
    free(c.chunks);
    st->n_nan = all.m.n_nan;
    st->n_inf = v->n - all.m.n - all.m.n_nan;
    st->n_zero = all.n_zero;
    st->n_finite = all.m.n;
    if (all.m.n == 0)
        return;
    st->min = all.m.min;
    st->max = all.m.max;
    st->mean = moments_mean(&all.m);
    st->std = moments_std(&all.m);
    if (dtype_table[v->dtype].bits == 32 && v->n <= UINT32_MAX)
        ranks_quantiles(st, v, cmd, s, par, thread);
    if (st->hist)
        histogram(st, &c, par, thread);
}
