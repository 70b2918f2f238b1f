/* SPDX-License-Identifier: ISC */
#include "core/model/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/lut.h"
#include "core/js.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/linear.h"
#include "core/model/model.h"
#include "core/model/names.h"
#include "core/model/parts.h"
#include "core/model/table.h"
#include "core/model/table_dims.h"
#include "core/model/table_stats.h"
#include "core/tty.h"

enum { TABLE_RUNS = 5 };

struct tabled {
    struct table table;
    struct table_fix fix;
    struct linear *parts[LUT_MAX_PARTS]; /* that the table stands for */
    size_t n_parts;
    uint32_t *dims;            /* of fix, or NULL */
    struct table_stats *stats; /* NULL without a report */
    struct timed {
        double rows, table, layer; /* seconds */
    } runs[TABLE_RUNS];
    size_t n_chunks; /* timed */
    uint64_t n_bad;  /* rows of outputs with a number that is NaN or infinite */
};

struct tables {
    struct lut lut;
    struct model *model;
    size_t n;
    struct tabled *tabled; /* [n] */
    struct latents_sizes sizes;
    size_t max_out;
    bool timed;
};

/* Gives the linear layers that a table stands for this table. */
static int
bind_parts(struct tables *ts, struct tabled *tabled, struct err *err)
{
    struct table *t = &tabled->table;
    const char *name = t->file.layer->name, *lut = ts->lut.path;
    char *parts[LUT_MAX_PARTS] = { xstrdup(name) };
    size_t n = 1;
    int rc = 0;

    if (!model_linear(ts->model, name)) { /* none that is fused in the model */
        free(parts[0]);
        n = lut_parts(name, parts);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct linear *l = model_linear(ts->model, parts[i]);
        struct part_at at;
        size_t col = t->n_bound;

        if (!l || l == &ts->model->lm_head)
            rc = err_set(err, EX_DATAERR,
                         "%s/metadata.json: %s is not a linear layer of %s",
                         lut, parts[i], ts->model->dir.path);
        else if (part_find(&at, ts->model->config.family, parts[i]) &&
                 at.part >= PART_ROUTER)
            rc = err_set(err, EX_DATAERR,
                         "%s/metadata.json: %s is a layer of experts, which "
                         "run without tables (--lut-layers selects)",
                         lut, parts[i]);
        else if (l->table)
            rc = err_set(err, EX_DATAERR,
                         "%s/metadata.json: has two tables for %s "
                         "(--lut-layers selects)",
                         lut, parts[i]);
        else if (!table_bind(t, l))
            rc = err_set(err, EX_DATAERR,
                         "%s: has %zu inputs and %zu outputs, but %s of the "
                         "model has %zu and %zu",
                         t->file.st.path, t->in, t->out, parts[i], l->in,
                         l->out);
        if (rc == 0) {
            l->table = tabled;
            l->table_col = col;
            tabled->parts[tabled->n_parts++] = l;
        }
    }
    if (rc == 0 && !table_bind_end(t))
        rc = err_set(err, EX_DATAERR,
                     "%s: has %zu outputs, but %s of the model %zu",
                     t->file.st.path, t->out, name, t->n_bound);
    for (size_t i = 0; i < n; i++)
        free(parts[i]);
    return rc;
}

/* Which inputs of a table, whose parts are bound, are compensated. */
static int
select_dims(const struct tables *ts, struct tabled *t,
            const struct tables_options *o, struct err *err)
{
    const struct lut_layer *l = t->table.file.layer;
    struct str path = { 0 };
    int rc;

    if (o->dims) {
        str_addf(&path, "%s/%s.npy", o->dims, l->name);
        rc = table_read_dims(&t->fix, &t->dims, path.s, l->in, err);
        str_free(&path);
        return rc == 0 && t->fix.how == FIX_DIMS
                   ? table_pack_dims(&t->table, &t->fix, err)
                   : rc;
    }
    if (o->tau >= 0 && isnan(l->elbow))
        return err_set(err, EX_DATAERR,
                       "%s/metadata.json: has no elbow threshold for %s "
                       "(lut-precompute calibrate sets it)",
                       ts->lut.path, l->name);
    if (o->tau >= 0)
        t->fix = (struct table_fix){ .how = FIX_OVER,
                                     .threshold = (float)(o->tau * l->elbow) };
    else if (o->ratio > 0)
        t->fix = (struct table_fix){ .how = FIX_TOP,
                                     .top = table_ratio(l->in, o->ratio) };
    return table_transpose(&t->table, &t->fix, err);
}

