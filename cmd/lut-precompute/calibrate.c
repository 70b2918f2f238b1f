/* SPDX-License-Identifier: ISC */
/*
 * calibrate: from rows of a layer's inputs, the elbow of their magnitudes,
 * which --tau of lut-apply goes by, and which inputs a table misses most.
 *
 * The elbow is where the quantiles of |x|, from 0 to the 95th percentile, are
 * furthest from the straight line between these two: 500 points, linear
 * between order statistics as numpy's, and none of the first and last 5 %.
 * Source: the exporter's thresholds (Kneedle, Satopaa et al. 2011).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/lut-precompute/cmd.h"
#include "core/clock.h"
#include "core/format/npy.h"
#include "core/format/stdir.h"
#include "core/inuse.h"
#include "core/js.h"
#include "core/kernel/cpu.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/row_input.h"
#include "core/model/table.h"
#include "core/out.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

#define BATCH   64
#define N_SHOWN 20

#define N_POINTS 500
#define LAST     0.95
#define MARGIN   0.05
#define FLAT     1e-6 /* a curve that is no further from its line has no elbow */

/* Magnitudes are counted by the first 16 bits of their significands: exact for
 * bf16 and f16, to 2^-16 for f32. */
#define CUT       8
#define N_BUCKETS ((size_t)1 << (31 - CUT))

struct calibration {
    const struct precompute_cmd *cmd;
    struct lut lut;
    struct table table;
    struct stdir model;
    struct row_input input;
    struct out *dims; /* --dims */
    struct par *par;
    struct gemm *gemm;
    struct table_work *work;
    size_t batch;
    double seconds;    /* where a line says how it ended */
    float *x, *y;      /* [batch, in], [batch, out] */
    uint64_t *buckets; /* [N_BUCKETS] */
    double *missed;    /* [in] sums of squares of x - x^ */
    uint64_t n_rows, n_bad;
    double elbow_p, elbow_value;
};

/* ---- magnitudes ---- */

static void
count(struct calibration *c, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        bits = ((bits & INT32_MAX) + (1 << (CUT - 1))) >> CUT;
        c->buckets[bits < N_BUCKETS ? bits : N_BUCKETS - 1]++;
    }
}

/* A walk over the numbers in their order. */
struct walk {
    size_t bucket;
    uint64_t before; /* numbers in lower buckets */
};

/* The number of that rank, from 0; ranks ascend. */
static double
walk_to(struct walk *w, const uint64_t *buckets, uint64_t rank)
{
    uint32_t bits;
    float v;

    while (w->before + buckets[w->bucket] <= rank)
        w->before += buckets[w->bucket++];
    bits = (uint32_t)(w->bucket << CUT);
    memcpy(&v, &bits, sizeof(v));
    return (double)v;
}

static int
find_elbow(struct calibration *c, struct err *err)
{
    uint64_t last = (c->n_rows - c->n_bad) * c->table.in - 1;
    double q[N_POINTS], step = LAST / (N_POINTS - 1), most = -1, rise, length;
    struct walk walk = { 0 };

    for (size_t i = 0; i < N_POINTS; i++) {
        double h = (i < N_POINTS - 1 ? step * (double)i : LAST) * (double)last;
        uint64_t rank = (uint64_t)h;
        struct walk next;

        q[i] = walk_to(&walk, c->buckets, rank);
        next = walk;
        if (rank < last)
            q[i] += (h - (double)rank) *
                    (walk_to(&next, c->buckets, rank + 1) - q[i]);
    }
    rise = q[N_POINTS - 1] - q[0];
    length = sqrt(LAST * LAST + rise * rise); /* hypot() varies by CPU */
    for (size_t i = 0; i < N_POINTS; i++) {
        double p = step * (double)i;
        double off = fabs(rise * p - LAST * (q[i] - q[0])) / length;

        if (p > MARGIN * LAST && p < LAST - MARGIN * LAST && off > most) {
            most = off;
            c->elbow_p = p;
            c->elbow_value = q[i];
        }
    }
    if (most >= FLAT)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: the magnitudes of x have no elbow: their quantiles are "
                   "a straight line",
                   c->input.name);
}

/* ---- inputs ---- */

