/* SPDX-License-Identifier: ISC */
/*
 * A layer's file against sums in double: some rows, selected by a seed, of
 * every tensor that has rows, and the biases of inputs and outputs whole.  No
 * number may be NaN or infinite.
 */
#include <math.h>
#include <stdlib.h>

#include "cmd/lut-precompute/job.h"
#include "core/mem.h"
#include "core/model/matrix_rows.h"
#include "core/rng.h"
#include "core/tool.h"

#define N_ROWS 16
#define SEED   0x6c7574 /* "lut" */

/* A split loses 2^-17 of a product's size, and sums may lose as much again. */
#define SPLIT_ERROR 0x1p-16

struct check {
    const struct layer_job *job;
    const struct lut_table *table;
    size_t row[N_ROWS], dim[N_ROWS]; /* of latents, of inputs */
    size_t n_rows;
    double sum_error;        /* of products, relative to their size */
    double *rows, *rows_abs; /* [n_rows, in] of W_dec, and their magnitudes */
    float *w;                /* [threads, in] */
    double *errors;          /* [threads] largest, in units of the tolerance */
};

/* Raises *most to a number's distance from v, in units of what rounding and
 * sums, 'lost', may cost. */
static void
compare(const struct check *c, double got, double v, double lost, double *most)
{
    enum dtype dtype = c->job->cmd->dtype;
    int bits = dtype == DT_BF16 ? 8 : dtype == DT_F16 ? 11 : 24;
    int min = dtype == DT_BF16 ? -133 : dtype == DT_F16 ? -24 : -149, e;
    double half_ulp, error;

    frexp(v, &e);
    half_ulp = ldexp(0.5, e - bits > min ? e - bits : min);
    error = fabs(got - v) / (half_ulp * 1.001 + lost);
    if (isnan(error))
        error = INFINITY;
    *most = error > *most ? error : *most;
}

static void
compare_item(const struct check *c, const void *tensor, size_t i, double v,
             double lost, double *most)
{
    compare(c, dtype_get(c->job->cmd->dtype, tensor, i), v, lost, most);
}

/* Outputs begin .. end - 1 of all sampled rows, and of the stored weights. */
static void
check_outputs(void *ctx, size_t begin, size_t end, int thread)
{
    const struct check *c = ctx;
    const struct lut_table *table = c->table;
    const struct target_layer *t = c->job->target;
    float *w = c->w + (size_t)thread * t->in;
    double *most = &c->errors[thread];

    for (size_t o = begin; o < end; o++) {
        const struct target_part *p = t->parts;
        size_t at = o;

        for (; at >= p->w.n; p++)
            at -= p->w.n;
        matrix_weights(NULL, &p->w, at, 1, w, t->in);
        for (size_t i = 0; table->compensation_weight_t && i < N_ROWS; i++)
            compare_item(c, table->compensation_weight_t,
                         c->dim[i] * t->out + o, (double)w[c->dim[i]], 0, most);
        for (size_t i = 0; i < c->n_rows; i++) {
            const double *row = c->rows + i * t->in;
            double size = 0;

            for (size_t j = 0; j < t->in; j++)
                size += fabs((double)w[j]) * c->rows_abs[i * t->in + j];
            compare_item(c, table->products, c->row[i] * t->out + o,
                         dot64(w, row, t->in), c->sum_error * size, most);
        }
    }
}

/* A shadow's row: is its error what it is off, and no more? */
static void
check_shadow(const struct check *c, size_t r, double *most)
{
    const struct lut_table *table = c->table;
    size_t in = c->job->sae->in;
    double scale, error, lost = 0, all = 0;

    if (!table->shadow)
        return;
    scale = dtype_get(DT_F32, table->shadow_scale, r);
    error = dtype_get(DT_F32, table->shadow_error, r);
    for (size_t j = 0; j < in; j++) {
        double e =
            dtype_get(c->job->cmd->dtype, table->encoder_weight, r * in + j);
        double q = dtype_get(DT_I8, table->shadow, r * in + j);

        lost += (e - scale * q) * (e - scale * q);
        all += e * e;
    }
    if (!(sqrt(lost) <= error &&
          error <= 1.001 * sqrt(lost) + 0x1p-20 * sqrt(all) + 0x1p-40))
        *most = INFINITY;
}

