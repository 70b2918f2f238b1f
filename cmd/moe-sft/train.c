/* SPDX-License-Identifier: ISC */
/*
 * moe-sft train: AdamW brings the experts' output to a target, in the mean of
 * squares.
 *
 * A step has --accumulate batches.  Each goes forward and backward through the
 * operator, whose adapter is bf16; the mean of the batches' gradients moves
 * f32 parameters, and these, rounded, are the adapter of the next step.  DIR
 * holds the adapter and the state, from which --resume continues to the same
 * bits.  Both are written every --save-every steps, at the end, and when a
 * signal or the deadline stops the run.
 */
#include "cmd/moe-sft/verbs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/data.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/write.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/inuse.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "core/model/train/adamw.h"
#include "core/model/train/loss.h"
#include "core/model/train/run.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/par.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

struct train {
    const struct cmd *cmd;
    const struct train_options *o; /* the command's */
    struct par *par;
    struct base base;
    struct expert_adapter adapter; /* the parameters, rounded to bf16 */
    struct data data;

    struct schedule schedule;
    struct adamw adamw;        /* parameters and moments of all six matrices */
    size_t at[MOE_N_LORA + 1]; /* where each matrix begins in them */
    float *grad, *sum;         /* gradients: of a batch, of the step so far */

    struct moe_config config;
    struct moe *moe; /* opened for the first batch, again for longer ones */
    float *output;   /* [max_len, hidden] */
    uint16_t *grad_output; /* [max_len, hidden] */
    size_t skipped;        /* slots of the step whose id names no expert */

    struct str lora_path;
    struct train_run run;
    struct train_tensor tensors[MOE_N_LORA];
    char arithmetic[40];
    double seconds; /* where a line says how it ended */
};

/* ---- opening ---- */

/* What a resumed run must have in common with the first one. */
static int
set_settings(struct train *t, struct err *err)
{
    static const char *const options[] = {
        "--mode",   "--schedule", "--total",  "--tp",           "--lr",
        "--warmup", "--clip",     "--eps",    "--weight-decay", "--accumulate",
        "--length", "--seed",     "--shuffle"
    };
    struct cmd own = *t->cmd; /* as they are, where the files say it */
    const struct {
        const char *name, *path;
    } files[] = { { "base", t->cmd->base },
                  { "adapter", t->cmd->lora },
                  { "data", data_path(&t->data) } };

    for (int i = 0; i < 3; i++) {
        struct hash *hash = hash_new(HASH_XXH3);
        char hex[HASH_MAX_HEX];
        int rc = 0;

        if (i == 0)
            base_digest(&t->base, hash);
        else if (i == 1)
            adapter_digest(&t->adapter, hash);
        else
            rc = data_digest(&t->data, hash, err);
        hash_end(hash, hex);
        if (rc < 0)
            return -1;
        train_state_set(&t->run.state, files[i].name, hex, files[i].path);
    }
    own.mode = (int)t->config.mode;
    own.train.total = t->schedule.total;
    own.train.warmup = (double)t->schedule.warmup;
    own.length = (int64_t)t->data.length;
    if (!t->o->shuffle)
        own.seed = 0;
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        if (strcmp(options[i], "--total") != 0 ||
            t->o->schedule != SCHEDULE_CONSTANT)
            train_state_set_option(&t->run.state, own.line->tool, options[i],
                                   &own);
        if (!strcmp(options[i], "--clip")) {
            train_state_set_number(&t->run.state, "--betas (the first)",
                                   own.train.beta1);
            train_state_set_number(&t->run.state, "--betas (the second)",
                                   own.train.beta2);
        }
    }
    return 0;
}

/* The adapter is the parameters, rounded. */
static void
round_parameters(struct train *t)
{
    for (int m = 0; m < MOE_N_LORA; m++)
        cvt_from_f32(t->adapter.m[m], DT_BF16, t->adamw.master + t->at[m],
                     t->at[m + 1] - t->at[m]);
}