struct ranked {
    double missed;
    uint32_t dim;
};

static int
by_missed(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->missed < y->missed || x->missed > y->missed)
        return x->missed < y->missed ? 1 : -1;
    return (x->dim > y->dim) - (x->dim < y->dim);
}

static int
by_dim(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return (x->dim > y->dim) - (x->dim < y->dim);
}

/* The first 'n', ascending, as a .npy. */
static int
write_dims(struct out *out, struct ranked *r, size_t n, struct err *err)
{
    struct str s = { 0 };
    char number[4];
    int rc = npy_header(&s, DT_I32, 1, (uint64_t[]){ n }, err);

    qsort(r, n, sizeof(*r), by_dim);
    for (size_t i = 0; i < n; i++) {
        put_le32(number, r[i].dim);
        str_add(&s, number, sizeof(number));
    }
    if (rc == 0)
        rc = out_write(out, s.s, s.n, err);
    str_free(&s);
    return rc;
}

static void
add_metric(struct str *to, const char *name, double v)
{
    str_addf(to, "%s\t", name);
    js_put_f64(to, v);
    str_addc(to, '\n');
}

/* Ranks the inputs: what is reported of them, and the first to --dims. */
static int
rank_inputs(struct calibration *c, struct str *report, struct err *err)
{
    const struct precompute_cmd *cmd = c->cmd;
    size_t in = c->table.in, top = (size_t)cmd->top;
    struct ranked *r = xcalloc(in, sizeof(*r));
    float *norms = xcalloc(in, sizeof(*norms)); /* of what they multiply */
    double all = 0, left = 0;
    int rc = 0;

    table_norms(norms, &c->table);
    for (size_t d = 0; d < in; d++) {
        double missed = c->missed[d] * ((double)norms[d] * (double)norms[d]);

        r[d] = (struct ranked){ missed, (uint32_t)d };
        all += missed;
    }
    free(norms);
    qsort(r, in, sizeof(*r), by_missed);
    for (size_t i = top; cmd->dims && i < in; i++)
        left += r[i].missed;
    if (cmd->dims)
        add_metric(report, "left", all > 0 ? left / all : 0);
    for (size_t i = 0; i < in && i < N_SHOWN; i++) {
        str_addf(report, "dim %lu\t", (unsigned long)r[i].dim);
        js_put_f64(report, all > 0 ? r[i].missed / all : 0);
        str_addc(report, '\n');
    }
    if (cmd->dims)
        rc = write_dims(c->dims, r, top, err);
    free(r);
    return rc;
}

/* ---- rows ---- */

static int
open_all(struct calibration *c, struct err *err)
{
    const struct precompute_cmd *cmd = c->cmd;
    struct table *t = &c->table;
    struct latents_sizes sizes = { 0 };
    size_t n;

    if (cpu_check(err) < 0 || lut_open(&c->lut, cmd->dir, err) < 0 ||
        table_open_name(t, &c->lut, cmd->layer, err) < 0 ||
        (cmd->model && table_bind_model(t, &c->model, cmd->model, err) < 0))
        return -1;
    if (cmd->dims && !t->weight_t && !t->n_parts)
        return err_set(err, TU_USAGE,
                       "%s: holds no weights to rank its inputs by: -m MODEL "
                       "has them",
                       t->file.st.path);
    if (cmd->dims && (uint64_t)cmd->top > t->in)
        return err_set(err, TU_USAGE,
                       "--top is %lld, but the layer has %zu input%s",
                       (long long)cmd->top, t->in, plural(t->in));
    if (access(c->lut.path, W_OK) < 0)
        return err_sys(err, EX_CANTCREAT, "%s", c->lut.path);
    table_screen(t);
    latents_size(&sizes, &t->latents);
    if (par_open(&c->par, cmd->n_threads, err) < 0 ||
        gemm_open(&c->gemm, c->par, err) < 0 ||
        table_work_open(&c->work, c->gemm, &sizes, BATCH, err) < 0)
        return -1;
    c->batch = n = table_work_rows(c->work);
    c->x = mem_big(n * t->in, sizeof(float), "rows of x", err);
    c->y = c->x ? mem_big(n * t->out, sizeof(float), "rows of y", err) : NULL;
    c->buckets =
        c->y ? mem_big(N_BUCKETS, sizeof(*c->buckets), "magnitudes", err)
             : NULL;
    c->missed = xcalloc(t->in, sizeof(*c->missed));
    if (inuse_will_read(cmd->input, err) < 0)
        return -1;
    if (cmd->dims &&
        out_open(&c->dims, cmd->dims, cmd->out_flags, true, err) < 0)
        return -1;
    c->input.takes_many = true;
    return c->buckets ? row_input_open(&c->input, cmd->input, cmd->x_dtype,
                                       t->in, n, err)
                      : -1;
}

