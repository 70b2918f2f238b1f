/* SPDX-License-Identifier: ISC */
/*
 * sae-train eval: how well SAEs reconstruct rows, in one pass over them.
 * Latents are those of exact products; sums are f64.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/sae-train/cmd.h"
#include "cmd/sae-train/largest.h"
#include "cmd/sae-train/tokens.h"
#include "core/chart.h"
#include "core/js.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/rows.h"
#include "core/out.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"

#define BATCH   ((size_t)1024)    /* rows at once */
#define DECADES 8                 /* of densities, down to 1e-8 */
#define BINS    (2 * DECADES + 1) /* the first: never active */

/* An SAE, and what was found with it. */
struct evaluated {
    const char *path;
    struct autoencoder a;
    struct moments_sum error; /* over rows: of |x - x^|^2 */
    double active;
    uint64_t *count; /* [n] rows in which a latent was active */
};

struct eval {
    struct row_stream rows;
    struct par *par;
    struct gemm *gemm;
    struct evaluated *list;
    size_t n;
    struct latents_work *work;
    float *decoded;       /* [chunk, d] */
    const float **x_rows; /* [BATCH] */
    double *errors;       /* [n, BATCH] of each row, by SAE */
    double *norms;        /* [BATCH] |x|^2 */
    void *memory;
    size_t nbytes;

    double *first;              /* [d] row, from which sums are */
    struct row_sums all, large; /* rows; the largest of them */
    struct largest largest;
    struct tokens tokens;            /* of --by token */
    struct moments_sum *large_error; /* [n] theirs, by SAE */
};

/* What the threads share while a chunk is evaluated. */
struct eval_chunk {
    struct eval *e;
    const float *x;
    double *errors, *norms; /* of these rows */
};

/* ---- opening ---- */

static int
open_sae(struct eval *e, const char *path, struct latents_sizes *sizes,
         struct err *err)
{
    struct evaluated *s = &e->list[e->n++];
    struct err other;

    *s = (struct evaluated){ .path = path };
    if (autoencoder_open(&s->a, path, err) < 0)
        return -1;
    if (s->a.d != e->rows.d)
        return err_set(err, EX_DATAERR,
                       "%s: is of rows of %zu numbers (expected %zu, as the "
                       "input's)",
                       s->a.sae.path, s->a.d, e->rows.d);
    if (s->a.sae.hook && rows_check_hook(&e->rows, s->a.sae.hook, &other) < 0)
        err_warn("%s: was trained elsewhere: %s", path, other.what);
    if ((e->rows.dumps || saev_mask_given(&e->rows.mask)) &&
        !sae_without_covered(&s->a.sae.without, &e->rows.mask))
        err_warn("%s: was trained without some rows, as its cfg.json says: "
                 "--skip-ids, --skip-positions or --max-norm leaves them out",
                 path);
    s->a.centers = autoencoder_centers(&s->a.sae, NULL, rows_family(&e->rows));
    s->count = xcalloc(s->a.n, sizeof(*s->count));
    autoencoder_screen(&s->a);
    latents_size(sizes, &s->a.latents);
    return 0;
}

