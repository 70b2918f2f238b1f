#include "core/model/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/lut.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/linear.h"
#include "core/model/model.h"
#include "core/model/names.h"
#include "core/model/table.h"
#include "core/model/table_bind.h"
#include "core/model/table_stats.h"

struct tabled {
    struct bound_table bound;
    struct table_fix fix;
    struct table_stats *stats; /* NULL without a report */
};

struct tables {
    struct lut lut;
    struct model *model;
    size_t n;
    struct tabled *tabled; /* [n] */
    size_t max_in, max_out, max_k;
};

/* The linear layer of a name, where it can have a table. */
static struct linear *
find_linear(struct tables *ts, const char *name, struct err *err)
{
    struct linear *l = model_linear(ts->model, name);
    const char *module = strstr(name, ".mlp.");

    if (!l || l == &ts->model->lm_head) {
        err_set(err, EX_DATAERR,
                "%s/metadata.json: %s is no linear layer of %s", ts->lut.path,
                name, ts->model->dir.path);
        return NULL;
    }
    if (module && (!strncmp(module, ".mlp.experts.", 13) ||
                   !strcmp(module, ".mlp.gate"))) {
        err_set(err, EX_DATAERR,
                "%s/metadata.json: %s is a layer of experts, which run without "
                "tables (--lut-layers chooses)",
                ts->lut.path, name);
        return NULL;
    }
    return l;
}

/* ---- opening ---- */

static int
bind_part(struct tables *ts, struct tabled *t, const char *name,
          struct err *err)
{
    struct linear *l = find_linear(ts, name, err);
    size_t col = t->bound.n_bound;

    if (!l)
        return -1;
    if (l->table)
        return err_set(err, EX_DATAERR,
                       "%s/metadata.json: has two tables for %s (--lut-layers "
                       "chooses)",
                       ts->lut.path, name);
    if (!table_bind_part(&t->bound, l))
        return err_set(err, EX_DATAERR,
                       "%s: is of %zu inputs and %zu outputs, but %s of the "
                       "model has %zu and %zu",
                       t->bound.file.st.path, t->bound.table.in,
                       t->bound.table.out, name, l->cols, l->rows);
    l->table = t;
    l->table_col = col;
    return 0;
}

static int
bind_parts(struct tables *ts, struct tabled *t, struct err *err)
{
    const struct lut_layer *layer = t->bound.file.layer;
    char *parts[LUT_MAX_PARTS];
    size_t n = lut_parts(layer->name, parts);
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = bind_part(ts, t, parts[i], err);
    if (rc == 0 && !table_bind_end(&t->bound))
        rc = err_set(
            err, EX_DATAERR, "%s: has %zu outputs, but %s of the model %zu",
            t->bound.file.st.path, layer->out, layer->name, t->bound.n_bound);
    for (size_t i = 0; i < n; i++)
        free(parts[i]);
    return rc;
}

static int
open_table(struct tables *ts, const struct lut_layer *layer,
           const struct tables_options *o, struct err *err)
{
    struct tabled *t = &ts->tabled[ts->n];

    if (table_bind_open(&t->bound, &ts->lut, layer, err) < 0)
        return -1;
    ts->n++;
    if (bind_parts(ts, t, err) < 0)
        return -1;
    if (o->ratio > 0)
        t->fix = (struct table_fix){ FIX_TOP, table_ratio(layer->in, o->ratio),
                                     0, NULL };
    if (table_transpose(&t->bound.table, &t->fix, err) < 0)
        return -1;
    if (o->report)
        t->stats = table_stats_new(&t->bound.table, layer->elbow);
    ts->max_in = larger(ts->max_in, layer->in);
    ts->max_out = larger(ts->max_out, layer->out);
    ts->max_k = larger(ts->max_k, layer->k);
    return 0;
}

/* Does each pattern of a list match a layer? */
static int
check_globs(struct globs *globs, const struct lut *lut, const char *list,
            struct err *err)
{
    const char *unused;

    for (size_t i = 0; i < lut->n_layers; i++)
        globs_use(globs, lut->layers[i].name);
    unused = list && globs->n == 0 ? list : globs_unused(globs);
    if (!unused)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s/metadata.json: has no layer %s (--lut-layers)",
                   lut->path, unused);
}

