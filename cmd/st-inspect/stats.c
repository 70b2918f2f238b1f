/* SPDX-License-Identifier: ISC */
/* stats: ranges, moments, quantiles and histograms of tensors. */
#include "cmd/st-inspect/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/text.h"
#include "core/js.h"
#include "core/kernel/moments.h"
#include "core/mem.h"
#include "core/tty.h"

/* All threads work on a tensor of so many bytes; smaller ones have one thread
 * each. */
#define LARGE_NBYTES ((size_t)32 << 20)

/* Rows appear after so many tensors, or so many bytes. */
#define WINDOW_TENSORS 256
#define WINDOW_NBYTES  ((uint64_t)1 << 30)

#define SPAN_CHUNKS 1024 /* between two merges */

/* Types of 32 and 64 bits: chunks are summed independently and merged in their
 * order, so that results do not depend on the number of threads. */
struct chunk_sums {
    struct moments m;
    uint64_t n_zero;
};

struct summing {
    const struct stats_job *job;
    struct chunk_sums *chunks; /* [SPAN_CHUNKS]; NULL: fill histograms */
};

void
stats_for(const struct stats_job *j, size_t n, size_t grain,
          void (*fn)(void *ctx, size_t begin, size_t end, int thread),
          void *ctx)
{
    if (j->par)
        par_for_thread(j->par, n, grain, fn, ctx);
    else
        fn(ctx, 0, n, j->thread);
}

bool
stats_thread(const struct stats_job *j, int i)
{
    return j->par || i == j->thread;
}

static void
do_chunks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct summing *c = ctx;
    const struct stats_job *j = c->job;
    struct thread_scratch *t = &j->scratch->threads[thread];

    for (size_t i = begin; i < end && !t->err.status; i++) {
        uint64_t at = (j->first + i) * CHUNK;
        size_t n = smaller(j->v.n - at, CHUNK);

        if (view_read(&j->v, t->piece, at, n, &t->err) < 0)
            return;
        widen(t->f64, t->piece, j->v.dtype, n);
        if (c->chunks) {
            c->chunks[i].n_zero = moments_of(&c->chunks[i].m, t->f64, n);
            continue;
        }
        for (size_t k = 0; k < n; k++)
            if (isfinite(t->f64[k]))
                t->hist[hist_bin(j->st, (size_t)j->cmd->n_bins, t->f64[k])]++;
    }
}

/* All chunks, a span at a time; 'all' gets their sums, if wanted. */
static void
sum_chunks(struct stats_job *j, struct chunk_sums *chunks,
           struct chunk_sums *all)
{
    struct summing c = { j, chunks };
    size_t n_chunks = (j->v.n + CHUNK - 1) / CHUNK;

    for (j->first = 0; j->first < n_chunks; j->first += SPAN_CHUNKS) {
        size_t n = smaller(n_chunks - j->first, SPAN_CHUNKS);

        stats_for(j, n, 1, do_chunks, &c);
        for (size_t i = 0; chunks && i < n; i++) {
            moments_merge(&all->m, &chunks[i].m);
            all->n_zero += chunks[i].n_zero;
        }
    }
}

static void
f64_stats(struct stats_job *j)
{
    struct chunk_sums *chunks = xcalloc(SPAN_CHUNKS, sizeof(*chunks));
    struct chunk_sums all = { .m = MOMENTS_NONE };
    struct tensor_stats *st = j->st;
    size_t n_bins = (size_t)j->cmd->n_bins;

    sum_chunks(j, chunks, &all);
    free(chunks);
    st->n_nan = all.m.n_nan;
    st->n_inf = j->v.n - all.m.n - all.m.n_nan;
    st->n_zero = all.n_zero;
    st->n_finite = all.m.n;
    if (all.m.n == 0)
        return;
    st->min = all.m.min;
    st->max = all.m.max;
    st->mean = moments_mean(&all.m);
    st->std = moments_std(&all.m);
    if (dtype_table[j->v.dtype].bits == 32 && j->v.n <= UINT32_MAX)
        ranks_quantiles(j);
    if (!st->hist)
        return;
    hist_range(st);
    sum_chunks(j, NULL, NULL);
    for (int i = 0; i < j->scratch->n_threads; i++) {
        uint64_t *hist = j->scratch->threads[i].hist;

        if (!stats_thread(j, i))
            continue;
        for (size_t k = 0; k < n_bins; k++)
            st->hist[k] += hist[k];
        memset(hist, 0, n_bins * sizeof(*hist));
    }
}

void
stats_of(struct stats_job *j)
{
    j->st->n = j->v.n;
    j->st->min = j->st->max = j->st->mean = j->st->std = (double)NAN;
    j->st->known = widens(j->v.dtype);
    if (j->st->known)
        (is_counted(j->v.dtype) ? counts_stats : f64_stats)(j);
}