static int
open_eval(struct eval *e, const struct train_cmd *cmd, struct err *err)
{
    const struct row_options o = {
        .paths = cmd->paths,
        .n_paths = cmd->n_paths,
        .dim = (size_t)cmd->dim,
        .dtype = cmd->x_dtype,
        .skip_bad = cmd->o.skip_bad,
        .skip_ids = cmd->o.skip_ids,
        .skip_positions = cmd->o.skip_positions,
        .max_norm = cmd->o.max_norm,
        .ids = cmd->by > 0,
        .n_threads = cmd->n_threads,
    };
    struct latents_sizes sizes = { 0 };
    size_t rows, d;

    if (rows_open(&e->rows, &o, err) < 0 || rows_room(&e->rows, BATCH, err) < 0)
        return -1;
    e->list = xcalloc(cmd->eval.n, sizeof(*e->list));
    for (size_t i = 0; i < cmd->eval.n; i++)
        if (open_sae(e, cmd->eval.item[i], &sizes, err) < 0)
            return -1;
    if (par_open(&e->par, cmd->n_threads, err) < 0 ||
        gemm_open(&e->gemm, e->par, err) < 0 ||
        latents_work_open(&e->work, e->gemm, &sizes, BATCH, err) < 0)
        return -1;
    rows = latents_rows(e->work);
    d = e->rows.d;

    const struct mem_array arrays[] = {
        { &e->decoded, rows, d, sizeof(*e->decoded) },
        { &e->x_rows, BATCH, 1, sizeof(*e->x_rows) },
        { &e->errors, e->n, BATCH, sizeof(*e->errors) },
        { &e->norms, BATCH, 1, sizeof(*e->norms) },
        { &e->first, d, 1, sizeof(*e->first) },
        { &e->all.sum, d, 1, sizeof(*e->all.sum) },
        { &e->all.square, d, 1, sizeof(*e->all.square) },
        { &e->large.sum, d, 1, sizeof(*e->large.sum) },
        { &e->large.square, d, 1, sizeof(*e->large.square) },
        { &e->large_error, e->n, 1, sizeof(*e->large_error) },
    };

    e->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &e->nbytes,
                           "the workspace of eval", err);
    if (!e->memory)
        return -1;
    e->all.d = e->large.d = d;
    e->all.from = e->large.from = e->first;
    e->largest =
        (struct largest){ .d = d, .n_errors = e->n, .known = e->rows.n_rows };
    largest_open(&e->largest);
    if (cmd->by)
        tokens_open(&e->tokens, &e->rows, BATCH, e->n);
    return 0;
}

static void
close_eval(struct eval *e)
{
    for (size_t i = 0; i < e->n; i++) {
        autoencoder_close(&e->list[i].a);
        free(e->list[i].count);
    }
    free(e->list);
    largest_close(&e->largest);
    tokens_close(&e->tokens);
    if (e->memory)
        mem_big_free(e->memory, e->nbytes, 1);
    latents_work_close(e->work);
    gemm_close(e->gemm);
    par_close(e->par);
    rows_close(&e->rows);
}

/* ---- rows ---- */

static void
sum_errors(void *ctx, size_t begin, size_t end)
{
    const struct eval_chunk *c = ctx;
    size_t d = c->e->rows.d;

    for (size_t r = begin; r < end; r++) {
        const float *x = c->x + r * d, *y = c->e->decoded + r * d;
        double error = 0, norm = 0;

        for (size_t i = 0; i < d; i++) {
            double v = (double)x[i], by = v - (double)y[i];

            error += by * by;
            norm += v * v;
        }
        c->errors[r] = error;
        c->norms[r] = norm;
    }
}

static void
add_chunk(struct eval *e, struct evaluated *s, const float *x, size_t at,
          size_t n)
{
    double *errors = e->errors + (size_t)(s - e->list) * BATCH + at;
    struct eval_chunk c = { e, x, errors, e->norms + at };

    autoencoder_apply(e->work, &s->a, e->decoded, x, n);
    par_for(e->par, n, 8, sum_errors, &c);
    for (size_t r = 0; r < n; r++) {
        const struct latents_row row = latents_row(e->work, r);

        moments_add(&s->error, errors[r]);
        if (row.bad)
            continue;
        s->active += (double)row.n;
        for (size_t i = 0; i < row.n; i++)
            s->count[row.idx[i]]++;
    }
}

static int
add_rows(struct eval *e, const float *x, size_t n, struct err *err)
{
    size_t d = e->rows.d, chunk = latents_rows(e->work);

    for (size_t i = 0; i < d && e->all.n == 0; i++)
        e->first[i] = (double)x[i];
    for (size_t r = 0; r < n; r++)
        e->x_rows[r] = x + r * d;
    row_sums_add(&e->all, e->par, e->x_rows, n);
    for (size_t i = 0; i < e->n; i++)
        for (size_t at = 0; at < n; at += chunk)
            add_chunk(e, &e->list[i], x + at * d, at, smaller(chunk, n - at));
    if (e->tokens.n)
        tokens_add(&e->tokens, &e->rows, n, e->errors, BATCH);
    return largest_add(&e->largest, x, e->norms, n, e->errors, BATCH, err);
}

