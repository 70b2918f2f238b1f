/* SPDX-License-Identifier: ISC */
/* moe-sft tune: steps, evaluations, and when to write. */
#include <math.h>

#include "cmd/moe-sft/tune.h"
#include "core/clock.h"
#include "core/kernel/cvt.h"
#include "core/model/train/loss.h"
#include "core/model/train/run.h"
#include "core/opt.h"
#include "core/sig.h"
#include "core/tool.h"
#include "core/tty.h"

/* ---- what is not finite ---- */

/* Names a tensor of the model that alone explains it, or the adapter that the
 * run began with: one pass over the weights, as a forward is. */
static void
find_cause(const struct tune *t, struct str *cause)
{
    const struct stdir *dir = &t->lm->model->dir;

    for (size_t i = 0; i < dir->n_tensors && !sig_stop(); i++) {
        const struct st_tensor *tensor = dir->tensors[i].t;

        if (!dtype_computes(tensor->dtype) ||
            dtype_finite(st_data(dir->tensors[i].st, tensor), tensor->dtype,
                         (size_t)tensor->n_elements))
            continue;
        str_addf(cause, "%s: %s has NaN or Inf", dir->tensors[i].st->path,
                 tensor->name);
        return;
    }
    if (t->run.state.step == 0 && t->o.tune.init &&
        !cvt_fits(t->adamw.master, DT_F32, t->adamw.n))
        str_addf(cause, "%s: has NaN or Inf", t->o.tune.init);
}

static int
not_finite(const struct tune *t, const char *what, double v, uint64_t step,
           struct err *err)
{
    const char *dir = t->o.output ? t->o.output : t->o.tune.model;
    struct str cause = { 0 };
    int rc;

    find_cause(t, &cause);
    rc = train_run_not_finite(&t->run, cause.n ? cause.s : dir, what, v, step,
                              !cause.n && t->run.state.step, err);
    str_free(&cause);
    return rc;
}

/* ---- a step ---- */

/* The sequences of a step, 0, 1, ..: how many, in t->step. */
static size_t
take_sequences(struct tune *t, uint64_t step)
{
    uint64_t each = t->o.tune.batch * t->o.train.accumulate, n = t->windows.n;
    uint64_t first = step % t->per_epoch * each;
    size_t n_seqs = (size_t)(n - first < each ? n - first : each);

    for (size_t i = 0; i < n_seqs; i++)
        t->step[i] = t->windows.seqs[train_order_at(
            &t->order, n, step / t->per_epoch, first + i)];
    return n_seqs;
}

/* An expert's projection that no token of a step has reached: its two matrices
 * have no gradient. */
static bool
is_idle(const struct lm *lm, size_t a)
{
    const struct lm_tensor *t = &lm->tensors[a];
    size_t end = t[1].first + t[1].rows * t[1].cols;

    if (t->at.part < PART_EXPERT_GATE)
        return false;
    for (size_t i = t->first; i < end; i++)
        if (lm->grad[i] != 0)
            return false;
    return true;
}

/* What has no gradient stays as it is, with its moments and without decay, as
 * torch leaves it. */
static void
move(struct tune *t, double scale, double lr, uint64_t step)
{
    const struct lm *lm = t->lm;

    for (size_t i = 0, end; i < lm->n_tensors; i = end + 2) {
        size_t first = lm->tensors[i].first, last;

        for (end = i; end < lm->n_tensors && !is_idle(lm, end);)
            end += 2;
        last = end < lm->n_tensors ? lm->tensors[end].first : lm->n_params;
        adamw_step(&t->adamw, first, last - first, lm->grad, scale, lr, step,
                   t->par);
    }
}

/* Forward, backward, and the parameters' move: 1, 0 where it is time to stop,
 * or -1. */
static int
run_step(struct tune *t, struct err *err)
{
    uint64_t step = t->run.state.step;
    size_t n = take_sequences(t, step), n_targets = lm_n_targets(t->step, n);
    struct step_record r = { .lr = schedule_lr(&t->schedule, step) };
    double sum = 0;

    if (lm_grad(t->lm, t->step, n, &sum, err) < 0)
        return err->status == EX_TEMPFAIL ? 0 : -1;
    for (size_t i = 0; i < n; i++)
        r.tokens += (double)t->step[i].n;
    r.loss = n_targets ? sum / (double)n_targets : 0;
    if (!isfinite(r.loss))
        return not_finite(t, "the loss", r.loss, step + 1, err);
    r.grad_norm = grad_norm(t->lm->grad, t->lm->n_params, t->par);
    if (!isfinite(r.grad_norm))
        return not_finite(t, "the gradient's norm", r.grad_norm, step + 1, err);
    if (n_targets) /* else nothing moves, momentum included */
        move(t, clip_scale(r.grad_norm, t->o.train.clip), r.lr, step + 1);
    train_state_record(&t->run.state, (const double *)&r);
    return 1;
}

/* ---- evaluation ---- */

static uint64_t
eval_every(const struct tune *t)
{
    return t->o.tune.eval_every ? t->o.tune.eval_every : t->per_epoch;
}

static bool
eval_is_due(const struct tune *t)
{
    const struct eval_list *e = &t->run.state.evals;
    uint64_t step = t->run.state.step;

    return t->eval_data.n > 0 &&
           (step % eval_every(t) == 0 || step == t->total) &&
           !(e->n && e->list[e->n - 1].step == (double)step);
}

