/* SPDX-License-Identifier: ISC */
/*
 * moe-sft check of a whole model: are the gradients right that tune trains by?
 * Each tensor of the adapter is moved along two directions, and the loss of the
 * first step's sequences by as much as the gradient says: along the gradient
 * itself, which shows what is there and wrong, and along random signs, which
 * show what is missing, as parts of the gradient that are 0 are not moved by
 * the first.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/tune.h"
#include "cmd/moe-sft/write.h"
#include "core/format/st.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/model/train/difference.h"
#include "core/model/train/loss.h"
#include "core/model/train/run.h"
#include "core/opt.h"
#include "core/out.h"
#include "core/rng.h"
#include "core/str.h"
#include "core/tty.h"

/* In units of the gradient's norm: f32's own rounding is below 1e-4
 * (test/unit/lm.c), any wrong formula far above this. */
#define GRADIENT_LIMIT 1e-3
/* Of the root of the mean of all tensors' squares, the least unit: where terms
 * cancel, as those of q_proj where a token sees itself alone, what is left of
 * them is rounding. */
#define LEAST_UNIT 1e-2
/* And of the loss over the adapter's norm: where all of them are so. */
#define ROUNDING_UNIT 2e-3
/* F32 has 1 - p of a token that is predicted with p to 2^-24: of a smaller loss
 * neither that nor the gradient is known to GRADIENT_LIMIT. */
#define LEAST_LOSS 1e-3
/* Where curvature and rounding of the loss may be more, nothing is shown. */
#define UNCLEAR_LIMIT 0.05

enum { ALONG_GRADIENT, ALONG_SIGNS, N_DIRECTIONS };

struct check_row {
    const struct lm_tensor *tensor;
    double norm;                /* of the gradient */
    double error[N_DIRECTIONS]; /* in units of it, or c->unit */
    double limit[N_DIRECTIONS];
    const char *ok; /* "yes", "no" or "unclear" */
};

struct model_check {
    struct tune t;
    float *values, *grads; /* [n_params] */
    size_t n_seqs, n_targets;
    struct difference loss;
    double unit;            /* at least, of errors */
    struct check_row *rows; /* [n] */
    size_t n, n_unclear;
    bool bad;
};

/* ---- values and gradients ---- */

/* A new adapter's B is 0, and so would be the gradient of A. */
static void
fill_b(struct model_check *c)
{
    const struct lm *lm = c->t.lm;
    double bound = 0.1 / sqrt((double)lm->lora.rank);

    for (size_t i = 1; i < lm->n_tensors; i += 2)
        for (size_t k = 0; k < lm->tensors[i].rows * lm->tensors[i].cols; k++)
            c->values[lm->tensors[i].first + k] =
                (float)((2 * rng_f64(c->t.o.seed, UINT64_MAX - i, k) - 1) *
                        bound);
}

/* The gradients of --against. */
static int
read_grads(struct model_check *c, const char *path, struct err *err)
{
    const struct lm *lm = c->t.lm;
    struct st st;
    int rc = 0;

    if (st_open(&st, path, err) < 0)
        return -1;
    for (size_t i = 0; rc == 0 && i < lm->n_tensors; i++) {
        const struct lm_tensor *want = &lm->tensors[i];
        const struct st_tensor *t = st_find(&st, want->name);
        size_t n = want->rows * want->cols;

        if (!t || t->dtype != DT_F32 || t->n_dims != 2 ||
            t->shape[0] != want->rows || t->shape[1] != want->cols)
            rc = err_set(err, EX_DATAERR, "%s: %s is %s", path, want->name,
                         t ? "not F32, or of another shape than the adapter's"
                           : "missing");
        else
            rc = st_read_numbers(&st, t, 0, c->grads + want->first, n,
                                 sizeof(float), err);
    }
    for (size_t i = 0; rc == 0 && i < st.n_tensors; i++) {
        size_t k = 0;

        if (!strcmp(st.tensors[i].name, "loss")) /* of tune --grads */
            continue;
        while (k < lm->n_tensors &&
               strcmp(st.tensors[i].name, lm->tensors[k].name) != 0)
            k++;
        if (k == lm->n_tensors)
            rc = err_set(err, EX_DATAERR,
                         "%s: %s is not a tensor of the adapter", path,
                         st.tensors[i].name);
    }
    st_close(&st);
    return rc;
}

