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

#define DIFFERENCE_LIMIT 1e-4 /* exact.c's STEP leaves 1e-8 of a curvature */

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
    struct exact_sample *samples;
    size_t n_samples;
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

/* ---- samples ---- */

/* Some elements of [first, first + n) of a tensor. */
static void
draw(struct check *c, int tensor, size_t first, size_t n)
{
    for (size_t i = 0; i < (size_t)c->cmd->samples && n > 0; i++) {
        uint64_t word = rng_u64(c->cmd->seed, (uint64_t)tensor, c->n_samples);

        c->samples[c->n_samples++] =
            (struct exact_sample){ .tensor = tensor,
                                   .i = first + (size_t)(word % n) };
    }
}

/* Of each expert that has tokens, and of input and weights. */
static void
draw_all(struct check *c)
{
    size_t e = c->run.base.n_experts;
    bool *has_rows = xcalloc(e, sizeof(*has_rows));

    for (size_t i = 0; i < c->n[EXACT_WEIGHTS]; i++)
        if (c->run.batch.expert_ids[i] >= 0 &&
            (uint64_t)c->run.batch.expert_ids[i] < e)
            has_rows[c->run.batch.expert_ids[i]] = true;
    c->samples = xcalloc((MOE_N_LORA * e + 2) * (size_t)c->cmd->samples + 1,
                         sizeof(*c->samples));
    for (int m = 0; m < MOE_N_LORA; m++)
        for (size_t i = 0; i < e; i++)
            if (has_rows[i])
                draw(c, m, i * (c->n[m] / e), c->n[m] / e);
    draw(c, EXACT_INPUT, 0, c->n[EXACT_INPUT]);
    draw(c, EXACT_WEIGHTS, 0, c->n[EXACT_WEIGHTS]);
    free(has_rows);
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

/* 0 of 0 is no difference; anything else of 0 is infinite. */
static double
relative(double d, double unit)
{
    return d == 0 ? 0 : d / unit;
}

static void
put_row(struct check *c, int tensor, const char *expert, const char *compared,
        const struct tally *t, double unit, double limit)
{
    double mean = relative(t->sum / (double)t->n, unit);
    bool good = mean <= limit;

    if (t->n == 0)
        return;
    str_addf(&c->table, "%s\t%s\t%s\t%zu\t%.3g\t%.3g\t%.3g\t%s\n",
             tensor < 0                ? "output"
             : tensor == EXACT_INPUT   ? "input"
             : tensor == EXACT_WEIGHTS ? "weights"
                                       : moe_lora_names[tensor],
             expert, compared, t->n, relative(t->max, unit), mean, limit,
             good ? "yes" : "no");
    c->n_bad += !good;
}

/* The mean of |want| over a range. */
static double
unit_of(const double *want, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += fabs(want[i]);
    return n > 0 ? sum / (double)n : 0;
}

/* Three rows about elements [first, first + n) of a tensor's gradient, whose
 * unit is the mean of |want|, or 'size' where cancellation makes that less. */
static void
put_part(struct check *c, int tensor, const char *expert, size_t first,
         size_t n, double size)
{
    const double *want = c->exact.grad[tensor];
    const float *got = c->grad[tensor];
    double unit = fmax(unit_of(want + first, n), size),
           limit = limits[moe_config(c->run.moe)->mode][1];
    struct tally all = { 0 }, exact = { 0 }, moved = { 0 };
    double sampled = 0, squares = 0, sample_unit, n_counting;

    for (size_t i = first; i < first + n; i++)
        tally(&all, (double)got[i], want[i]);
    for (size_t k = 0; k < c->n_samples; k++) {
        const struct exact_sample *s = &c->samples[k];

        if (s->tensor != tensor || s->i < first || s->i >= first + n)
            continue;
        sampled += fabs(want[s->i]);
        squares += want[s->i] * want[s->i];
        tally(&exact, want[s->i], s->difference);
        tally(&moved, (double)got[s->i], s->difference);
    }
    /* of an outlier's column one is far off in units of all the others, and
     * counts for all the samples */
    sample_unit = fmax(unit, moved.n ? sampled / (double)moved.n : 0);
    n_counting = squares > 0 ? sampled * sampled / squares : (double)moved.n;
    put_row(c, tensor, expert, "exact:difference", &exact, sample_unit,
            DIFFERENCE_LIMIT);
    put_row(c, tensor, expert, "operator:exact", &all, unit, limit);
    /* the mean of a few samples strays from that of all: errors have a long
     * tail */
    put_row(c, tensor, expert, "operator:difference", &moved, sample_unit,
            n_counting > 0 ? limit * (1 + 6 / sqrt(n_counting)) : limit);
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

    if (cmd->tune->model || cmd->tune->data)
        return check_model(cmd, err);
    if (!cmd->base || !cmd->lora || !cmd->input)
        return err_set(err, TU_USAGE,
                       "check: -b, -l and -i are for a layer's experts, -m and "
                       "-d for a model; %s is missing",
                       !cmd->base   ? "-b"
                       : !cmd->lora ? "-l"
                                    : "-i");
    if (opt_given(cmd->line, "rank") || opt_given(cmd->line, "alpha") ||
        cmd->grads)
        return err_set(err, TU_USAGE,
                       "--rank, --alpha and --grads are for --model");
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
    draw_all(&c);
    if (exact_run(&c.exact, &problem, c.samples, c.n_samples, run->par, err) <
        0)
        goto out;
    str_adds(&c.table, "tensor\texpert\tcompared\tn\tmax\tmean\tlimit\tok\n");
    for (size_t i = 0; i < c.exact.n_output; i++)
        tally(&all, (double)c.output[i], c.exact.output[i]);
    put_row(&c, -1, "-", "operator:exact", &all,
            unit_of(c.exact.output, c.exact.n_output),
            limits[moe_config(run->moe)->mode][0]);
    put_part(&c, EXACT_INPUT, "-", 0, c.n[EXACT_INPUT], 0);
    put_part(&c, EXACT_WEIGHTS, "-", 0, c.n[EXACT_WEIGHTS],
             *c.exact.size[EXACT_WEIGHTS]);
    for (int m = 0; m < MOE_N_LORA; m++)
        for (size_t e = 0; e < run->base.n_experts; e++) {
            size_t n = c.n[m] / run->base.n_experts;
            char expert[24];

            snprintf(expert, sizeof(expert), "%zu", e);
            put_part(&c, m, expert, e * n, n, c.exact.size[m][e]);
        }
    rc = out_put(cmd->output ? cmd->output : "-", cmd->out_flags, c.table.s,
                 c.table.n, err);
    if (rc == 0 && c.n_bad)
        rc = TU_NEGATIVE;
out:
    str_free(&c.table);
    exact_close(&c.exact);
    free(c.samples);
    if (run->moe)
        grads_close(&c.grads, moe_config(run->moe));
    free(c.grad_input);
    free(c.output);
    free(c.grad_output);
    run_close(run);
    return rc;
}