static int
write_adapter(void *of, struct err *err)
{
    struct train *t = of;

    return adapter_write(&t->adapter, t->lora_path.s, OUT_RUN, err);
}

/* Makes and locks DIR, and reads the state of the run that is resumed. */
static int
open_dir(struct train *t, struct err *err)
{
    static const char *const files[] = { OUTDIR_STATE, "lora.safetensors" };
    struct train_run *r = &t->run;

    r->what = "train";
    r->files = files;
    r->n_files = 2;
    r->resume = t->o->resume;
    r->force = t->cmd->out_flags & OUT_FORCE;
    r->save_every = t->o->save_every;
    r->print_every = !t->o->log;
    r->print = tool_print;
    r->write = write_adapter;
    r->of = t;
    r->log.path = t->o->log;
    r->log.svg = t->o->svg;
    r->log.unit = "mean square of the differences";
    r->log.table = &train_step_table;
    str_addf(&t->lora_path, "%s/%s", r->dir, files[1]);
    if (outdir_check_name(r->dir, err) < 0)
        return -1;
    /* no file that is read is replaced, nor are the batches still to come */
    for (int i = 0; i < t->cmd->n_args; i++)
        if (inuse_will_read(t->cmd->args[i], err) < 0)
            return -1;
    if (train_run_claim(r, err) < 0 || train_run_open(r, err) < 0)
        return -1;
    if (r->any_saved)
        round_parameters(t);
    return train_run_begin(r, err);
}

static int
train_open(struct train *t, const struct cmd *cmd, struct err *err)
{
    const struct train_options *o = &cmd->train;
    uint64_t total = o->total ? o->total : o->steps;

    *t = (struct train){ .cmd = cmd, .o = o };
    train_run_init(&t->run, cmd->output);
    if (par_open(&t->par, cmd->n_threads, err) < 0 ||
        base_open(&t->base, cmd->base, cmd->layer, err) < 0 ||
        adapter_open(&t->adapter, cmd->lora, &t->base, err) < 0 ||
        data_open(&t->data, cmd, &t->base, t->par, err) < 0)
        return -1;
    if (base_check(&t->base, t->par, err) < 0)
        return -1;
    t->config = adapter_config(&t->adapter, 0);
    t->config.act = t->base.act;
    t->config.n_parts = (size_t)cmd->n_parts;
    t->config.strict_ids = cmd->strict_ids;
    if (base_mode(&t->base, cmd->mode, &t->config.mode, err) < 0)
        return -1;
    t->schedule = train_schedule(o, total);
    for (enum moe_lora_matrix m = 0; m < MOE_N_LORA; m++) {
        t->tensors[m] = (struct train_tensor){ moe_lora_names[m], { 0 }, 3 };
        moe_lora_shape(&t->config, m, t->tensors[m].shape);
        t->at[m + 1] = t->at[m] + moe_lora_numbers(&t->config, m);
    }
    t->adamw = (struct adamw){ .beta1 = o->beta1,
                               .beta2 = o->beta2,
                               .eps = o->eps,
                               .weight_decay = o->weight_decay };
    if (adamw_open(&t->adamw, t->at[MOE_N_LORA], err) < 0)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++)
        cvt_to_f32(t->adamw.master + t->at[m], t->adapter.m[m], DT_BF16,
                   t->at[m + 1] - t->at[m]);
    t->grad = mem_big(t->adamw.n, sizeof(float), "gradients", err);
    t->sum = mem_big(t->adamw.n, sizeof(float), "gradients", err);
    if (!t->grad || !t->sum)
        return -1;
    snprintf(t->arithmetic, sizeof(t->arithmetic), "%s, " GEMM_EXACT_ORDER,
             isa_name(cpu_isa()));
    t->run.state = (struct train_state){ .program = "moe-sft train",
                                         .table = &train_step_table,
                                         .format = "moe-sft state 1",
                                         .arithmetic = t->arithmetic,
                                         .any_isa = o->any_isa,
                                         .tensors = t->tensors,
                                         .n_tensors = MOE_N_LORA,
                                         .adamw = &t->adamw };
    if (set_settings(t, err) < 0 || open_dir(t, err) < 0)
        return -1;
    if (cmd->verbose)
        tool_say(
            "%s, %s, %d thread%s; %zu expert%s of %zu x %zu, rank %zu; from "
            "step %llu on",
            tool_host(), isa_name(cpu_isa()), cmd->n_threads,
            plural(cmd->n_threads), t->base.n_experts,
            plural(t->base.n_experts), t->base.hidden, t->base.intermediate,
            t->adapter.rank, (unsigned long long)t->run.state.step);
    return 0;
}