/* The tensors that are computed before their rows are written. */
struct window {
    const struct inspect_cmd *cmd;
    const struct selection *sel;
    struct stats_scratch *scratch;
    struct tensor_stats *stats; /* [sel->n] */
    size_t first;
};

/* Tensors smaller than LARGE_NBYTES, each by one thread. */
static void
stats_some(void *ctx, size_t begin, size_t end, int thread)
{
    const struct window *w = ctx;

    for (size_t i = w->first + begin; i < w->first + end; i++) {
        struct stats_job j = { .st = &w->stats[i],
                               .v = view_of(w->sel->t[i]),
                               .cmd = w->cmd,
                               .scratch = w->scratch,
                               .thread = thread };

        if (j.v.nbytes < LARGE_NBYTES)
            stats_of(&j);
    }
}

static void
put_json_numbers(struct str *to, const double *v, size_t n)
{
    str_addc(to, '[');
    for (size_t i = 0; i < n; i++) {
        str_adds(to, i ? "," : "");
        js_put_f64(to, v[i]);
    }
    str_addc(to, ']');
}

/* The members that TSV has no columns for. */
static void
put_json(struct record *row, const struct inspect_cmd *cmd,
         const struct tensor_stats *st)
{
    if (st->has_quantiles) {
        record_key(row, "quantiles");
        put_json_numbers(row->to, st->quantiles, cmd->n_quantiles);
    } else {
        record_none(row, "quantiles");
    }
    if (st->hist && st->n_finite) {
        record_key(row, "histogram");
        js_addf(row->to, "{\"from\":%g,\"to\":%g,\"counts\":", st->lo, st->hi);
        put_shape(row->to, (size_t)cmd->n_bins, st->hist);
        str_addc(row->to, '}');
    } else if (st->hist) {
        record_none(row, "histogram");
    }
}

static void
put_row(struct inspect_cmd *cmd, const struct st_tensor *t, const char *type,
        const struct tensor_stats *st)
{
    static const char *const names[] = { "n_nan", "n_inf", "n_zero", "min",
                                         "max",   "mean",  "std" };
    const uint64_t counts[] = { st->n_nan, st->n_inf, st->n_zero };
    const double values[] = { st->min, st->max, st->mean, st->std };
    struct record *row = &cmd->row;

    record_begin(row);
    record_name(row, "name", t->name, t->name_n);
    record_string(row, "dtype", type);
    if (cmd->json)
        row_shape(row, "shape", t->n_dims, t->shape);
    record_u64(row, "n_elements", st->n);
    for (int i = 0; i < 7; i++)
        if (!st->known)
            record_none(row, names[i]);
        else if (i < 3)
            record_u64(row, names[i], counts[i]);
        else
            record_f64(row, names[i], values[i - 3]);
    for (size_t i = 0; !cmd->json && i < cmd->n_quantiles; i++)
        if (st->has_quantiles)
            record_f64(row, NULL, st->quantiles[i]);
        else
            record_none(row, NULL);
    if (cmd->json)
        put_json(row, cmd, st);
    record_end(row);
}

void
scratch_close(struct stats_scratch *s)
{
    for (int i = 0; i < s->n_threads && s->threads; i++) {
        struct thread_scratch *t = &s->threads[i];

        mem_big_free(t->piece, PIECE_NBYTES, 1);
        mem_big_free(t->f64, CHUNK, sizeof(*t->f64));
        mem_big_free(t->tables, COUNT_TABLES * COUNT_KEYS, sizeof(*t->tables));
        mem_big_free(t->totals, COUNT_KEYS, sizeof(*t->totals));
        mem_big_free(t->values, COUNT_KEYS, sizeof(*t->values));
        free(t->hist);
    }
    for (int i = 0; i < DT_COUNT; i++) {
        free(s->order[i].values);
        free(s->order[i].keys);
        free(s->order[i].ranks);
    }
    free(s->threads);
}

int
scratch_open(struct stats_scratch *s, int n_threads, struct err *err)
{
    s->n_threads = n_threads;
    s->threads = xcalloc((size_t)n_threads, sizeof(*s->threads));
    for (int i = 0; i < n_threads; i++) {
        struct thread_scratch *t = &s->threads[i];

        t->piece = mem_big(PIECE_NBYTES, 1, "a buffer", err);
        t->f64 = mem_big(CHUNK, sizeof(*t->f64), "a buffer", err);
        t->tables = mem_big(COUNT_TABLES * COUNT_KEYS, sizeof(*t->tables),
                            "tables of counts", err);
        t->totals =
            mem_big(COUNT_KEYS, sizeof(*t->totals), "a table of counts", err);
        t->values =
            mem_big(COUNT_KEYS, sizeof(*t->values), "a table of values", err);
        t->hist = xcalloc(MAX_BINS, sizeof(*t->hist));
        if (!t->piece || !t->f64 || !t->tables || !t->totals || !t->values)
            return -1;
    }
    return 0;
}