/* The SAE's own tensors, and bias_product. */
static void
check_sae(struct check *c, struct par *par)
{
    const struct sae *s = c->job->sae;
    const struct lut_table *table = c->table;
    const struct target_layer *t = c->job->target;
    double *b_dec = xcalloc(s->in, sizeof(*b_dec));
    double *sums = xcalloc(t->out, sizeof(*sums)), *part = sums;
    float *row = xcalloc(s->in, sizeof(*row));
    bool fold = s->centered && !c->job->cmd->keep_centering;

    matrix_vector(&s->decoder_bias, b_dec);
    for (size_t i = 0; i < t->n_parts; part += t->parts[i++].w.n)
        matrix_times(par, &t->parts[i].w, b_dec, &t->parts[i].bias, part);
    for (size_t i = 0; i < t->out; i++)
        compare(c, (double)table->bias_product[i], sums[i], 1e-14, c->errors);
    for (size_t i = 0; i < s->in; i++)
        compare(c, (double)table->decoder_bias[i], b_dec[i], 0, c->errors);
    for (size_t i = 0; i < c->n_rows; i++) {
        size_t r = c->row[i];
        double b = dtype_get(s->encoder_bias.dtype, s->encoder_bias.data, r);

        matrix_rows(NULL, &s->encoder_weight, r, 1, row, s->in);
        b -= fold ? dot64(row, b_dec, s->in) : 0;
        b *= s->norms ? s->norms[r] : 1;
        sae_fold(s, r, false, row);
        compare(c, (double)table->encoder_bias[r], b, 1e-14, c->errors);
        check_shadow(c, r, c->errors);
        for (size_t j = 0; j < s->in; j++) {
            compare_item(c, table->encoder_weight, r * s->in + j,
                         (double)row[j], 0, c->errors);
            compare_item(c, table->decoder_weight, r * s->in + j,
                         c->rows[i * s->in + j], 0, c->errors);
        }
    }
    for (size_t i = 0; table->thresholds && i < s->n; i++)
        if (table->thresholds[i] != job_threshold(c->job, i))
            c->errors[0] = INFINITY;
    free(row);
    free(sums);
    free(b_dec);
}

static bool
all_finite(const struct st *st)
{
    bool finite = true;

    for (size_t i = 0; i < st->n_tensors; i++) {
        const struct st_tensor *t = &st->tensors[i];

        if (t->dtype == DT_F32 || t->dtype == DT_F16 || t->dtype == DT_BF16)
            finite &= dtype_finite(st_data(st, t), t->dtype, t->n_elements);
    }
    return finite;
}

int
job_verify(const struct layer_job *job, struct par *par, bool *header,
           struct err *err)
{
    const struct sae *s = job->sae;
    size_t in = s->in, n = (size_t)par_threads(par);
    struct lut lut = { .path = (char *)(uintptr_t)job->cmd->output };
    struct lut_layer layer = { .name = job->target->name,
                               .in = in,
                               .out = job->target->out,
                               .n_basis = s->n,
                               .k = job->k,
                               .over = job->over,
                               .centered =
                                   s->centered && job->cmd->keep_centering,
                               .target_bias = job->target->has_bias };
    struct lut_table table;
    struct check c = { .job = job, .table = &table };
    struct str file = { 0 };
    double most = 0;
    int rc;

    str_addf(&file, "%s" LUT_SUFFIX, job->name);
    layer.file = file.s;
    rc = lut_table_open(&table, &lut, &layer, err);
    str_free(&file);
    if (rc < 0)
        return -1;
    c.rows = xcalloc(N_ROWS * in, sizeof(*c.rows));
    c.rows_abs = xcalloc(N_ROWS * in, sizeof(*c.rows_abs));
    c.w = xcalloc(n * in, sizeof(*c.w));
    c.errors = xcalloc(n, sizeof(*c.errors));
    c.n_rows = smaller(s->n, N_ROWS);
    for (size_t i = 0; i < N_ROWS; i++)
        c.dim[i] = (size_t)(rng_f64(SEED, 1, i) * (double)in);
    for (size_t i = 0; i < c.n_rows; i++) {
        c.row[i] = (size_t)(rng_f64(SEED, 0, i) * (double)s->n);
        matrix_rows(NULL, &s->decoder_weight, c.row[i], 1, c.w, in);
        sae_fold(s, c.row[i], true, c.w);
        for (size_t j = 0; j < in; j++) {
            c.rows[i * in + j] = (double)c.w[j];
            c.rows_abs[i * in + j] = fabs((double)c.w[j]);
        }
    }
    /* f32 sums drift, furthest where all terms have one sign */
    c.sum_error =
        job->cmd->dtype == DT_F32 ? 0x1p-23 * sqrt((double)in) : SPLIT_ERROR;
    par_for_thread(par, job->target->out, 16, check_outputs, &c);
    check_sae(&c, par);
    if (!all_finite(&table.st))
        most = INFINITY;
    for (size_t i = 0; i < n; i++)
        most = c.errors[i] > most ? c.errors[i] : most;
    free(c.rows);
    free(c.rows_abs);
    free(c.w);
    free(c.errors);
    lut_table_close(&table);
    if (!*header)
        tool_put("layer\trows\terror\n");
    *header = true;
    tool_put("%s\t%zu\t%.3f\n", layer.name, c.n_rows, most);
    return most > 1;
}
