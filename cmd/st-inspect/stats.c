/* stats: ranges, moments, quantiles and histograms of tensors. */
#include "cmd/st-inspect/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/counts.h"
#include "cmd/st-inspect/hist.h"
#include "cmd/st-inspect/moments.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/text.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/tty.h"

/* Tensors from here on are spread over the threads; of smaller ones each is
 * one thread's. */
#define LARGE_NBYTES ((size_t)32 << 20)

/* Rows appear after so many tensors, or so many bytes. */
#define WINDOW_TENSORS 256
#define WINDOW_NBYTES  ((uint64_t)1 << 30)

struct window {
    const struct inspect_cmd *cmd;
    const struct selection *sel;
    struct stats_scratch *scratch;
    struct tensor_stats *stats; /* [sel->n] */
    size_t first;
};

void
stats_of(struct tensor_stats *st, const struct view *v,
         const struct inspect_cmd *cmd, struct stats_scratch *s,
         struct par *par, int thread)
{
    st->n = v->n;
    st->min = st->max = st->mean = st->std = (double)NAN;
    if (!widens(v->dtype))
        return;
    st->known = true;
    if (is_counted(v->dtype))
        counts_stats(st, v, cmd, s, par, thread);
    else
        moments_stats(st, v, cmd, s, par, thread);
}

static void
stats_some(void *ctx, size_t begin, size_t end, int thread)
{
    struct window *w = ctx;

    for (size_t i = w->first + begin; i < w->first + end; i++) {
        struct view v = view_of(w->sel->t[i]);

        if (v.nbytes < LARGE_NBYTES)
            stats_of(&w->stats[i], &v, w->cmd, w->scratch, NULL, thread);
    }
}

/* The tensors from w->first on, as many as make a window; returns the end. */
static size_t
do_window(struct window *w)
{
    size_t end = w->first, n = 0;
    uint64_t nbytes = 0;

    for (; end < w->sel->n && n < WINDOW_TENSORS && nbytes < WINDOW_NBYTES;
         end++, n++) {
        struct view v = view_of(w->sel->t[end]);

        nbytes += v.nbytes;
        scratch_prepare(w->scratch, v.dtype);
        if (v.nbytes >= LARGE_NBYTES)
            stats_of(&w->stats[end], &v, w->cmd, w->scratch, w->cmd->par, 0);
    }
    par_for(w->cmd->par, n, 1, stats_some, w);
    return end;
}

static void
put_value(struct str *to, bool known, double v)
{
    str_addc(to, '\t');
    if (known)
        put_g6(to, v);
    else
        str_addc(to, '-');
}

static void
put_count(struct str *to, bool known, uint64_t n)
{
    str_addc(to, '\t');
    if (known)
        put_u64(to, n);
    else
        str_addc(to, '-');
}

static void
put_row(struct str *to, const struct inspect_cmd *cmd,
        const struct st_tensor *t, const struct tensor_stats *st)
{
    str_adds(to, dtype_table[t->dtype].name);
    put_count(to, true, st->n);
    put_count(to, st->known, st->n_nan);
    put_count(to, st->known, st->n_inf);
    put_count(to, st->known, st->n_zero);
    put_value(to, st->known, st->min);
    put_value(to, st->known, st->max);
    put_value(to, st->known, st->mean);
    put_value(to, st->known, st->std);
    for (size_t i = 0; i < cmd->n_quantiles; i++)
        put_value(to, st->has_quantiles, st->quantiles[i]);
    str_addc(to, '\t');
    str_esc(to, t->name, t->name_n);
    str_addc(to, '\n');
}

static void
put_json_count(struct str *to, const char *key, const struct tensor_stats *st,
               uint64_t n)
{
    put_json_key(to, key);
    if (st->known)
        put_u64(to, n);
    else
        str_adds(to, "null");
}

static void
put_json_hist(struct str *to, const struct tensor_stats *st, size_t n_bins)
{
    put_json_key(to, "histogram");
    if (!st->n_finite) {
        str_adds(to, "null");
        return;
    }
    str_adds(to, "{\"from\":");
    js_put_f64(to, st->lo);
    put_json_f64(to, "to", st->hi);
    put_json_key(to, "counts");
    put_shape(to, n_bins, st->hist);
    str_addc(to, '}');
}