int
tables_open(struct tables **tables, struct model *model, const char *dir,
            const struct tables_options *o, struct err *err)
{
    struct tables *ts = xcalloc(1, sizeof(*ts));
    const char *unused;
    struct globs globs;
    int rc = lut_open(&ts->lut, dir, err);

    *tables = NULL;
    globs_open(&globs, o->layers);
    ts->model = model;
    ts->timed = o->times || o->report;
    ts->tabled = xcalloc(ts->lut.n_layers, sizeof(*ts->tabled));
    for (size_t i = 0; i < ts->lut.n_layers; i++)
        globs_use(&globs, ts->lut.layers[i].name);
    unused = globs_unused(&globs);
    if (rc == 0 && o->layers && globs.n == 0)
        rc = err_set(err, TU_USAGE, "--lut-layers: \"%s\" has no pattern",
                     o->layers);
    else if (rc == 0 && unused)
        rc = err_set(err, EX_DATAERR,
                     "%s/metadata.json: has no layer %s (--lut-layers)%s",
                     ts->lut.path, unused, globs_hint(&globs));
    for (size_t i = 0; i < ts->lut.n_layers && rc == 0; i++) {
        const struct lut_layer *l = &ts->lut.layers[i];
        struct tabled *t = &ts->tabled[ts->n];

        if (o->layers && !globs_match(&globs, l->name))
            continue;
        rc = table_open(&t->table, &ts->lut, l, err);
        if (rc < 0)
            break;
        ts->n++;
        if (bind_parts(ts, t, err) < 0 || select_dims(ts, t, o, err) < 0)
            rc = -1;
        if (rc == 0 && o->screen)
            table_screen(&t->table);
        latents_size(&ts->sizes, &t->table.latents);
        if (rc == 0 && o->report)
            t->stats = table_stats_new(&t->table, l->elbow);
        ts->max_out = larger(ts->max_out, l->out);
    }
    if (rc == 0 && ts->n == 0)
        rc = err_set(err, EX_DATAERR, "%s/metadata.json: has no layers",
                     ts->lut.path);
    globs_close(&globs);
    model->tables = ts;
    if (rc < 0)
        tables_close(ts);
    else
        *tables = ts;
    return rc;
}

void
tables_close(struct tables *ts)
{
    const struct tabled *bad = NULL;
    int n_bad = 0;

    if (!ts)
        return;
    for (size_t i = ts->n; i-- > 0;)
        if (ts->tabled[i].n_bad) {
            bad = &ts->tabled[i];
            n_bad++;
        }
    if (bad)
        err_warn("%s: %llu row%s of outputs %s NaN or infinite%s",
                 bad->table.file.st.path, (unsigned long long)bad->n_bad,
                 plural(bad->n_bad), bad->n_bad == 1 ? "is" : "are",
                 n_bad > 1 ? ", and of other tables" : "");
    for (size_t i = 0; i < (size_t)ts->model->config.n_layers; i++) {
        struct layer *l = &ts->model->layers[i];

        l->qkv.table = l->mlp.gate_up.table = NULL;
        l->q.table = l->k.table = l->v.table = l->o.table = NULL;
        l->mlp.gate.table = l->mlp.up.table = l->mlp.down.table = NULL;
    }
    ts->model->tables = NULL;
    for (size_t i = 0; i < ts->n; i++) {
        table_stats_free(ts->tabled[i].stats);
        free(ts->tabled[i].dims);
        table_close(&ts->tabled[i].table);
    }
    free(ts->tabled);
    lut_close(&ts->lut);
    free(ts);
}