static void
close_all(struct calibration *c)
{
    row_input_close(&c->input);
    out_abort(c->dims);
    free(c->missed);
    mem_big_free(c->buckets, N_BUCKETS, sizeof(*c->buckets));
    mem_big_free(c->y, c->batch * c->table.out, sizeof(float));
    mem_big_free(c->x, c->batch * c->table.in, sizeof(float));
    table_work_close(c->work);
    gemm_close(c->gemm);
    par_close(c->par);
    table_close(&c->table);
    stdir_close(&c->model);
    lut_close(&c->lut);
}

/* Rows whose pre-activations are NaN or infinite are left out. */
static int
read_rows(struct calibration *c, struct err *err)
{
    const struct table *t = &c->table;
    struct progress progress = { .what = "calibrate",
                                 .unit = "row",
                                 .total = c->input.n_rows,
                                 .quiet = c->cmd->quiet };
    ssize_t n;

    progress_start(&progress);
    while ((n = row_input_rows(&c->input, c->x, c->batch, err)) > 0) {
        table_apply(c->work, t, NULL, c->y, t->out, c->x, t->in, (size_t)n,
                    TABLE_ERROR);
        for (size_t i = 0; i < (size_t)n; i++) {
            struct table_row row = table_row(c->work, i);

            c->n_rows++;
            c->n_bad += row.bad;
            if (row.bad)
                continue;
            count(c, c->x + i * t->in, t->in);
            for (size_t d = 0; d < t->in; d++)
                c->missed[d] += (double)row.error[d] * (double)row.error[d];
        }
        progress_at(&progress, c->n_rows);
    }
    c->seconds = progress.dirty ? clock_s() - progress.started : 0;
    progress_end(&progress);
    if (n == 0 && c->n_bad == c->n_rows)
        n = err_set(err, EX_DATAERR, "%s: has no rows%s", c->input.name,
                    c->n_rows ? " without NaN or infinite pre-activations"
                              : "");
    return n < 0 ? -1 : 0;
}

int
calibrate(const struct precompute_cmd *cmd, struct err *err)
{
    struct calibration c = { .cmd = cmd };
    struct str report = { 0 };
    struct out *dims;
    int rc = -1;

    if (open_all(&c, err) < 0 || read_rows(&c, err) < 0 ||
        find_elbow(&c, err) < 0)
        goto out;
    str_adds(&report, "metric\tvalue\n");
    add_metric(&report, "rows", (double)c.n_rows);
    add_metric(&report, "bad_rows", (double)c.n_bad);
    add_metric(&report, "elbow_p", c.elbow_p);
    add_metric(&report, "elbow_value", c.elbow_value);
    /* metadata.json changes when --dims is on its way to the disk */
    if (((c.table.weight_t || c.table.n_parts) &&
         rank_inputs(&c, &report, err) < 0) ||
        (c.dims && out_flush(c.dims, err) < 0) ||
        index_elbow(c.lut.path, c.table.file.layer->name, c.elbow_p,
                    c.elbow_value, err) < 0)
        goto out;
    dims = c.dims;
    c.dims = NULL;
    rc = dims ? out_commit(dims, err) : 0;
    if (rc == 0)
        tool_put("%s", report.s);
    if (rc == 0 && c.seconds > 0)
        tool_say("%s: elbow %.4g of %s, from %llu row%s in %.0f s", c.lut.path,
                 c.elbow_value, c.table.file.layer->name,
                 (unsigned long long)c.n_rows, plural(c.n_rows), c.seconds);
out:
    str_free(&report);
    close_all(&c);
    return rc;
}