/* The rows again, now that their mean is known. */
static int
add_variance(struct eval *e, struct err *err)
{
    double *mean = xcalloc(e->rows.d, sizeof(*mean));
    ssize_t n = rows_wrap(&e->rows, err);

    for (size_t i = 0; i < e->rows.d; i++)
        mean[i] = e->first[i] +
                  (e->all.sum[i].s + e->all.sum[i].c) / (double)e->all.n;
    for (uint64_t left = e->all.n; n >= 0 && left > 0; left -= (uint64_t)n) {
        n = rows_batch(&e->rows, err);
        if (n <= 0)
            break;
        n = (ssize_t)smaller((size_t)n, (size_t)left);
        tokens_variance(&e->tokens, &e->rows, (size_t)n, mean);
    }
    free(mean);
    return n < 0 ? -1 : 0;
}

/* ---- what is printed ---- */

/* Latents by how often they are active: never, in up to 1e-8 of the rows, and
 * in steps of half a decade. */
static void
bins_of(const struct eval *e, const struct evaluated *s, uint64_t bins[BINS])
{
    memset(bins, 0, BINS * sizeof(*bins));
    for (size_t i = 0; i < s->a.n; i++) {
        double density = (double)s->count[i] / (double)e->all.n;
        double at = s->count[i] ? 2 * (DECADES + log10(density)) : -1;

        bins[at < 0 ? s->count[i] > 0 : smaller((size_t)at + 1, BINS - 1)]++;
    }
}

static void
print_bins(const uint64_t bins[BINS])
{
    struct chart_mark bars[BINS] = { { "never", .v = (double)bins[0] } };
    char labels[BINS][CHART_LABEL_MAX + 1];
    size_t first = 1, end = BINS, n = 1;
    struct str to = { 0 };

    for (; first < end && !bins[first]; first++)
        continue;
    for (; first < end && !bins[end - 1]; end--)
        continue;
    for (size_t i = first; i < end; i++, n++) {
        snprintf(labels[n], sizeof(labels[n]), ">= %5.0e",
                 pow(10, ((double)i - 1) / 2 - DECADES));
        bars[n] = (struct chart_mark){ labels[n], .v = (double)bins[i] };
    }
    str_adds(&to, "latents by density\n");
    chart_bars(&to, bars, n);
    tool_put("%s", to.s);
    str_free(&to);
}

static size_t
n_dead(const struct evaluated *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->a.n; i++)
        n += s->count[i] == 0;
    return n;
}

static void
print_sae(const struct eval *e, const struct evaluated *s,
          const struct train_cmd *cmd)
{
    bool json = cmd->json;
    const struct moments_sum *large = &e->large_error[s - e->list];
    double rows = (double)e->all.n, error = s->error.s + s->error.c;
    double rest = e->largest.lost ? NAN : rows - (double)e->large.n;
    double rest_error = s->error.s - large->s + (s->error.c - large->c);
    const struct {
        const char *name;
        double v;
    } values[] = {
        { "rows", rows },
        { "fvu", error / row_sums_variance(&e->all, NULL) },
        { "mse", error / rows },
        { "l0", s->active / rows },
        { "dead", (double)n_dead(s) },
        { "rows_without_largest", rest },
        { "fvu_without_largest",
          e->largest.lost
              ? NAN
              : rest_error / row_sums_variance(&e->all, &e->large) },
        { "mse_without_largest", rest_error / rest },
    };
    bool by_token = e->tokens.n > 0;
    struct str text = { 0 }, prefix = { 0 };
    uint64_t bins[BINS];

    str_adds(&prefix, "");
    if (json) {
        js_addf(&text, "{\"sae\":%s", s->path);
    } else if (e->n > 1) {
        str_esc(&prefix, s->path, strlen(s->path));
        str_addc(&prefix, '\t');
    }
    if (by_token && !json && s == e->list)
        str_addf(&text, "%sid\trows\terror_share\tvariance_share\tfvu\n",
                 e->n > 1 ? "sae\t" : "");
    for (size_t i = 0;
         (json || !by_token) && i < sizeof(values) / sizeof(*values); i++) {
        str_addf(&text, json ? "%s,\"%s\":" : "%s%s\t", prefix.s,
                 values[i].name);
        js_put_f64(&text, values[i].v);
        str_adds(&text, json ? "" : "\n");
    }
    if (by_token) {
        str_adds(&text, json ? ",\"by_token\":" : "");
        tokens_put(&e->tokens, (size_t)(s - e->list), json, prefix.s, &text);
    }
    str_adds(&text, json ? "}\n" : "");
    tool_put("%s", text.s);
    str_free(&text);
    str_free(&prefix);
    if (json || by_token || !(cmd->plot || isatty(1)))
        return;
    bins_of(e, s, bins);
    print_bins(bins);
}