static void
put_json(struct str *to, const struct inspect_cmd *cmd,
         const struct st_tensor *t, const struct tensor_stats *st)
{
    str_adds(to, "{\"name\":");
    js_put_str(to, t->name, t->name_n);
    put_json_text(to, "dtype", dtype_table[t->dtype].name);
    put_json_key(to, "shape");
    put_shape(to, t->n_dims, t->shape);
    put_json_u64(to, "n_elements", st->n);
    put_json_count(to, "n_nan", st, st->n_nan);
    put_json_count(to, "n_inf", st, st->n_inf);
    put_json_count(to, "n_zero", st, st->n_zero);
    put_json_f64(to, "min", st->min);
    put_json_f64(to, "max", st->max);
    put_json_f64(to, "mean", st->mean);
    put_json_f64(to, "std", st->std);
    put_json_key(to, "quantiles");
    for (size_t i = 0; st->has_quantiles && i < cmd->n_quantiles; i++) {
        str_addc(to, i ? ',' : '[');
        js_put_f64(to, st->quantiles[i]);
    }
    str_adds(to, st->has_quantiles ? "]" : "null");
    if (st->hist)
        put_json_hist(to, st, (size_t)cmd->n_bins);
    str_addc(to, '}');
}

static void
put_head(struct str *to, const struct inspect_cmd *cmd, const char *path)
{
    if (cmd->json) {
        str_adds(to, "{\"path\":");
        put_json_str(to, path);
        put_json_key(to, "quantiles");
        for (size_t i = 0; i < cmd->n_quantiles; i++) {
            str_addc(to, i ? ',' : '[');
            js_put_f64(to, cmd->quantiles[i]);
        }
        str_adds(to, "],\"tensors\":[");
    } else if (cmd->hist) {
        str_adds(to, "name\tfrom\tto\tcount\tbar\n");
    } else {
        str_adds(to, "dtype\telements\tnan\tinf\tzeros\tmin\tmax\tmean\tstd");
        for (size_t i = 0; i < cmd->n_quantiles; i++)
            str_addf(to, "\tq%g", cmd->quantiles[i]);
        str_adds(to, "\tname\n");
    }
}

static int
put_window(struct inspect_cmd *cmd, const struct window *w, size_t end,
           struct err *err)
{
    for (size_t i = w->first; i < end; i++) {
        const struct st_tensor *t = w->sel->t[i]->t;

        if (cmd->json) {
            str_adds(&cmd->text, i ? ",\n" : "\n");
            put_json(&cmd->text, cmd, t, &w->stats[i]);
        } else if (cmd->hist) {
            hist_rows(&cmd->text, &w->stats[i], (size_t)cmd->n_bins, t);
        } else {
            put_row(&cmd->text, cmd, t, &w->stats[i]);
        }
        if (text_end(cmd, err) < 0)
            return -1;
    }
    return 0;
}

static int
run(struct inspect_cmd *cmd, struct window *w, struct err *err)
{
    struct progress p = { .what = "stats",
                          .unit = "B",
                          .total = w->sel->nbytes,
                          .quiet = cmd->quiet };
    uint64_t done = 0;
    size_t end;
    int rc = 0;

    progress_start(&p);
    for (; rc == 0 && w->first < w->sel->n; w->first = end) {
        end = do_window(w);
        for (size_t i = w->first; i < end; i++)
            done += w->sel->t[i]->t->nbytes;
        progress_at(&p, done);
        rc = scratch_error(w->scratch, err);
        rc = rc == 0 ? put_window(cmd, w, end, err) : rc;
    }
    progress_end(&p);
    return rc;
}

/* Room for the histograms, in one piece; 'all' is NULL if none is wanted. */
static int
add_hists(struct window *w, uint64_t **all, struct err *err)
{
    size_t n_bins = (size_t)w->cmd->n_bins;

    *all = NULL;
    if (!w->cmd->hist && !w->cmd->svg)
        return 0;
    *all = mem_big(w->sel->n, n_bins * sizeof(**all), "histograms", err);
    for (size_t i = 0; *all && i < w->sel->n; i++)
        w->stats[i].hist = *all + i * n_bins;
    return *all ? 0 : -1;
}

int
stats_main(struct inspect_cmd *cmd, struct err *err)
{
    const char *path = one_operand(cmd, err);
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
    /* before the work: an output that cannot be is told at once */
    if ((cmd->svg &&
         out_open(&svg, cmd->svg, cmd->out_flags, false, err) < 0) ||
        par_open(&cmd->par, cmd->n_threads, err) < 0 ||
        scratch_open(&scratch, par_threads(cmd->par), err) < 0 ||
        add_hists(&w, &hists, err) < 0)
        goto out;
    put_head(&cmd->text, cmd, path);
    rc = run(cmd, &w, err);
    if (cmd->json)
        str_adds(&cmd->text, "\n]}\n");
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
    mem_big_free(hists, sel.n, (size_t)cmd->n_bins * sizeof(*hists));
    free(w.stats);
    scratch_close(&scratch);
    select_close(&sel);
    return rc;
}
