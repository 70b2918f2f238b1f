/* SPDX-License-Identifier: ISC */
/* moe-sft check: are the operator's gradients right, for this base, adapter and
 * batch?  Those of a whole model: check_model.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "core/model/moe_exact.h"
#include "core/model/train/loss.h"
#include "core/opt.h"
#include "core/out.h"
#include "core/rng.h"
#include "core/str.h"

/* Of mean|a - b| / mean|b|: forward, backward. */
static const double limits[2][2] = {
    [MOE_BF16] = { 0.01, 0.015 },
    [MOE_INT8] = { 0.05, 0.06 },
};

struct check {
    const struct cmd *cmd;
    struct sft_run run;
    uint16_t *grad_output;
    struct moe_grads grads;
    float *grad_input, *output;
    const float *grad[EXACT_N]; /* the operator's */
    size_t n[EXACT_N];
    struct exact exact;
    int n_bad;
    struct str table;
};

/* ---- the operator's results ---- */

/* Output and gradients; the output's gradient is the batch's, or that of its
 * target, or random. */
static int
run_operator(struct check *c, struct err *err)
{
    const struct batch *b = &c->run.batch;
    struct moe_batch batch = batch_of(b);
    const struct moe_config *config = moe_config(c->run.moe);
    size_t n = b->qlen * c->run.base.hidden;

    if (grads_open(&c->grads, config, b->qlen, err) < 0)
        return -1;
    for (enum moe_lora_matrix m = 0; m < MOE_N_LORA; m++) {
        c->n[m] = moe_lora_numbers(config, m);
        c->grad[m] = c->grads.lora[m];
    }
    c->n[EXACT_INPUT] = n;
    c->n[EXACT_WEIGHTS] = b->qlen * b->top_k;
    c->grad[EXACT_INPUT] = c->grad_input =
        mem_try(n + 1, sizeof(float), "gradients", err);
    c->grad[EXACT_WEIGHTS] = c->grads.weights;
    c->output = mem_try(n + 1, sizeof(float), "outputs", err);
    c->grad_output = mem_try(n + 1, 2, "gradients", err);
    if (!c->grad_input || !c->output || !c->grad_output ||
        moe_forward(c->run.moe, &batch, c->output, true, err) < 0)
        return -1;
    if (b->grad_output)
        memcpy(c->grad_output, b->grad_output, n * 2);
    else if (b->target && n > 0)
        loss_mse(c->grad_output, c->output, b->target, n, c->run.par);
    else
        for (size_t i = 0; i < n; i++)
            put_le16(&c->grad_output[i],
                     f32_to_bf16(2 * rng_f32(c->cmd->seed, EXACT_N, i) - 1));
    if (moe_backward(c->run.moe, c->grad_output, &c->grads, err) < 0)
        return -1;
    cvt_to_f32(c->grad_input, c->grads.input, DT_BF16, n);
    return 0;
}

/* ---- the table ---- */

/* Differences of pairs, in units of the mean of all. */
struct tally {
    size_t n;
    double max, sum;
};

static void
tally(struct tally *t, double a, double b)
{
    double d = fabs(a - b);

    t->n++;
    t->sum += d;
    t->max = d <= t->max ? t->max : d; /* NaN: is not <= */
}

double
check_relative(double d, double unit)
{
    return d == 0 ? 0 : d / unit;
}

static void
put_row(struct check *c, int tensor, const char *expert, const char *compared,
        const struct tally *t, double unit, double limit)
{
    double mean = check_relative(t->sum / (double)t->n, unit);
    bool good = mean <= limit;

    if (t->n == 0)
        return;
    str_addf(&c->table, "%s\t%s\t%s\t%zu\t%.3g\t%.3g\t%.3g\t%s\n",
             tensor < 0                ? "output"
             : tensor == EXACT_INPUT   ? "input"
             : tensor == EXACT_WEIGHTS ? "weights"
                                       : moe_lora_names[tensor],
             expert, compared, t->n, check_relative(t->max, unit), mean, limit,
             good ? "yes" : "no");
    c->n_bad += !good;
}

/* The mean of |want| */
static double
unit_of(const double *want, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += fabs(want[i]);
    return n > 0 ? sum / (double)n : 0;
}

/*
 * A row about elements [first, first + n) of a tensor's gradient: what it says
 * of each sample, and the slopes.  The unit is the mean of |slope|, or more
 * where that is small by chance, by the norm of the gradient, or by
 * cancellation, 'size'.
 */
