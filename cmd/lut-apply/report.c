/* --report: the table against the layer. */
#include <stdlib.h>
#include <string.h>

#include "cmd/lut-apply/curve.h"
#include "cmd/lut-apply/input.h"
#include "cmd/lut-apply/run.h"
#include "core/js.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/table_stats.h"
#include "core/out.h"

#define SHOWN 20 /* dims of the ranking */

struct dim {
    size_t dim;
    uint64_t count;
};

static int
by_count(const void *a, const void *b)
{
    const struct dim *x = a, *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->dim < y->dim ? -1 : x->dim > y->dim;
}

static struct dim *
rank(const struct table_stats *stats, size_t in)
{
    const uint64_t *count = table_stats_fixed(stats);
    struct dim *dims = xcalloc(in, sizeof(*dims));

    for (size_t d = 0; d < in; d++)
        dims[d] = (struct dim){ d, count[d] };
    qsort(dims, in, sizeof(*dims), by_count);
    return dims;
}

struct line {
    const char *name;
    double value;
};

#define N_LINES 16

static void
fill(struct line *lines, const struct table_report *r, double threshold)
{
    const struct line all[N_LINES] = {
        { "rows", (double)r->rows },
        { "bad_rows", (double)r->bad_rows },
        { "active_mean", r->active_mean },
        { "positives_mean", r->positives_mean },
        { "dead", (double)r->dead },
        { "fvu_input", r->fvu_input },
        { "threshold", threshold },
        { "exceed", r->exceed },
        { "compensated_mean", r->fixed_mean },
        { "fvu_output", r->fvu_output },
        { "rel_l2", r->rel_l2 },
        { "row_rel_l2_p99", r->row_p99 },
        { "row_rel_l2_max", r->row_max },
        { "cosine_mean", r->cosine_mean },
        { "cosine_min", r->cosine_min },
        { "max_abs", r->max_abs },
    };

    for (size_t i = 0; i < N_LINES; i++)
        lines[i] = all[i];
}

static void
put_tsv(struct str *to, const struct line *lines, const struct dim *dims,
        size_t in)
{
    str_adds(to, "metric\tvalue\n");
    for (size_t i = 0; i < N_LINES; i++) {
        str_addf(to, "%s\t", lines[i].name);
        js_put_f64(to, lines[i].value);
        str_addc(to, '\n');
    }
    for (size_t i = 0; i < in && i < SHOWN && dims[i].count; i++)
        str_addf(to, "dim %zu\t%llu\n", dims[i].dim,
                 (unsigned long long)dims[i].count);
}

static void
put_json(struct str *to, const char *name, const struct line *lines,
         const struct dim *dims, size_t in)
{
    str_adds(to, "{\"layer\":");
    js_put_str(to, name, strlen(name));
    for (size_t i = 0; i < N_LINES; i++) {
        str_addf(to, ",\"%s\":", lines[i].name);
        js_put_f64(to, lines[i].value);
    }
    str_adds(to, ",\"dims\":[");
    for (size_t i = 0; i < in && dims[i].count; i++)
        str_addf(to, "%s[%zu,%llu]", i ? "," : "", dims[i].dim,
                 (unsigned long long)dims[i].count);
    str_adds(to, "]}\n");
}

static int
put_report(const struct apply_run *run, const struct table_stats *stats,
           struct err *err)
{
    struct line lines[N_LINES];
    struct table_report r;
    size_t in = run->layer.bound.table.in;
    struct dim *dims = rank(stats, in);
    struct str s = { 0 };
    int rc;

    table_stats_get(stats, &r);
    fill(lines, &r, run->layer.threshold);
    if (run->cmd->json)
        put_json(&s, run->layer.bound.file.layer->name, lines, dims, in);
    else
        put_tsv(&s, lines, dims, in);
    rc = out_write(run->cmd->out, s.s, s.n, err);
    str_free(&s);
    free(dims);
    return rc;
}

int
report_main(struct apply_run *run, struct err *err)
{
    const struct table *t = &run->layer.bound.table;
    struct table_stats *stats = table_stats_new(t, run->layer.threshold);
    struct curve *curve;
    ssize_t n = curve_open(&curve, run, err);

    while (n >= 0 &&
           (n = input_rows(&run->input, run->x, run->batch, err)) > 0) {
        table_apply(run->work, t, &run->layer.fix, run->y, t->out, run->x,
                    t->in, (size_t)n, TABLE_ERROR | TABLE_COUNT);
        table_dense(run->gemm, t, run->dense, t->out, run->x, t->in, (size_t)n);
        for (size_t i = 0; i < (size_t)n; i++)
            vec_add(run->dense + i * t->out, run->layer.bound.bias, t->out);
        table_stats_add(stats, run->work, run->y, t->out, run->dense, t->out,
                        run->x, t->in, (size_t)n);
        curve_add(curve, run, (size_t)n);
    }
    if (n == 0)
        n = put_report(run, stats, err);
    if (n == 0)
        n = curve_commit(curve, run, err);
    curve_close(curve);
    table_stats_free(stats);
    return n < 0 ? -1 : 0;
}
