/* SPDX-License-Identifier: ISC */
/*
 * compare: for each latent of an SAE the one of another SAE whose decoder row
 * has the most similar direction.
 *
 * f32 products select candidates, with a bound on their error; cosines in f64
 * decide among them.
 */
#include <math.h>
#include <stdlib.h>

#include "cmd/sae-look/cmd.h"
#include "core/format/sae.h"
#include "core/js.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/matrix_rows.h"
#include "core/tool.h"

enum { BLOCK = 128, BLOCK_NBYTES = 64 << 20 };
#define DECIMALS                                                \
    1e12 /* cosines are compared as whole multiples of 1 / that \
          */

/* An SAE, and for each of its latents the best of the other. */
struct side {
    struct sae sae;
    size_t n;
    double *norm;   /* [n] of decoder rows */
    int64_t *best;  /* [n], or -1 */
    double *cosine; /* [n] rounded, or NaN */
};

struct compare {
    const struct side *a, *b;
    size_t d, first;
    double bound; /* of an f32 cosine's error */
    double *x;    /* [BLOCK, d] rows of a */
    float *unit;  /* [BLOCK, d] they over their norms */
    float *dot;   /* [block, b->n] */
    size_t block;
    struct side *to;
};

static double
norm_of(const float *row, size_t d, double *x)
{
    for (size_t j = 0; j < d; j++)
        x[j] = (double)row[j];
    return sqrt(dot64(row, x, d));
}

/* The cosine of row x, of norm 'norm', and a row of a matrix. */
static double
cosine_of(const double *x, double norm, const struct matrix *m, size_t row,
          double row_norm, float *scratch)
{
    matrix_rows(NULL, m, row, 1, scratch, m->cols);
    return dot64(scratch, x, m->cols) / (norm * row_norm);
}

static int
open_side(struct side *s, const char *path, struct err *err)
{
    float *row;
    double *x;

    if (sae_open(&s->sae, path, err) < 0)
        return -1;
    s->n = s->sae.n;
    if (!(s->norm = mem_try(s->n, sizeof(*s->norm), path, err)) ||
        !(s->best = mem_try(s->n, sizeof(*s->best), path, err)) ||
        !(s->cosine = mem_try(s->n, sizeof(*s->cosine), path, err)))
        return -1;
    row = xcalloc(s->sae.in, sizeof(*row));
    x = xcalloc(s->sae.in, sizeof(*x));
    for (size_t i = 0; i < s->n; i++) {
        matrix_rows(NULL, &s->sae.decoder_weight, i, 1, row, s->sae.in);
        s->norm[i] = norm_of(row, s->sae.in, x);
    }
    free(row);
    free(x);
    return 0;
}

static void
close_side(struct side *s)
{
    free(s->norm);
    free(s->best);
    free(s->cosine);
    sae_close(&s->sae);
}

static void
find_rows(void *ctx, size_t begin, size_t end)
{
    const struct compare *c = ctx;
    float *scratch = xcalloc(c->d, sizeof(*scratch));

    for (size_t i = begin; i < end; i++) {
        const float *dot = c->dot + i * c->b->n;
        size_t row = c->first + i;
        double most = -INFINITY, best = -INFINITY, now;

        c->to->best[row] = -1;
        c->to->cosine[row] = NAN;
        /* of very large and very small norms the bound is not one */
        for (size_t j = 0; j < c->b->n; j++) {
            now = (double)dot[j] / c->b->norm[j];
            if (c->b->norm[j] > 1e-30 && c->b->norm[j] < 1e30 && now > most)
                most = now;
        }
        for (size_t j = 0; c->a->norm[row] > 0 && j < c->b->n; j++) {
            double norm = c->b->norm[j];

            if (norm == 0 || (norm > 1e-30 && norm < 1e30 &&
                              (double)dot[j] / norm < most - 2 * c->bound))
                continue;
            now = cosine_of(c->x + i * c->d, c->a->norm[row],
                            &c->b->sae.decoder_weight, j, norm, scratch);
            now = rint(now * DECIMALS);
            if (now > best) {
                best = now;
                c->to->best[row] = (int64_t)j;
                c->to->cosine[row] = now / DECIMALS;
            }
        }
    }
    free(scratch);
}