static int
loss_of(void *ctx, double *loss, struct err *err)
{
    struct model_check *c = ctx;

    if (lm_loss(c->t.lm, c->t.windows.seqs, c->n_seqs, loss, err) < 0)
        return -1;
    *loss /= (double)c->n_targets;
    if (isfinite(*loss))
        return 0;
    return err_set(err, TRAIN_NOT_FINITE, "%s: the loss is %s",
                   c->t.o.tune.data, isnan(*loss) ? "NaN" : "infinite");
}

/* Values, their gradient, and the noise of the loss. */
static int
open_gradient(struct model_check *c, struct err *err)
{
    struct lm *lm = c->t.lm;
    uint64_t each = c->t.o.tune.batch;
    double sum;

    c->n_seqs = c->t.windows.n < each ? c->t.windows.n : (size_t)each;
    c->n_targets = lm_n_targets(c->t.windows.seqs, c->n_seqs);
    if (c->n_targets == 0)
        return err_set(err, EX_DATAERR,
                       "%s: no target in the first %zu sequence%s",
                       c->t.o.tune.data, c->n_seqs, plural(c->n_seqs));
    c->values = mem_try(lm->n_params, sizeof(float), "the adapter", err);
    c->grads = mem_try(lm->n_params, sizeof(float), "the gradients", err);
    if (!c->values || !c->grads)
        return -1;
    lm_start(lm, c->values);
    if (!c->t.o.tune.init)
        fill_b(c);
    if (lm_prepare(lm, c->values, err) < 0)
        return -1;
    if (c->t.o.against) {
        if (read_grads(c, c->t.o.against, err) < 0)
            return -1;
    } else {
        if (lm_grad(lm, c->t.windows.seqs, c->n_seqs, &sum, err) < 0)
            return -1;
        memcpy(c->grads, lm->grad, lm->n_params * sizeof(float));
    }
    c->loss = (struct difference){
        .loss = loss_of, .ctx = c, .values = c->values, .n = lm->n_params
    };
    if (loss_of(c, &sum, err) < 0)
        return -1;
    if (sum < LEAST_LOSS)
        return err_set(err, EX_DATAERR,
                       "%s: the loss is %.3g: too small for differences of it "
                       "(expected %g or more)",
                       c->t.o.tune.data, sum, LEAST_LOSS);
    c->unit = fmax(LEAST_UNIT * grad_norm(c->grads, lm->n_params, c->t.par) /
                       sqrt((double)lm->n_tensors),
                   ROUNDING_UNIT * fabs(sum) /
                       grad_norm(c->values, lm->n_params, c->t.par));
    return difference_noise(&c->loss, c->t.o.seed, err);
}

/* ---- a tensor ---- */

static void
set_direction(const struct model_check *c, const struct check_row *row,
              int which, double *direction, size_t n)
{
    const float *grad = c->grads + row->tensor->first;
    uint64_t stream = (uint64_t)(row->tensor - c->t.lm->tensors);
    double one = 1 / sqrt((double)n);

    for (size_t i = 0; i < n; i++)
        if (which == ALONG_GRADIENT && row->norm > 0)
            direction[i] = (double)grad[i] / row->norm;
        else
            direction[i] = rng_u64(c->t.o.seed, stream, i) & 1 ? one : -one;
}

static int
check_tensor(struct model_check *c, struct check_row *row, struct err *err)
{
    size_t n = row->tensor->rows * row->tensor->cols;
    const float *grad = c->grads + row->tensor->first;
    double *direction = xcalloc(n, sizeof(*direction)), unit;
    bool bad = false, unclear = false;
    int rc = 0;

    row->norm = grad_norm(grad, n, c->t.par);
    unit = fmax(row->norm, c->unit);
    for (int which = 0; rc == 0 && which < N_DIRECTIONS; which++) {
        struct slope slope;

        set_direction(c, row, which, direction, n);
        rc = difference_slope(&c->loss, row->tensor->first, n, direction, grad,
                              unit * GRADIENT_LIMIT, &slope, err);
        if (rc < 0)
            break;
        row->error[which] = check_relative(fabs(slope.error), unit);
        row->limit[which] = GRADIENT_LIMIT + check_relative(slope.bound, unit);
        if (!(row->error[which] <= row->limit[which])) /* NaN, too */
            bad = true;
        else if (row->limit[which] > UNCLEAR_LIMIT)
            unclear = true;
    }
    row->ok = bad ? "no" : unclear ? "unclear" : "yes";
    c->bad = c->bad || bad;
    c->n_unclear += !bad && unclear;
    free(direction);
    return rc;
}

/* ---- which tensors, and the table ---- */

struct tensor_kind {
    size_t n, seen;
};

/* All targets' A and B are kinds. */
static struct tensor_kind *
find_kind(struct tensor_kind *kinds, const struct lm *lm, size_t tensor)
{
    return &kinds[2 * lm->tensors[tensor].target + tensor % 2];
}