size_t
tables_count(const struct tables *ts)
{
    return ts->n;
}

const char *
tables_layer(const struct tables *ts, size_t i)
{
    return ts->tabled[i].table.file.layer->name;
}

void
tables_use(struct tables *ts, size_t i, bool use)
{
    struct tabled *tabled = &ts->tabled[i];

    for (size_t k = 0; k < tabled->n_parts; k++)
        tabled->parts[k]->table = use ? tabled : NULL;
}

struct table_times
tables_times(const struct tables *ts, size_t i)
{
    const struct timed *run = ts->tabled[i].runs;
    double table[TABLE_RUNS], layer[TABLE_RUNS];

    if (ts->tabled[i].n_chunks == 0)
        return (struct table_times){ 0 };
    for (size_t r = 0; r < TABLE_RUNS; r++) {
        table[r] = run[r].table / run[r].rows;
        layer[r] = run[r].layer / run[r].rows;
    }
    qsort(table, TABLE_RUNS, sizeof(*table), by_f64);
    qsort(layer, TABLE_RUNS, sizeof(*layer), by_f64);
    return (struct table_times){ table[TABLE_RUNS / 2], layer[TABLE_RUNS / 2] };
}

size_t
tables_stored(const struct tables *ts)
{
    size_t n = 0;

    for (size_t i = 0; i < ts->n; i++)
        n += ts->tabled[i].table.file.compensation_weight_t != NULL;
    return n;
}

void
tables_screened(const struct tables *ts, struct screen_counts *to)
{
    for (size_t i = 0; ts && i < ts->n; i++)
        screen_count(ts->tabled[i].table.latents.screen, to);
}

/* ---- memory ---- */

size_t
tables_floats(const struct tables *ts)
{
    return ts ? 3 * ts->sizes.in + 2 * (ts->max_out + ts->sizes.k) : 0;
}

int
tables_work_open(struct engine *e, struct err *err)
{
    const struct tables *ts = e->model->tables;

    if (!ts)
        return 0;
    if (table_work_open(&e->table_work, e->gemm, &ts->sizes, e->options.chunk,
                        err) < 0)
        return -1;
    e->table_y = mem_big(e->options.chunk * 2, ts->max_out * sizeof(float),
                         "the outputs of tables", err);
    e->table_out = ts->max_out;
    return e->table_y ? 0 : -1;
}

void
tables_work_close(struct engine *e)
{
    mem_big_free(e->table_y, e->options.chunk * 2,
                 e->table_out * sizeof(float));
    table_work_close(e->table_work);
}

/* ---- running, and what it costs ---- */

/* A table's outputs, in e->table_y; how many rows are bad. */
static uint64_t
apply_table(struct engine *e, struct tabled *tabled, const float *x, size_t n)
{
    const struct table *t = &tabled->table;
    uint64_t n_bad = 0;

    for (size_t i = 0, some; i < n; i += some) {
        some = smaller(n - i, table_work_rows(e->table_work));
        n_bad +=
            table_apply(e->table_work, t, &tabled->fix, e->table_y + i * t->out,
                        t->out, x + i * t->in, t->in, some, 0);
    }
    return n_bad;
}

/* How near the layer a table is: with what table_apply() has to find for it. */
static void
compare_table(struct engine *e, struct tabled *tabled, const float *x, size_t n)
{
    const struct table *t = &tabled->table;
    float *dense = e->table_y + e->options.chunk * e->table_out;

    for (size_t i = 0, some; i < n; i += some) {
        const float *from = x + i * t->in;
        float *y = e->table_y + i * t->out;

        some = smaller(n - i, table_work_rows(e->table_work));
        table_apply(e->table_work, t, &tabled->fix, y, t->out, from, t->in,
                    some, TABLE_ERROR | TABLE_COUNT);
        table_dense(e->gemm, t, dense, t->out, from, t->in, some);
        table_stats_add(tabled->stats, e->table_work, y, t->out, dense, t->out,
                        from, t->in, some);
    }
}