/* That of the last step, if it was not due by --eval-every. */
static bool
is_extra(const struct tune *t, double step)
{
    return fmod(step, (double)eval_every(t)) != 0;
}

/* A run that is resumed up to a later step has the bytes of one that went there
 * at once: without the evaluation of the step that was the last. */
void
tune_drop_extra(struct tune *t)
{
    struct eval_list *e = &t->run.state.evals;

    if (e->n && t->run.state.step < t->total &&
        is_extra(t, e->list[e->n - 1].step))
        e->n--;
}

/* The loss on --eval: 1, or 0 where it is time to stop, or -1. */
static int
evaluate(struct tune *t, struct err *err)
{
    const struct tune_windows *w = &t->eval_windows;
    double sum = 0, loss;

    if (lm_loss(t->lm, w->seqs, w->n, &sum, err) < 0)
        return err->status == EX_TEMPFAIL ? 0 : -1;
    loss = sum / (double)w->n_targets;
    if (!isfinite(loss))
        return not_finite(t, "the loss on --eval", loss, t->run.state.step,
                          err);
    train_state_eval(&t->run.state, loss);
    /* DIR/best is what it would be if the run went on; DIR has this one */
    if (t->o.tune.keep_best && !is_extra(t, (double)t->run.state.step) &&
        ranks_agree(t->ranks, tune_dir_best(t, err), err) < 0)
        return -1;
    return 1;
}

/* ---- all steps ---- */

static uint64_t
tokens_before(const struct tune *t, uint64_t step)
{
    return (uint64_t)((double)t->windows.n_tokens * (double)step /
                      (double)t->per_epoch);
}

static void
start_progress(const struct tune *t, struct progress *p)
{
    *p = (struct progress){ .what = "tune",
                            .unit = "token",
                            .total = tokens_before(t, t->total),
                            .kept = tokens_before(t, t->run.state.step),
                            .quiet = opt_given(t->o.line, "quiet") > 0 ||
                                     ranks_self(t->ranks) > 0 };
    progress_start(p);
    progress_at(p, p->kept);
}

/* One step, and all that follows it: 1, 0 where it is time to stop, or -1. */
static int
one_step(struct tune *t, struct err *err)
{
    double started = clock_s();
    const struct step_record *r;
    uint64_t step;
    int rc;

    if (ranks_stop(t->ranks))
        return 0;
    rc = run_step(t, err);
    if (rc != 1)
        return rc;
    step = t->run.state.step;
    r = (const void *)train_state_at(&t->run.state, step - 1);
    if (t->o.verbose)
        tool_say("step %llu: loss %.4g, %.0f tokens/s",
                 (unsigned long long)step, r->loss,
                 r->tokens / (clock_s() - started + 1e-9));
    if (eval_is_due(t))
        rc = evaluate(t, err);
    if (rc < 0 ||
        ranks_agree(t->ranks, train_run_stepped(&t->run, rc == 1, err), err) <
            0)
        return -1;
    return rc;
}

static int
run_steps(struct tune *t, struct err *err)
{
    struct progress progress;
    int rc = 1;

    if (eval_is_due(t)) { /* also one that the run was stopped in */
        rc = evaluate(t, err);
        if (rc == 1 &&
            ranks_agree(t->ranks, train_run_begin(&t->run, err), err) < 0)
            rc = -1;
    }
    if (rc == 1)
        train_run_head(&t->run);
    start_progress(t, &progress);
    while (rc == 1 && t->run.state.step < t->total) {
        rc = one_step(t, err);
        progress_at(&progress, tokens_before(t, t->run.state.step));
    }
    t->seconds = progress_end(&progress) ? clock_s() - progress.started : 0;
    return rc < 0 ? -1 : 0;
}

int
tune_run(struct tune *t, struct err *err)
{
    if (t->run.state.step == 0)
        train_warn_warmup(&t->schedule);
    if (run_steps(t, err) < 0)
        return -1;
    /* a resumed run's files may be of another step than its state */
    if (ranks_agree(t->ranks, train_run_save(&t->run, err), err) < 0)
        return -1;
    if (t->run.state.step < t->total || eval_is_due(t))
        return train_run_stopped(&t->run, t->run.dir, err);
    if (train_run_end(&t->run, err) < 0)
        return -1;
    if (ranks_self(t->ranks) == 0)
        train_tell(&t->run, &t->o.train, t->run.state.step ? t->seconds : 0);
    return 0;
}

int
tune_grads(struct tune *t, const char *path, struct err *err)
{
    size_t n = take_sequences(t, 0), n_targets = lm_n_targets(t->step, n);
    double sum = 0, loss, norm;

    if (lm_grad(t->lm, t->step, n, &sum, err) < 0)
        return -1;
    loss = n_targets ? sum / (double)n_targets : 0;
    norm = grad_norm(t->lm->grad, t->lm->n_params, t->par);
    if (!isfinite(loss) || !isfinite(norm))
        return not_finite(t,
                          isfinite(loss) ? "the gradient's norm" : "the loss",
                          isfinite(loss) ? norm : loss, 1, err);
    return tune_write_grads(t, loss, path, err);
}