/* Latents by density, in bars, or of several SAEs in a line each, without the
 * bins outside of what all of them have. */
static int
draw(const struct eval *e, struct out *out, struct err *err)
{
    struct chart_line *lines = xcalloc(e->n, sizeof(*lines));
    double *x = xcalloc((e->n + 1) * BINS, sizeof(*x)), *y = x + BINS;
    struct chart c = { .title = e->n == 1 ? e->list->path : "",
                       .about = e->n == 1 ? ": latents by density"
                                          : "latents by density",
                       .x = "log10 of the density",
                       .y = "latents",
                       .whole_y = true };
    size_t first = BINS, end = 1, n;
    struct str text = { 0 }, says = { 0 };
    uint64_t bins[BINS];
    int rc;

    for (size_t i = 0; i < e->n; i++) {
        bins_of(e, &e->list[i], bins);
        for (size_t b = 1; b < BINS; b++) {
            y[i * BINS + b] = (double)bins[b];
            first = bins[b] ? smaller(first, b) : first;
            end = bins[b] ? larger(end, b + 1) : end;
        }
    }
    first = smaller(first, end - 1);
    n = end - first;
    for (size_t b = 0; b < BINS; b++) /* the middle of a bin */
        x[b] = ((double)b - 0.5) / 2 - DECADES;
    for (size_t i = 0; i < e->n; i++)
        lines[i] = (struct chart_line){ x + first, y + i * BINS + first, n,
                                        .name = e->list[i].path };
    c.left = x[first] - 0.25;
    c.right = x[end - 1] + 0.25;
    if (e->n == 1) {
        str_addf(&says, "%llu of %zu are never active",
                 (unsigned long long)bins[0], e->list->a.n);
        c.subtitle = says.s;
        c.columns = y + first;
        c.n_columns = n;
    } else {
        c.lines = lines;
        c.n_lines = e->n;
    }
    chart_svg(&text, &c);
    free(lines);
    free(x);
    rc = out_write(out, text.s, text.n, err);
    str_free(&text);
    str_free(&says);
    return rc;
}

int
eval_main(const struct train_cmd *cmd, struct err *err)
{
    struct eval e = { 0 };
    struct out *svg = NULL;
    ssize_t n = 0;
    int rc;

    sig_install(true);
    rc = open_eval(&e, cmd, err);
    if (rc == 0 && cmd->svg) /* which is none of these inputs */
        rc = out_open(&svg, cmd->svg, cmd->out_flags, false, err);
    while (rc == 0 && (n = rows_batch(&e.rows, err)) > 0)
        rc = add_rows(&e, rows_layer(&e.rows, 0), (size_t)n, err);
    if (n < 0)
        rc = -1;
    if (rc == 0)
        largest_end(&e.largest, &e.large, e.large_error);
    if (rc == 0 && e.largest.lost)
        err_warn("the largest rows came first, and the input does not say how "
                 "many there are: without them nothing is known");
    if (rc == 0 && e.tokens.n)
        rc = add_variance(&e, err);
    for (size_t i = 0; i < e.n && rc == 0; i++)
        print_sae(&e, &e.list[i], cmd);
    if (rc == 0 && svg && (rc = draw(&e, svg, err)) == 0)
        rc = out_commit(svg, err);
    else
        out_abort(svg);
    if (rc == 0 && e.rows.n_bad)
        err_warn("%llu row%s with NaN or Inf left out",
                 (unsigned long long)e.rows.n_bad,
                 e.rows.n_bad == 1 ? "" : "s");
    close_eval(&e);
    return rc;
}