/* The layer as it runs without its table, to nowhere. */
static void
apply_layer(struct engine *e, struct tabled *tabled, const struct chunk *chunk,
            const float *x)
{
    float *to = e->table_y + e->options.chunk * e->table_out;
    struct apply parts[MAX_APPLY];

    for (size_t i = 0; i < tabled->n_parts; i++) {
        parts[i] = (struct apply){ tabled->parts[i], to, false };
        to += chunk->n_rows * tabled->parts[i]->out;
    }
    linear_dense(e, chunk, parts, tabled->n_parts, x);
}

/* Both in turns, in one run of several: a chunk in the next, the first in all.
 * By the CPU time of all threads: what passes while a neighbour has a CPU says
 * nothing about either, nor does one thread's time, as then others do its part.
 */
static uint64_t
time_table(struct engine *e, struct tabled *tabled, const struct chunk *chunk,
           const float *x)
{
    size_t first = tabled->n_chunks++;
    uint64_t n_bad = 0;

    for (size_t i = first; i < (first ? first + 1 : TABLE_RUNS); i++) {
        struct timed *run = &tabled->runs[i % TABLE_RUNS];
        double t0 = par_cpu_s(e->par), t1;

        apply_layer(e, tabled, chunk, x);
        t1 = par_cpu_s(e->par);
        n_bad = apply_table(e, tabled, x, chunk->n_rows);
        run->layer += t1 - t0;
        run->table += par_cpu_s(e->par) - t1;
        run->rows += (double)chunk->n_rows;
    }
    return n_bad;
}

size_t
tables_apply(struct engine *e, const struct chunk *chunk,
             const struct apply *to, size_t n, const float *x,
             struct apply *rest)
{
    const struct tables *ts = e->model->tables;
    const struct tabled *last = NULL;
    size_t n_rest = 0;

    for (size_t i = 0; i < n; i++) {
        const struct linear *l = to[i].linear;
        struct tabled *tabled =
            l->table ? ts->tabled + (l->table - ts->tabled) : NULL;
        const struct table *t;

        if (!tabled) {
            rest[n_rest++] = to[i];
            continue;
        }
        t = &tabled->table;
        if (tabled != last && ts->timed && t->latents.screen)
            screen_ready(t->latents.screen, e->gemm, chunk->n_rows);
        if (tabled != last)
            tabled->n_bad += ts->timed
                                 ? time_table(e, tabled, chunk, x)
                                 : apply_table(e, tabled, x, chunk->n_rows);
        if (tabled != last && tabled->stats)
            compare_table(e, tabled, x, chunk->n_rows);
        last = tabled;
        for (size_t r = 0; r < chunk->n_rows; r++) {
            const float *part = e->table_y + r * t->out + l->table_col;

            if (to[i].add)
                vec_add(to[i].y + r * l->out, part, l->out);
            else
                memcpy(to[i].y + r * l->out, part, l->out * sizeof(*part));
        }
    }
    return n_rest;
}

void
tables_report(const struct tables *ts, struct str *tsv)
{
    double v[TABLE_N_METRICS];

    str_adds(tsv, "layer");
    for (size_t k = 0; k < TABLE_N_METRICS; k++)
        str_addf(tsv, "\t%s", table_metric_names[k]);
    str_addc(tsv, '\n');
    for (size_t i = 0; i < ts->n; i++) {
        str_adds(tsv, ts->tabled[i].table.file.layer->name);
        table_stats_get(ts->tabled[i].stats, v);
        for (size_t k = 0; k < TABLE_N_METRICS; k++) {
            str_addc(tsv, '\t');
            js_put_f64(tsv, v[k]);
        }
        str_addc(tsv, '\n');
    }
}