/* --samples of each kind, evenly from the first to the last: number i of n,
 * where i (samples - 1) / (n - 1) is another whole number than before. */
static void
draw_rows(struct model_check *c, size_t samples)
{
    struct tensor_kind kinds[2 * LM_N_TARGETS] = { 0 };
    const struct lm *lm = c->t.lm;

    c->rows = xcalloc(lm->n_tensors, sizeof(*c->rows));
    for (size_t i = 0; i < lm->n_tensors; i++)
        find_kind(kinds, lm, i)->n++;
    for (size_t i = 0; i < lm->n_tensors; i++) {
        struct tensor_kind *kind = find_kind(kinds, lm, i);
        size_t k = kind->seen++, last = larger(1, kind->n - 1);

        if (k == 0 ||
            k * (samples - 1) / last != (k - 1) * (samples - 1) / last)
            c->rows[c->n++] = (struct check_row){ .tensor = &lm->tensors[i] };
    }
}

static double
worst(const struct check_row *r)
{
    double w = 0;

    for (int i = 0; i < N_DIRECTIONS; i++) {
        double d = r->error[i] / r->limit[i];

        w = d <= w ? w : isnan(d) ? INFINITY : d;
    }
    return w;
}

/* The worst first; else in their order. */
static int
compare(const void *a, const void *b)
{
    const struct check_row *x = a, *y = b;
    double dx = worst(x), dy = worst(y);

    if (dx != dy)
        return dx < dy ? 1 : -1;
    return x->tensor < y->tensor ? -1 : 1;
}

static int
put_table(struct model_check *c, struct err *err)
{
    const struct cmd *cmd = &c->t.o;
    struct str text = { 0 };
    int rc;

    qsort(c->rows, c->n, sizeof(*c->rows), compare);
    str_adds(&text, "tensor\tgradient\talong_gradient\tlimit\talong_signs\t"
                    "limit\tok\n");
    for (size_t i = 0; i < c->n; i++) {
        const struct check_row *r = &c->rows[i];

        str_addf(&text, "%s\t%.3g\t%.3g\t%.3g\t%.3g\t%.3g\t%s\n",
                 r->tensor->name, r->norm, r->error[0], r->limit[0],
                 r->error[1], r->limit[1], r->ok);
    }
    rc = out_put(cmd->output ? cmd->output : "-", cmd->out_flags | OUT_TABLE,
                 text.s, text.n, err);
    str_free(&text);
    return rc;
}

/* ---- the verb ---- */

static int
run_check(struct model_check *c, struct err *err)
{
    struct progress progress = { .what = "check", .unit = "tensor" };

    if (open_gradient(c, err) < 0)
        return -1;
    draw_rows(c, (size_t)c->t.o.samples);
    progress.total = c->n;
    progress.quiet = opt_given(c->t.o.line, "quiet") > 0;
    progress_start(&progress);
    for (size_t i = 0; i < c->n; i++) {
        if (check_tensor(c, &c->rows[i], err) < 0) {
            progress_end(&progress);
            return -1;
        }
        progress_at(&progress, i + 1);
    }
    progress_end(&progress);
    if (put_table(c, err) < 0)
        return -1;
    if (c->n_unclear)
        err_warn("%zu tensor%s: the loss is too rough for an answer (of more "
                 "tokens it is less so)",
                 c->n_unclear, plural(c->n_unclear));
    return c->bad ? TU_NEGATIVE : 0;
}

int
check_model(const struct cmd *cmd, struct err *err)
{
    struct model_check *c;
    struct cmd tune = *cmd;
    const struct tune_options *o = &tune.tune;
    int rc;

    if (cmd->base)
        return err_set(err, TU_USAGE, "-b is a layer's experts', -m a model");
    if (!o->model || !o->data)
        return err_set(err, TU_USAGE, "check: -%c is missing",
                       o->model ? 'd' : 'm');
    if (cmd->samples == 0)
        return err_set(err, TU_USAGE, "--samples 0 is for a layer's experts");
    if (can_write(cmd, cmd->output, err) < 0)
        return -1;
    tune.tune.compute = COMPUTE_F32;
    tune.output = NULL; /* tune's is a directory */
    c = xcalloc(1, sizeof(*c));
    rc = tune_open(&c->t, &tune, NULL, err);
    c->t.o.output = cmd->output;
    if (rc == 0)
        rc = run_check(c, err);
    tune_close(&c->t);
    free(c->values);
    free(c->grads);
    free(c->rows);
    free(c);
    return rc;
}