static void
put_part(struct check *c, int tensor, const char *expert, size_t first,
         size_t n, const double *slopes, double size)
{
    size_t n_samples = c->exact.n_samples;
    double *said = xcalloc(n_samples + 1, sizeof(*said)), norm = 0;
    double n_counting = (double)n_samples, unit, squares = 0;
    struct tally moved = { 0 };

    for (size_t i = first, k; i < first + n && n_samples > 0; i++) {
        double grad = (double)c->grad[tensor][i];
        int sign = exact_sign(&c->exact, tensor, i, &k);

        said[k] += sign * grad;
        norm += grad * grad;
    }
    for (size_t k = 0; k < n_samples && n > 0; k++) {
        tally(&moved, said[k], slopes[k]);
        squares += slopes[k] * slopes[k];
    }
    unit = unit_of(slopes, n_samples);
    /* of samples that are far larger than the others there are few */
    if (squares > 0)
        n_counting *= n_counting * unit * unit / squares;
    unit = fmax(unit, sqrt(2 / M_PI * norm / (double)n_samples));
    put_row(c, tensor, expert, "operator:difference", &moved, fmax(unit, size),
            limits[moe_config(c->run.moe)->mode][1] *
                (1 + 2 / sqrt(n_counting)));
    free(said);
}

/* ---- the verb ---- */

int
check_main(const struct cmd *cmd, struct err *err)
{
    struct check c = { .cmd = cmd, .grads.lora_dtype = DT_F32 };
    struct sft_run *run = &c.run;
    struct moe_lora lora;
    struct moe_batch batch;
    struct exact_problem problem;
    struct tally all = { 0 };
    enum moe_mode mode;
    int rc = -1;

    if (cmd->tune.model || cmd->tune.data)
        return check_model(cmd, err);
    if (!cmd->base || !cmd->lora || !cmd->input)
        return err_set(err, TU_USAGE,
                       "check: -b, -l and -i are for a layer's experts, -m and "
                       "-d for a model; %s is missing",
                       !cmd->base   ? "-b"
                       : !cmd->lora ? "-l"
                                    : "-i");
    if (opt_given(cmd->line, "rank") || opt_given(cmd->line, "alpha"))
        return err_set(err, TU_USAGE, "--rank and --alpha are for --model");
    if (can_write(cmd, cmd->output, err) < 0 || run_files(run, cmd, err) < 0 ||
        run_batch(run, err) < 0 ||
        base_mode(&run->base, cmd->mode, &mode, err) < 0 ||
        run_moe(run, run->batch.top_k, run->batch.qlen, mode, false, err) < 0 ||
        run_operator(&c, err) < 0)
        goto out;
    lora = adapter_lora(&run->adapter);
    batch = batch_of(&run->batch);
    problem = (struct exact_problem){ moe_config(run->moe), &run->base.weights,
                                      &lora, &batch, c.grad_output };
    if (exact_run(&c.exact, &problem, cmd->seed, (size_t)cmd->samples, run->par,
                  err) < 0)
        goto out;
    str_adds(&c.table, "tensor\texpert\tcompared\tn\tmax\tmean\tlimit\tok\n");
    for (size_t i = 0; i < c.exact.n_output; i++)
        tally(&all, (double)c.output[i], c.exact.output[i]);
    put_row(&c, -1, "-", "operator:exact", &all,
            unit_of(c.exact.output, c.exact.n_output),
            limits[moe_config(run->moe)->mode][0]);
    for (int t = EXACT_INPUT; t < EXACT_N; t++)
        put_part(&c, t, "-", 0, c.n[t], c.exact.slope[t], *c.exact.size[t]);
    for (int m = 0; m < MOE_N_LORA; m++)
        for (size_t e = 0; e < run->base.n_experts; e++) {
            size_t n = c.n[m] / run->base.n_experts;
            char expert[24];

            snprintf(expert, sizeof(expert), "%zu", e);
            put_part(&c, m, expert, e * n, n,
                     c.exact.slope[m] + e * c.exact.n_samples,
                     c.exact.size[m][e]);
        }
    rc = out_put(cmd->output ? cmd->output : "-", cmd->out_flags | OUT_TABLE,
                 c.table.s, c.table.n, err);
    if (rc == 0 && c.n_bad)
        rc = TU_NEGATIVE;
out:
    str_free(&c.table);
    exact_close(&c.exact);
    if (run->moe)
        grads_close(&c.grads, moe_config(run->moe));
    free(c.grad_input);
    free(c.output);
    free(c.grad_output);
    run_close(run);
    return rc;
}