int
tables_open(struct tables **tables, struct model *model, const char *dir,
            const struct tables_options *o, struct err *err)
{
    struct tables *ts = xcalloc(1, sizeof(*ts));
    struct globs globs;
    int rc = lut_open(&ts->lut, dir, err);

    *tables = NULL;
    globs_open(&globs, o->layers);
    ts->model = model;
    ts->tabled = xcalloc(ts->lut.n_layers, sizeof(*ts->tabled));
    if (rc == 0)
        rc = check_globs(&globs, &ts->lut, o->layers, err);
    for (size_t i = 0; i < ts->lut.n_layers && rc == 0; i++)
        if (!o->layers || globs_match(&globs, ts->lut.layers[i].name))
            rc = open_table(ts, &ts->lut.layers[i], o, err);
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

static void
forget(struct linear *l)
{
    l->table = NULL;
}

void
tables_close(struct tables *ts)
{
    if (!ts)
        return;
    for (size_t i = 0; i < (size_t)ts->model->config.n_layers; i++) {
        struct layer *l = &ts->model->layers[i];

        forget(&l->q), forget(&l->k), forget(&l->v), forget(&l->o);
        forget(&l->mlp.gate), forget(&l->mlp.up), forget(&l->mlp.down);
    }
    ts->model->tables = NULL;
    for (size_t i = 0; i < ts->n; i++) {
        struct tabled *t = &ts->tabled[i];

        table_stats_free(t->stats);
        table_bind_close(&t->bound);
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

size_t
tables_stored(const struct tables *ts)
{
    size_t n = 0;

    for (size_t i = 0; i < ts->n; i++)
        n += ts->tabled[i].bound.file.compensation_weight_t != NULL;
    return n;
}

/* ---- running ---- */

size_t
tables_floats(const struct tables *ts)
{
    return ts ? 3 * ts->max_in + 2 * (ts->max_out + ts->max_k) : 0;
}

int
tables_work_open(struct engine *e, struct err *err)
{
    const struct tables *ts = e->model->tables;

    if (!ts)
        return 0;
    if (table_open(&e->table_work, e->gemm, ts->max_in, ts->max_k,
                   e->options.chunk, err) < 0)
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
    table_close(e->table_work);
}

/* What the layer itself makes of the rows, for the report. */
static void
compare(struct engine *e, const struct tabled *t, const float *x, size_t n)
{
    size_t out = t->bound.table.out;
    float *dense = e->table_y + e->options.chunk * e->table_out;

    table_dense(e->gemm, &t->bound.table, dense, out, x, t->bound.table.in, n);
    for (size_t i = 0; i < n; i++)
        vec_add(dense + i * out, t->bound.bias, out);
    table_stats_add(t->stats, e->table_work, e->table_y, out, dense, out, x,
                    t->bound.table.in, n);
}

/* Copies a part's columns of the table's output to where they belong. */
static void
copy_columns(const struct engine *e, const struct apply *to, size_t out,
             size_t n_rows)
{
    const struct linear *l = to->linear;

    for (size_t i = 0; i < n_rows; i++) {
        const float *y = e->table_y + i * out + l->table_col;

        if (to->add)
            vec_add(to->y + i * l->rows, y, l->rows);
        else
            memcpy(to->y + i * l->rows, y, l->rows * sizeof(*y));
    }
}

size_t
tables_apply(struct engine *e, const struct apply *to, size_t n, const float *x,
             size_t n_rows, struct apply *rest)
{
    const struct tabled *last = NULL;
    size_t n_rest = 0;

    for (size_t i = 0; i < n; i++) {
        const struct tabled *t = to[i].linear->table;

        if (!t) {
            rest[n_rest++] = to[i];
            continue;
        }
        if (t != last) {
            table_apply(e->table_work, &t->bound.table, &t->fix, e->table_y,
                        t->bound.table.out, x, t->bound.table.in, n_rows,
                        t->stats ? TABLE_ERROR | TABLE_COUNT : 0);
            if (t->stats)
                compare(e, t, x, n_rows);
        }
        last = t;
        copy_columns(e, &to[i], t->bound.table.out, n_rows);
    }
    return n_rest;
}

/* ---- --lut-report ---- */

void
tables_report(const struct tables *ts, struct str *tsv)
{
    str_adds(tsv, "layer\trows\tbad_rows\tactive_mean\tpositives_mean\tdead\t"
                  "fvu_input\tthreshold\texceed\tcompensated_mean\t"
                  "fvu_output\trel_l2\trow_rel_l2_p99\trow_rel_l2_max\t"
                  "cosine_mean\tcosine_min\tmax_abs\n");
    for (size_t i = 0; i < ts->n; i++) {
        const struct lut_layer *l = ts->tabled[i].bound.file.layer;
        struct table_report r;

        table_stats_get(ts->tabled[i].stats, &r);
        str_addf(tsv, "%s\t%llu\t%llu", l->name, (unsigned long long)r.rows,
                 (unsigned long long)r.bad_rows);
        const double v[] = { r.active_mean, r.positives_mean, (double)r.dead,
                             r.fvu_input,   l->elbow,         r.exceed,
                             r.fixed_mean,  r.fvu_output,     r.rel_l2,
                             r.row_p99,     r.row_max,        r.cosine_mean,
                             r.cosine_min,  r.max_abs };

        for (size_t k = 0; k < sizeof(v) / sizeof(v[0]); k++) {
            str_addc(tsv, '\t');
            js_put_f64(tsv, v[k]);
        }
        str_addc(tsv, '\n');
    }
}