static void
close_operator(struct train *t)
{
    moe_close(t->moe);
    free(t->output);
    free(t->grad_output);
    t->moe = NULL;
    t->output = NULL;
    t->grad_output = NULL;
}

/* ---- a step ---- */

static int
not_finite(const struct train *t, const char *where, const char *what, double v,
           struct err *err)
{
    return train_run_not_finite(&t->run, where, what, v, t->run.state.step + 1,
                                t->run.state.step > 0, err);
}

/* The loss of a batch, and its gradients, which overwrite 'grad'.  An operator
 * that has no room for the batch is opened again, with at least twice as much.
 */
static int
batch_gradients(struct train *t, const struct batch *b, float *grad,
                double *loss, struct err *err)
{
    struct moe_batch batch = batch_of(b);
    struct moe_grads grads = { .lora_dtype = DT_F32 };
    size_t n = b->qlen;

    for (int m = 0; m < MOE_N_LORA; m++)
        grads.lora[m] = grad + t->at[m];
    if (t->config.top_k == 0)
        t->config.top_k = b->top_k;
    if (b->top_k != t->config.top_k)
        return err_set(
            err, EX_DATAERR,
            "%s: expert_ids has %zu slot%s a token (expected %zu, as "
            "the batches before)",
            b->name, b->top_k, plural(b->top_k), t->config.top_k);
    if (!t->moe || n > t->config.max_len) {
        if (t->moe)
            n = larger(n, 2 * t->config.max_len);
        close_operator(t);
        t->config.max_len = n;
        t->output = mem_try(n, t->base.hidden * sizeof(float), "outputs", err);
        t->grad_output = mem_try(n, t->base.hidden * 2, "gradients", err);
        if (!t->output || !t->grad_output ||
            operator_open(&t->moe, &t->config, t->cmd->n_threads, &t->base,
                          &t->adapter, err) < 0)
            return -1;
    }
    if (moe_forward(t->moe, &batch, t->output, true, err) < 0)
        return -1;
    t->skipped += moe_skipped(t->moe);
    *loss = loss_mse(t->grad_output, t->output, b->target, b->qlen * b->hidden,
                     t->par);
    if (!isfinite(*loss))
        return not_finite(t, b->name, "the loss", *loss, err);
    return moe_backward(t->moe, t->grad_output, &grads, err);
}

/* Returns 1; 0 where the stream has ended or it is time to stop: the batches
 * of an unfinished step are then dropped; or -1. */
static int
run_step(struct train *t, struct err *err)
{
    struct step_record r = { .lr =
                                 schedule_lr(&t->schedule, t->run.state.step) };
    uint64_t n = t->o->accumulate, first = t->run.state.step * n;
    double scale = 1 / (double)n;

    t->skipped = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct batch b;
        double loss = 0;
        int rc;

        if (sig_stop())
            return 0;
        rc = data_get(&t->data, first + i, &b, err);
        if (rc == 0 && i > 0)
            err_warn(
                "standard input: %llu batch%s at its end, less than a step, "
                "ignored",
                (unsigned long long)i, i == 1 ? "" : "es");
        if (rc <= 0)
            return rc;
        rc = batch_gradients(t, &b, i ? t->grad : t->sum, &loss, err);
        r.tokens += (double)b.qlen;
        batch_close(&b);
        if (rc < 0)
            return -1;
        if (i > 0)
            grad_add(t->sum, t->grad, t->adamw.n, t->par);
        r.loss += loss / (double)n;
    }
    r.grad_norm = scale * grad_norm(t->sum, t->adamw.n, t->par);
    if (!isfinite(r.grad_norm))
        return not_finite(t, data_path(&t->data), "the gradient's norm",
                          r.grad_norm, err);
    adamw_step(&t->adamw, 0, t->adamw.n, t->sum,
               scale * clip_scale(r.grad_norm, t->o->clip), r.lr,
               t->run.state.step + 1, t->par);
    round_parameters(t);
    train_state_record(&t->run.state, (const double *)&r);
    return 1;
}