/* All windows and their rows. */
static int
run(struct inspect_cmd *cmd, struct window *w, struct err *err)
{
    const struct selection *sel = w->sel;
    struct progress p = {
        .what = "stats", .unit = "B", .total = sel->nbytes, .quiet = cmd->quiet
    };
    uint64_t done = 0;
    size_t end;
    int rc = 0;

    progress_start(&p);
    for (; rc == 0 && w->first < sel->n; w->first = end) {
        uint64_t nbytes = 0;

        for (end = w->first; end < sel->n && end - w->first < WINDOW_TENSORS &&
                             nbytes < WINDOW_NBYTES;
             end++) {
            struct stats_job j = { .st = &w->stats[end],
                                   .v = view_of(sel->t[end]),
                                   .cmd = cmd,
                                   .scratch = w->scratch,
                                   .par = cmd->par };

            nbytes += j.v.nbytes;
            counts_prepare(w->scratch, j.v.dtype);
            rc = packed_bind(j.v.packed, cmd->par, err);
            if (rc < 0)
                break;
            if (j.v.nbytes >= LARGE_NBYTES)
                stats_of(&j);
        }
        if (rc == 0)
            par_for_thread(cmd->par, end - w->first, 1, stats_some, w);
        for (int i = 0; rc == 0 && i < w->scratch->n_threads; i++)
            if (w->scratch->threads[i].err.status) {
                *err = w->scratch->threads[i].err;
                rc = -1;
            }
        progress_at(&p, done += nbytes);
        for (size_t i = w->first; rc == 0 && i < end; i++) {
            const struct st_tensor *t = sel->t[i]->t;
            struct view v = view_of(sel->t[i]);

            if (packed_unbind(v.packed, err) < 0) {
                rc = -1;
                break;
            }
            if (cmd->plot)
                hist_plot(&cmd->text, &w->stats[i], (size_t)cmd->n_bins, t);
            else if (cmd->hist && !cmd->json)
                hist_rows(&cmd->row, &w->stats[i], (size_t)cmd->n_bins, t);
            else
                put_row(cmd, t, v.type, &w->stats[i]);
            rc = text_end(cmd, err);
        }
    }
    progress_end(&p);
    return rc;
}

int
stats_main(struct inspect_cmd *cmd, struct err *err)
{
    const char *path = one_operand(cmd, err);
    size_t n_bins = (size_t)cmd->n_bins;
    struct str *to = &cmd->text;
    struct selection sel;
    struct stats_scratch scratch = { 0 };
    struct window w = { .cmd = cmd, .sel = &sel, .scratch = &scratch };
    struct out *svg = NULL;
    uint64_t *hists = NULL;
    int rc = -1;

    if (!path || select_open(&sel, path, cmd, err) < 0)
        return -1;
    w.stats = mem_try(sel.n, sizeof(*w.stats), path, err);
    if (!w.stats)
        goto out;
    memset(w.stats, 0, sel.n * sizeof(*w.stats));
    /* before the work: an output that cannot be opened is reported at once */
    if ((cmd->svg &&
         out_open(&svg, cmd->svg, cmd->out_flags, false, err) < 0) ||
        par_open(&cmd->par, cmd->n_threads, err) < 0 ||
        scratch_open(&scratch, par_threads(cmd->par), err) < 0)
        goto out;
    if (cmd->hist || cmd->svg || cmd->plot) {
        hists = mem_big(sel.n, n_bins * sizeof(*hists), "histograms", err);
        if (!hists)
            goto out;
        for (size_t i = 0; i < sel.n; i++)
            w.stats[i].hist = hists + i * n_bins;
    }
    if (cmd->json) {
        js_addf(to, "{\"path\":%s,\"quantiles\":", path);
        put_json_numbers(to, cmd->quantiles, cmd->n_quantiles);
        str_adds(to, ",\"tensors\":[");
    } else if (cmd->hist) {
        str_adds(to, "name\tfrom\tto\tcount\tbar\n");
    } else if (!cmd->plot) {
        str_adds(to, "dtype\telements\tnan\tinf\tzeros\tmin\tmax\tmean\tstd");
        for (size_t i = 0; i < cmd->n_quantiles; i++)
            str_addf(to, "\tq%g", cmd->quantiles[i]);
        str_adds(to, "\tname\n");
    }
    rc = run(cmd, &w, err);
    if (cmd->json)
        str_adds(to, "\n]}\n");
    if (rc == 0 && svg) {
        rc = hist_svg(svg, cmd, &sel, w.stats, err);
        if (rc == 0)
            rc = out_commit(svg, err);
        else
            out_abort(svg);
        svg = NULL;
    }
    say_totals(cmd, &sel);
out:
    out_abort(svg);
    mem_big_free(hists, sel.n, n_bins * sizeof(*hists));
    free(w.stats);
    scratch_close(&scratch);
    select_close(&sel);
    return rc;
}
