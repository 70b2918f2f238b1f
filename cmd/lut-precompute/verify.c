/*
 * A layer's file against sums in double: some rows, chosen by a seed, of all
 * that has rows, and the biases of inputs and outputs whole.
 */
#include "cmd/lut-precompute/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/lut-precompute/f64.h"
#include "cmd/lut-precompute/matrix.h"
#include "cmd/lut-precompute/sae.h"
#include "cmd/lut-precompute/target.h"
#include "core/mem.h"
#include "core/rng.h"
#include "core/str.h"

#define N_ROWS 16
#define SEED   0x6c7574 /* "lut" */

/* A split loses 2^-17 of a product's size, and as much again is for sums. */
#define SPLIT_ERROR 0x1p-16

struct check {
    const struct layer_job *job;
    const struct lut_table *table;
    size_t row[N_ROWS], dim[N_ROWS]; /* of latents, of inputs */
    size_t n_rows;
    double sum_error;        /* of products, as part of their size */
    double *rows, *rows_abs; /* [n_rows, in] of W_dec, and their sizes */
    float *w;                /* [threads, in] */
    double *errors;          /* [threads] largest, in units of what may be */
};

static double
half_ulp(double v, enum dtype dtype)
{
    int bits = dtype == DT_BF16 ? 8 : dtype == DT_F16 ? 11 : 24;
    int least = dtype == DT_BF16 ? -133 : dtype == DT_F16 ? -24 : -149;
    int e;

    frexp(v, &e);
    return ldexp(0.5, e - bits > least ? e - bits : least);
}

static void
worse(double *most, double e)
{
    if (!(e <= *most))
        *most = e;
}

/* How far a table's number is from v, in units of what rounding and sums,
 * 'lost', may do. */
static double
distance(const struct check *c, double got, double v, double lost)
{
    double e = fabs(got - v) / (half_ulp(v, c->table->dtype) * 1.001 + lost);

    return isnan(e) ? INFINITY : e;
}

static double
number(const struct check *c, const void *data, size_t i)
{
    return dtype_get(c->table->dtype, data, i);
}

/* Of the stored weights, what output o has in the sampled inputs. */
static void
check_weights(const struct check *c, size_t o, const float *w, double *most)
{
    size_t out = c->job->target->out;

    for (size_t i = 0; c->table->compensation_weight_t && i < N_ROWS; i++)
        worse(most, distance(c,
                             number(c, c->table->compensation_weight_t,
                                    c->dim[i] * out + o),
                             (double)w[c->dim[i]], 0));
}

/* Outputs begin .. end - 1 of all sampled rows; and the bias product. */
static void
check_outputs(void *ctx, size_t begin, size_t end, int thread)
{
    const struct check *c = ctx;
    const struct target_layer *t = c->job->target;
    float *w = c->w + (size_t)thread * t->in;
    double *most = &c->errors[thread];

    for (size_t o = begin; o < end; o++) {
        const struct target_part *p = t->parts;
        size_t at = o;

        for (; at >= p->w.rows; p++)
            at -= p->w.rows;
        matrix_rows(NULL, &p->w, at, 1, w, t->in);
        check_weights(c, o, w, most);
        for (size_t i = 0; i < c->n_rows; i++) {
            double size = 0;

            for (size_t j = 0; j < t->in; j++)
                size += fabs((double)w[j]) * c->rows_abs[i * t->in + j];
            worse(most,
                  distance(
                      c, number(c, c->table->products, c->row[i] * t->out + o),
                      dot64(w, c->rows + i * t->in, t->in),
                      c->sum_error * size));
        }
    }
}