/* ---- all steps ---- */

/* The steps that are left, until the stream ends or it is time to stop. */
static int
run_steps(struct train *t, struct err *err)
{
    const struct train_options *o = t->o;
    struct train_state *s = &t->run.state;

    struct progress progress = { .what = "train",
                                 .unit = "step",
                                 .total = o->steps,
                                 .kept = s->step,
                                 /* the log's lines are there, too */
                                 .quiet = opt_given(t->cmd->line, "quiet") ||
                                          (!o->log && isatty(1)) };
    int rc = 1;

    train_run_head(&t->run);
    progress_start(&progress);
    while (rc > 0 && (o->steps == 0 || s->step < o->steps)) {
        double started = clock_s();
        const struct step_record *r;

        rc = run_step(t, err);
        if (rc <= 0)
            break;
        r = (const void *)train_state_at(s, s->step - 1);
        if (t->cmd->verbose)
            tool_say("step %llu: loss %.4g, %.0f tokens/s, %zu slot%s skipped",
                     (unsigned long long)s->step, r->loss,
                     r->tokens / (clock_s() - started + 1e-9), t->skipped,
                     plural(t->skipped));
        progress_at(&progress, s->step);
        if (train_run_stepped(&t->run, true, err) < 0)
            rc = -1;
    }
    t->seconds = progress.dirty ? clock_s() - progress.started : 0;
    progress_end(&progress);
    return rc < 0 ? -1 : 0;
}

static int
train(struct train *t, struct err *err)
{
    uint64_t step, steps = t->o->steps;
    bool done;

    if (t->run.state.step == 0)
        train_warn_warmup(&t->schedule);
    /* EX_TEMPFAIL: stopped while it waited for the stream, which is no failure
     * of the steps before */
    if (run_steps(t, err) < 0 && err->status != EX_TEMPFAIL)
        return -1;
    step = t->run.state.step;
    if ((!t->run.any_saved || t->run.saved != step ||
         file_missing(t->lora_path.s) || t->o->resume) &&
        train_run_save(&t->run, err) < 0)
        return -1;
    done = steps == 0 ? !sig_stop() : step >= steps;
    if (!done && sig_stop())
        return train_run_stopped(&t->run, t->run.dir, err);
    if (!done)
        return err_set(err, EX_DATAERR,
                       "standard input: ended after step %llu of %llu (%s "
                       "holds it)",
                       (unsigned long long)step, (unsigned long long)steps,
                       t->cmd->output);
    if (train_run_end(&t->run, err) < 0)
        return -1;
    train_tell(&t->run, t->o, t->seconds);
    return 0;
}

int
train_main(const struct cmd *cmd, struct err *err)
{
    struct train *t;
    int rc;

    if (train_check(cmd, err) < 0)
        return -1;
    sig_install(false);
    t = xmalloc(sizeof(*t));
    rc = train_open(t, cmd, err);
    if (rc == 0)
        rc = train(t, err);
    if (rc < 0)
        train_run_undo(&t->run);
    close_operator(t);
    mem_big_free(t->grad, t->adamw.n, sizeof(float));
    mem_big_free(t->sum, t->adamw.n, sizeof(float));
    adamw_close(&t->adamw);
    data_close(&t->data);
    adapter_close(&t->adapter);
    base_close(&t->base);
    par_close(t->par);
    train_run_close(&t->run);
    str_free(&t->lora_path);
    free(t);
    return rc;
}
