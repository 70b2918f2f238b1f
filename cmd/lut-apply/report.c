/* SPDX-License-Identifier: ISC */
/* --report: the table against the layer; --svg, --plot: the output's FVU
 * against the ratio of compensated inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/lut-apply/apply.h"
#include "core/chart.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/model/table_stats.h"
#include "core/tty.h"

#define N_SHOWN 20 /* dims of the ranking, in TSV */

#define N_POINTS 21 /* ratios 0, 0.05 .. 1 */

/* ---- the picture ---- */

struct curve {
    struct out *out; /* NULL: none is drawn */
    struct table_stats *stats[N_POINTS];
};

static void
put_picture(struct str *to, const struct curve *c, const struct apply_run *run,
            void (*draw)(struct str *, const struct chart *))
{
    double x[N_POINTS], fvu[N_POINTS], v[TABLE_N_METRICS];
    struct str subtitle = { 0 }, says = { 0 };
    struct chart_line line = { x, fvu, .n = N_POINTS };
    struct chart chart = {
        .title = run->table.file.layer->name,
        .about = "",
        .x = "ratio of each row's inputs that are compensated",
        .y = "FVU of the output",
        .right = 1,
        .lines = &line,
        .n_lines = 1,
    };

    for (size_t i = 0; i < N_POINTS; i++) {
        table_stats_get(c->stats[i], v);
        x[i] = (double)i / (N_POINTS - 1);
        fvu[i] = v[TABLE_FVU_OUTPUT];
        if (i % (N_POINTS / 4) == 0)
            str_addf(&says, "%s%g: %.3g", i ? ", " : "ratio ", x[i], fvu[i]);
    }
    str_addf(&subtitle, "%.0f row%s, %zu of %zu directions", v[TABLE_ROWS],
             plural((uint64_t)v[TABLE_ROWS]), run->table.latents.k,
             run->table.n_basis);
    chart.subtitle = subtitle.s;
    line.says = says.s;
    chart.n_lines = v[TABLE_ROWS] > 0;
    draw(to, &chart);
    str_free(&subtitle);
    str_free(&says);
}

/* ---- the report ---- */

struct dim_count {
    size_t dim;
    uint64_t count;
};

static int
by_count(const void *a, const void *b)
{
    const struct dim_count *x = a, *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->dim < y->dim ? -1 : x->dim > y->dim;
}

static void
put_report(struct str *to, const struct apply_run *run,
           const struct table_stats *stats)
{
    const uint64_t *count = table_stats_fixed(stats);
    const char *name = run->table.file.layer->name;
    size_t in = run->table.in;
    struct dim_count *dims = xcalloc(in, sizeof(*dims));
    bool json = run->cmd->json;
    double v[TABLE_N_METRICS];

    for (size_t d = 0; d < in; d++)
        dims[d] = (struct dim_count){ d, count[d] };
    qsort(dims, in, sizeof(*dims), by_count);
    table_stats_get(stats, v);
    str_adds(to, json ? "{\"layer\":" : "metric\tvalue\n");
    if (json)
        js_put_str(to, name, strlen(name));
    for (size_t i = 0; i < TABLE_N_METRICS; i++) {
        str_addf(to, json ? ",\"%s\":" : "%s\t", table_metric_names[i]);
        js_put_f64(to, v[i]);
        if (!json)
            str_addc(to, '\n');
    }
    if (json)
        str_adds(to, ",\"dims\":[");
    for (size_t i = 0; i < in && (json || i < N_SHOWN) && dims[i].count; i++) {
        if (json && i > 0)
            str_addc(to, ',');
        str_addf(to, json ? "[%zu,%llu]" : "dim %zu\t%llu\n", dims[i].dim,
                 (unsigned long long)dims[i].count);
    }
    if (json)
        str_adds(to, "]}\n");
    free(dims);
}

int
report_main(struct apply_run *run, struct err *err)
{
    const struct apply_cmd *cmd = run->cmd;
    const struct table *t = &run->table;
    struct table_fix fix = { .how = FIX_TOP, .by = run->fix.by };
    struct table_stats *stats = table_stats_new(t, run->threshold);
    struct curve curve = { 0 };
    struct str s = { 0 };
    struct out *out;
    bool drawn = cmd->svg || cmd->plot;
    ssize_t n = 0;

    if (cmd->svg)
        n = out_open(&curve.out, cmd->svg, cmd->out_flags, false, err);
    for (size_t i = 0; drawn && i < N_POINTS; i++)
        curve.stats[i] = table_stats_new(t, NAN);
    run->input.takes_many = true;
    while (n >= 0 &&
           (n = row_input_rows(&run->input, run->x, run->batch, err)) > 0) {
        table_apply(run->work, t, &run->fix, run->y, t->out, run->x, t->in,
                    (size_t)n, TABLE_ERROR | TABLE_COUNT);
        table_dense(run->gemm, t, run->dense, t->out, run->x, t->in, (size_t)n);
        table_stats_add(stats, run->work, run->y, t->out, run->dense, t->out,
                        run->x, t->in, (size_t)n);
        /* the same rows at each of the picture's ratios */
        for (size_t i = 0; drawn && i < N_POINTS; i++) {
            fix.top = table_ratio(t->in, (double)i / (N_POINTS - 1));
            table_combine(run->work, t, run->y, t->out, (size_t)n);
            table_compensate(run->work, t, &fix, run->y, t->out, run->x, t->in,
                             (size_t)n, TABLE_ERROR);
            table_stats_add(curve.stats[i], run->work, run->y, t->out,
                            run->dense, t->out, run->x, t->in, (size_t)n);
        }
    }
    if (n == 0) {
        if (cmd->plot)
            put_picture(&s, &curve, run, chart_text);
        else
            put_report(&s, run, stats);
        n = out_write(cmd->out, s.s, s.n, err);
    }
    if (n == 0 && curve.out) {
        str_clear(&s);
        put_picture(&s, &curve, run, chart_svg);
        n = out_write(curve.out, s.s, s.n, err);
    }
    out = curve.out;
    if (n == 0 && out) {
        curve.out = NULL;
        n = out_commit(out, err);
    }
    out_abort(curve.out);
    for (size_t i = 0; i < N_POINTS; i++)
        table_stats_free(curve.stats[i]);
    table_stats_free(stats);
    str_free(&s);
    return n < 0 ? -1 : 0;
}
