/* moe-sft check: are the operator's gradients right, for this base, adapter and
 * batch? */
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
#include "core/par.h"
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
    struct par *par;
    struct sft_run run;
    uint16_t *grad_output;
    float *output, *grad[EXACT_N]; /* the operator's */
    size_t n[EXACT_N];
    struct exact exact;
    struct exact_sample *samples;
    size_t n_samples;
    int n_bad;
    struct str table;
};

static const char *
tensor_name(int tensor)
{
    return tensor == EXACT_INPUT     ? "input"
           : tensor == EXACT_WEIGHTS ? "weights"
                                     : moe_lora_names[tensor];
}

/* ---- the operator's results ---- */

static int
alloc_results(struct check *c, struct err *err)
{
    size_t n = c->run.batch.qlen * c->run.base.hidden;

    for (int m = 0; m < MOE_N_LORA; m++)
        c->n[m] =
            moe_lora_numbers(moe_config(c->run.moe), (enum moe_lora_matrix)m);
    c->n[EXACT_INPUT] = n;
    c->n[EXACT_WEIGHTS] = c->run.batch.qlen * c->run.batch.top_k;
    for (int m = 0; m < EXACT_N; m++) {
        c->grad[m] = mem_try(c->n[m] + 1, sizeof(float), "gradients", err);
        if (!c->grad[m])
            return -1;
    }
    c->output = mem_try(n + 1, sizeof(float), "outputs", err);
    c->grad_output = mem_try(n + 1, 2, "gradients", err);
    return c->output && c->grad_output ? 0 : -1;
}

/* What the batch has: a gradient, or a target, or neither. */
static void
set_grad_output(struct check *c)
{
    size_t n = c->n[EXACT_INPUT];

    if (c->run.batch.grad_output)
        memcpy(c->grad_output, c->run.batch.grad_output, n * 2);
    else if (c->run.batch.target && n > 0)
        loss_mse(c->grad_output, c->output, c->run.batch.target, n, c->par);
    else
        for (size_t i = 0; i < n; i++)
            put_le16(&c->grad_output[i],
                     f32_to_bf16(2 * rng_f32(c->cmd->seed, EXACT_N, i) - 1));
}

static int
run_operator(struct check *c, struct err *err)
{
    struct moe_batch batch = batch_of(&c->run.batch);
    struct moe_grads grads = { .lora_dtype = DT_F32,
                               .weights = c->grad[EXACT_WEIGHTS] };
    uint16_t *input = mem_try(c->n[EXACT_INPUT] + 1, 2, "gradients", err);
    int rc = -1;

    grads.input = input;
    for (int m = 0; m < MOE_N_LORA; m++)
        grads.lora[m] = c->grad[m];
    if (input && moe_forward(c->run.moe, &batch, c->output, true, err) == 0) {
        set_grad_output(c);
        rc = moe_backward(c->run.moe, c->grad_output, &grads, err);
    }
    if (rc == 0)
        cvt_to_f32(c->grad[EXACT_INPUT], input, DT_BF16, c->n[EXACT_INPUT]);
    free(input);
    return rc;
}

/* ---- samples ---- */

static bool
has_rows(const struct check *c, size_t expert)
{
    for (size_t i = 0; i < c->n[EXACT_WEIGHTS]; i++)
        if (c->run.batch.expert_ids[i] == (int64_t)expert)
            return true;
    return false;
}

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

static void
draw_all(struct check *c)
{
    size_t e = c->run.base.n_experts;

    c->samples = xcalloc((MOE_N_LORA * e + 2) * (size_t)c->cmd->samples + 1,
                         sizeof(*c->samples));
    for (int m = 0; m < MOE_N_LORA; m++)
        for (size_t i = 0; i < e; i++)
            if (has_rows(c, i))
                draw(c, m, i * (c->n[m] / e), c->n[m] / e);
    draw(c, EXACT_INPUT, 0, c->n[EXACT_INPUT]);
    draw(c, EXACT_WEIGHTS, 0, c->n[EXACT_WEIGHTS]);
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
             tensor < 0 ? "output" : tensor_name(tensor), expert, compared,
             t->n, relative(t->max, unit), mean, limit, good ? "yes" : "no");
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

/* The mean of a few samples strays from that of all: errors have a long tail.
 */
static double
slack(double n)
{
    return n > 0 ? 1 + 6 / sqrt(n) : 1;
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
    put_row(c, tensor, expert, "operator:difference", &moved, sample_unit,
            limit * slack(n_counting));
}

static void
put_output(struct check *c)
{
    struct tally t = { 0 };

    for (size_t i = 0; i < c->exact.n_output; i++)
        tally(&t, (double)c->output[i], c->exact.output[i]);
    put_row(c, -1, "-", "operator:exact", &t,
            unit_of(c->exact.output, c->exact.n_output),
            limits[moe_config(c->run.moe)->mode][0]);
}

static void
put_table(struct check *c)
{
    str_adds(&c->table, "tensor\texpert\tcompared\tn\tmax\tmean\tlimit\tok\n");
    put_output(c);
    put_part(c, EXACT_INPUT, "-", 0, c->n[EXACT_INPUT], 0);
    put_part(c, EXACT_WEIGHTS, "-", 0, c->n[EXACT_WEIGHTS],
             *c->exact.size[EXACT_WEIGHTS]);
    for (int m = 0; m < MOE_N_LORA; m++)
        for (size_t e = 0; e < c->run.base.n_experts; e++) {
            size_t n = c->n[m] / c->run.base.n_experts;
            char expert[24];

            snprintf(expert, sizeof(expert), "%zu", e);
            put_part(c, m, expert, e * n, n, c->exact.size[m][e]);
        }
}

/* ---- the verb ---- */

static int
open_run(struct check *c, struct err *err)
{
    const struct batch *b = &c->run.batch;
    enum moe_mode mode;

    if (run_files(&c->run, c->cmd, err) < 0 || run_batch(&c->run, err) < 0 ||
        base_mode(&c->run.base, c->cmd->mode, &mode, err) < 0)
        return -1;
    return run_moe(&c->run, b->top_k, b->qlen, mode, false, err);
}

static int
check_all(struct check *c, struct err *err)
{
    struct moe_lora lora = adapter_lora(&c->run.adapter);
    struct moe_batch batch = batch_of(&c->run.batch);
    const struct exact_problem problem = { moe_config(c->run.moe),
                                           &c->run.base.weights, &lora, &batch,
                                           c->grad_output };

    draw_all(c);
    if (exact_run(&c->exact, &problem, c->samples, c->n_samples, c->par, err) <
        0)
        return -1;
    put_table(c);
    if (put_text(c->cmd->output, c->cmd->out_flags, &c->table, err) < 0)
        return -1;
    return c->n_bad ? TU_NEGATIVE : 0;
}

int
check_main(const struct cmd *cmd, struct err *err)
{
    struct check c = { .cmd = cmd };
    int rc = -1;

    if (can_write(cmd, cmd->output, err) == 0 &&
        par_open(&c.par, cmd->n_threads, err) == 0 && open_run(&c, err) == 0 &&
        alloc_results(&c, err) == 0 && run_operator(&c, err) == 0)
        rc = check_all(&c, err);
    str_free(&c.table);
    exact_close(&c.exact);
    free(c.samples);
    for (int m = 0; m < EXACT_N; m++)
        free(c.grad[m]);
    free(c.output);
    free(c.grad_output);
    run_close(&c.run);
    par_close(c.par);
    return rc;
}