static void
check_sums(struct check *c, struct par *par, const double *b_dec)
{
    const struct sae *s = c->job->sae;
    const struct target_layer *t = c->job->target;
    double *sums = xcalloc(t->out, sizeof(*sums));
    float *row = xcalloc(s->in, sizeof(*row));
    bool fold = s->centered && !c->job->cmd->keep_centering;

    bias_products(par, t, b_dec, sums);
    for (size_t i = 0; i < t->out; i++)
        worse(c->errors,
              distance(c, (double)c->table->bias_product[i], sums[i], 1e-14));
    for (size_t i = 0; i < s->in; i++)
        worse(c->errors,
              distance(c, (double)c->table->decoder_bias[i], b_dec[i], 0));
    for (size_t i = 0; i < c->n_rows; i++) {
        double b =
            dtype_get(s->encoder_bias.dtype, s->encoder_bias.data, c->row[i]);

        matrix_rows(NULL, &s->encoder_weight, c->row[i], 1, row, s->in);
        b -= fold ? dot64(row, b_dec, s->in) : 0;
        worse(c->errors,
              distance(c, (double)c->table->encoder_bias[c->row[i]], b, 1e-14));
        for (size_t j = 0; j < s->in; j++) {
            worse(c->errors, distance(c,
                                      number(c, c->table->encoder_weight,
                                             c->row[i] * s->in + j),
                                      (double)row[j], 0));
            worse(c->errors, distance(c,
                                      number(c, c->table->decoder_weight,
                                             c->row[i] * s->in + j),
                                      c->rows[i * s->in + j], 0));
        }
    }
    free(sums);
    free(row);
}

static void
sample(struct check *c)
{
    const struct sae *s = c->job->sae;
    float *row = xcalloc(s->in, sizeof(*row));

    c->n_rows = s->n < N_ROWS ? s->n : N_ROWS;
    for (size_t i = 0; i < N_ROWS; i++)
        c->dim[i] = (size_t)(rng_f64(SEED, 1, i) * (double)s->in);
    for (size_t i = 0; i < c->n_rows; i++) {
        c->row[i] = (size_t)(rng_f64(SEED, 0, i) * (double)s->n);
        matrix_rows(NULL, &s->decoder_weight, c->row[i], 1, row, s->in);
        for (size_t j = 0; j < s->in; j++) {
            c->rows[i * s->in + j] = (double)row[j];
            c->rows_abs[i * s->in + j] = fabs((double)row[j]);
        }
    }
    free(row);
}

/* The layer as metadata.json would describe it. */
static struct lut_layer
layer_of(const struct layer_job *job, char **file)
{
    struct str s = { 0 };

    str_addf(&s, "%s" LUT_SUFFIX, job->target->name);
    *file = s.s;
    return (struct lut_layer){ .name = job->target->name,
                               .file = s.s,
                               .in = job->target->in,
                               .out = job->target->out,
                               .n_basis = job->sae->n,
                               .k = job->k,
                               .centered = job->sae->centered &&
                                           job->cmd->keep_centering,
                               .target_bias = job->target->has_bias };
}

static double
largest(struct check *c, struct par *par)
{
    const struct sae *s = c->job->sae;
    size_t in = s->in, n = (size_t)par_threads(par);
    double *b_dec = xcalloc(in, sizeof(*b_dec)), most = 0;

    c->rows = xcalloc(N_ROWS * in, sizeof(*c->rows));
    c->rows_abs = xcalloc(N_ROWS * in, sizeof(*c->rows_abs));
    c->w = xcalloc(n * in, sizeof(*c->w));
    c->errors = xcalloc(n, sizeof(*c->errors));
    for (size_t i = 0; i < in; i++)
        b_dec[i] = dtype_get(s->decoder_bias.dtype, s->decoder_bias.data, i);
    sample(c);
    /* f32 sums wander, of numbers of one sign the furthest */
    c->sum_error =
        c->table->dtype == DT_F32 ? 0x1p-23 * sqrt((double)in) : SPLIT_ERROR;
    par_for(par, c->job->target->out, 16, check_outputs, c);
    check_sums(c, par, b_dec);
    for (size_t i = 0; i < n; i++)
        worse(&most, c->errors[i]);
    free(b_dec);
    free(c->rows);
    free(c->rows_abs);
    free(c->w);
    free(c->errors);
    return most;
}

int
job_verify(const struct layer_job *job, struct par *par, bool *header,
           struct err *err)
{
    struct lut lut = { .path = (char *)(uintptr_t)job->cmd->output };
    char *file;
    struct lut_layer layer = layer_of(job, &file);
    struct lut_table table;
    struct check c = { .job = job, .table = &table };
    double most = 0;
    int rc = lut_table_open(&table, &lut, &layer, err);

    if (rc == 0) {
        most = largest(&c, par);
        lut_table_close(&table);
        if (!*header)
            printf("layer\trows\terror\n");
        *header = true;
        printf("%s\t%zu\t%.3f\n", job->target->name, c.n_rows, most);
        rc = most > 1;
    }
    free(file);
    return rc;
}