/* The best of b for each latent of a. */
static int
find(struct side *a, const struct side *b, struct gemm *gemm, struct err *err)
{
    const struct matrix *m = &b->sae.decoder_weight;
    struct compare c = { a, b, a->sae.in, 0, 0, NULL, NULL, NULL, 0, a };
    struct gemm_job job = {
        .w = { .weight = { .data = m->data,
                           .dtype = m->dtype,
                           .ld = m->by_col ? m->rows : m->cols },
               .n = b->n,
               .k = c.d,
               .by_k = m->by_col },
        .ldc = b->n,
    };
    int rc = -1;

    c.bound = (double)(c.d / 8 + 16) * 0x1p-23;
    c.block = larger(1, smaller(BLOCK_NBYTES / 4 / b->n, BLOCK));
    if (!(c.x = mem_try(c.block * c.d, sizeof(*c.x), "compare", err)) ||
        !(c.unit = mem_try(c.block * c.d, sizeof(*c.unit), "compare", err)) ||
        !(c.dot = mem_try(c.block * b->n, sizeof(*c.dot), "compare", err)))
        goto out;
    rc = 0;
    job.c = c.dot;
    for (size_t n; c.first < a->n; c.first += n) {
        n = smaller(c.block, a->n - c.first);
        matrix_rows(gemm_par(gemm), &a->sae.decoder_weight, c.first, n, c.unit,
                    c.d);
        for (size_t k = 0; k < n * c.d; k++) {
            double norm = a->norm[c.first + k / c.d];

            c.x[k] = (double)c.unit[k];
            c.unit[k] = norm > 0 ? (float)(c.x[k] / norm) : 0;
        }
        gemm_exact(gemm, &job, 1, c.unit, c.d, n);
        par_for(gemm_par(gemm), n, 1, find_rows, &c);
    }
out:
    free(c.x);
    free(c.unit);
    free(c.dot);
    return rc;
}

static bool
is_mutual(const struct side *a, const struct side *b, size_t i)
{
    return a->best[i] >= 0 && b->best[a->best[i]] == (int64_t)i;
}

static void
put_table(const struct side *a, const struct side *b)
{
    size_t d = a->sae.in;
    float *row = xcalloc(d, sizeof(*row));
    double *x = xcalloc(d, sizeof(*x));

    tool_put("latent\tbest\tcosine\tencoder_cosine\tmutual\n");
    for (size_t i = 0; i < a->n; i++) {
        double norm, other;
        struct str encoder = { 0 };

        if (a->best[i] < 0) {
            tool_put("%zu\t-\tnan\tnan\t0\n", i);
            continue;
        }
        matrix_rows(NULL, &b->sae.encoder_weight, (size_t)a->best[i], 1, row,
                    d);
        other = norm_of(row, d, x);
        matrix_rows(NULL, &a->sae.encoder_weight, i, 1, row, d);
        norm = norm_of(row, d, x);
        if (norm > 0 && other > 0)
            str_addf(&encoder, "%.6g",
                     cosine_of(x, norm, &b->sae.encoder_weight,
                               (size_t)a->best[i], other, row));
        tool_put("%zu\t%lld\t%.6g\t%s\t%d\n", i, (long long)a->best[i],
                 a->cosine[i], encoder.n ? encoder.s : "nan",
                 is_mutual(a, b, i));
        str_free(&encoder);
    }
    free(row);
    free(x);
}

/* The mean of the cosines, or what share of them is over a number: of rows that
 * are not zero; NaN: there are none. */
static double
share(const struct side *s, double over)
{
    size_t n = 0, n_best = 0, n_over = 0;
    double sum = 0;

    for (size_t i = 0; i < s->n; i++) {
        n += s->norm[i] > 0;
        if (s->best[i] < 0)
            continue;
        n_best++;
        n_over += s->cosine[i] > over;
        sum += s->cosine[i];
    }
    return isnan(over) ? sum / (double)n_best : (double)n_over / (double)n;
}

static void
put_json(const struct side *a, const struct side *b)
{
    static const struct {
        const char *name;
        double over;
    } means[] = { { "mean_max", NAN },
                  { "over_0.7", 0.7 },
                  { "over_0.9", 0.9 } };
    struct str to = { 0 };
    size_t n_mutual = 0;

    str_addf(&to, "{\"latents\":[%zu,%zu]", a->n, b->n);
    for (size_t i = 0; i < sizeof(means) / sizeof(*means); i++)
        js_addf(&to, ",%s:[%g,%g]", means[i].name, share(a, means[i].over),
                share(b, means[i].over));
    for (size_t i = 0; i < a->n; i++)
        n_mutual += is_mutual(a, b, i);
    str_addf(&to, ",\"mutual\":%zu}\n", n_mutual);
    tool_put("%s", to.s);
    str_free(&to);
}

int
compare_main(const struct look_cmd *cmd, struct err *err)
{
    struct side a = { 0 }, b = { 0 };
    struct gemm *gemm = NULL;
    struct par *par = NULL;
    int rc = -1;

    if (cmd->n_args != 2)
        return err_set(err, TU_USAGE, "compare takes two SAEs");
    if (open_side(&a, cmd->args[0], err) < 0 ||
        open_side(&b, cmd->args[1], err) < 0)
        goto out;
    if (a.sae.in != b.sae.in) {
        err_data(err, cmd->args[1],
                 "is of rows of %zu numbers (expected %zu, as %s)", b.sae.in,
                 a.sae.in, cmd->args[0]);
        goto out;
    }
    if (par_open(&par, cmd->n_threads, err) < 0 ||
        gemm_open(&gemm, par, err) < 0 || find(&a, &b, gemm, err) < 0 ||
        find(&b, &a, gemm, err) < 0)
        goto out;
    rc = 0;
    (cmd->json ? put_json : put_table)(&a, &b);
out:
    gemm_close(gemm);
    par_close(par);
    close_side(&a);
    close_side(&b);
    return rc;
}
