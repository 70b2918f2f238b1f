/* SPDX-License-Identifier: ISC */
/*
 * sae-train: steps.  Each batch is read once for all SAEs of the pass.  One
 * whose state is of a later place in the input than the others', as after a
 * kill between two of them, waits until the pass gets there.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-train/plan.h"
#include "cmd/sae-train/save.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/kernel/cpu.h"
#include "core/kernel/vec.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/train/schedule.h"
#include "core/outdir.h"
#include "core/sig.h"
#include "core/tool.h"
#include "core/tty.h"

struct pass {
    const struct train_cmd *cmd;
    struct sae_plan plan;
    struct row_stream rows;
    struct par *par;
    struct gemm *gemm;
    struct sae_work *work;
    double seconds; /* of the steps */
    bool tells;     /* a line says how they ended */
    bool ended;     /* the input */
    bool told_more; /* that more arrays follow the first */
    bool has_grown; /* the run is longer than the input's first array said */
};

/* ---- opening ---- */

static int
open_rows(struct pass *s, struct err *err)
{
    const struct train_cmd *cmd = s->cmd;
    int rc;
    const struct row_options o = {
        .paths = cmd->paths,
        .n_paths = cmd->n_paths,
        .dim = (size_t)cmd->dim,
        .dtype = cmd->x_dtype,
        .tokens = cmd->tokens,
        .n_layers = s->plan.n_layers,
        .layers = s->plan.layers,
        .hooks = xcalloc(s->plan.n, sizeof(char *)),
        .n_hooks = s->plan.n,
        .input_at = cmd->input_at,
        .skip_bad = s->plan.o.skip_bad,
        .is_whole = s->plan.o.epochs > 1,
        .skip_ids = s->plan.o.skip_ids,
        .skip_positions = s->plan.o.skip_positions,
        .max_norm = s->plan.o.max_norm,
        .n_threads = cmd->n_threads,
    };

    for (size_t i = 0; i < s->plan.n; i++)
        if (s->plan.list[i].o.hook)
            o.hooks[i] = xstrdup(s->plan.list[i].o.hook);
    rc = rows_open(&s->rows, &o, err);
    for (size_t i = 0; i < s->plan.n; i++) {
        struct planned *p = &s->plan.list[i];

        if (!p->o.hook && o.hooks[i])
            p->o.hook = opt_keep(&p->kept, o.hooks[i], strlen(o.hooks[i]));
        free(o.hooks[i]);
    }
    free(o.hooks);
    if (rc < 0)
        return -1;
    return plan_rows(&s->plan, &s->rows, err);
}

/* Rows are gone over again where the steps need more of them; but one step, as
 * a pass, needs no whole batch. */
static int
wrap_rows(struct pass *s, struct err *err)
{
    uint64_t batch = s->plan.o.batch, steps = s->plan.in_all;
    uint64_t n = s->rows.n_rows / batch;
    char what[100], size[16];
    int rc;

    if (steps == 0 || !s->rows.n_rows || n >= steps ||
        (steps == 1 && s->plan.o.epochs == 1))
        return 0;
    rc = rows_wrap(&s->rows, err);
    if (rc < 0 || (rc > 0 && !s->rows.is_stream))
        return rc < 0 ? -1 : 0;
    snprintf(what, sizeof(what), "%llu rows, and %llu step%s need%s %llu",
             (unsigned long long)s->rows.n_rows, (unsigned long long)steps,
             plural(steps), steps == 1 ? "s" : "",
             (unsigned long long)(steps * batch));
    if (!s->rows.is_stream)
        return err_set(
            err, EX_DATAERR,
            "the input has %s (-n %llu needs no more; whole files are "
            "read again)",
            what, (unsigned long long)larger(n, 1));
    if (rc > 0)
        err_warn("the input begins with %s: a copy in %s, %s, is read again",
                 what, s->rows.copy.dir, size_iec(size, s->rows.copy.nbytes));
    else
        err_warn("the input begins with %s: the run ends early unless more "
                 "arrays follow (-n %llu needs none; a FILE operand is read "
                 "again)",
                 what, (unsigned long long)larger(n, 1));
    return 0;
}

static int
take_init(struct planned *p, struct err *err)
{
    struct sae_trainer *t = &p->trainer;
    const struct sae_tensors to = sae_tensors(t, t->adamw.master);
    size_t n = t->set.n, d = t->set.d;
    struct sae sae;

    if (sae_open_plain(&sae, p->o.init, NULL, err) < 0)
        return -1;
    if (sae.n != n || sae.in != d) {
        err_set(err, EX_DATAERR,
                "%s: has %zu latents of %zu inputs (expected %zu of %zu)",
                sae.path, sae.n, sae.in, n, d);
        sae_close(&sae);
        return -1;
    }
    autoencoder_tensors(&sae, to.encoder, to.decoder, to.encoder_bias,
                        to.decoder_bias);
    for (size_t i = 0; i < t->adamw.n; i++)
        if (!isfinite(t->adamw.master[i])) {
            err_set(err, EX_DATAERR, "%s: has NaN or Inf", sae.path);
            sae_close(&sae);
            return -1;
        }
    /* it is to give the same pre-activations to x - b_dec */
    for (size_t i = 0; i < n && !sae.centered; i++)
        to.encoder_bias[i] += vec_dot(to.encoder + i * d, to.decoder_bias, d);
    sae_close(&sae);
    return 0;
}

static int
open_trainers(struct pass *s, struct err *err)
{
    struct sae_sizes sizes = { .d = s->rows.d,
                               .rows = (size_t)s->plan.o.batch };

    for (size_t i = 0; i < s->plan.n; i++) {
        struct planned *p = &s->plan.list[i];
        const struct sae_settings set = p->trainer.set;

        if (sae_trainer_open(&p->trainer, &set, err) < 0)
            return -1;
        sizes.n = larger(sizes.n, set.n);
        sizes.k = larger(sizes.k, set.k);
        sizes.aux_k = larger(sizes.aux_k, set.aux_k);
        sizes.bf16 |= set.bf16;
        sizes.batchtopk |= set.batchtopk;
        if (save_open(p, s->cmd, err) < 0)
            return -1;
        if (p->run.state.step == 0 && p->o.init && take_init(p, err) < 0)
            return -1;
    }
    if (s->rows.n_rows && s->rows.n_rows < sizes.rows && !s->rows.wraps &&
        !s->rows.is_stream)
        sizes.rows = (size_t)s->rows.n_rows;
    if (par_open(&s->par, s->cmd->n_threads, err) < 0 ||
        gemm_open(&s->gemm, s->par, err) < 0)
        return -1;
    return sae_work_open(&s->work, s->gemm, &sizes, err);
}

/* ---- where the input is ---- */

/* Without -n and --epochs a stream has a step for each batch, however many
 * arrays it has. */
static bool
is_endless(const struct pass *s)
{
    return s->rows.is_stream && !s->plan.steps && s->plan.o.epochs == 1;
}

static bool
is_done(const struct pass *s, const struct planned *p)
{
    return p->total && p->trainer.step >= p->total && !is_endless(s);
}

/* The rows that the pass begins with: the last batch of the SAE that is least
 * far, to see whether this is its input; or what follows. */
static uint64_t
first_row(const struct pass *s)
{
    double before = INFINITY, after = INFINITY;

    for (size_t i = 0; i < s->plan.n; i++) {
        const struct planned *p = &s->plan.list[i];

        if (is_done(s, p))
            continue;
        before = fmin(before, p->input[BEFORE]);
        after = fmin(after, p->input[AFTER]);
    }
    if (!isfinite(after))
        return UINT64_MAX;
    return (uint64_t)(before < (double)s->cmd->input_at ? after : before);
}

/* 52 bits of the checksum of a batch's rows, as a file has them. */
static double
sum_of(const float *x, size_t n)
{
    struct hash *hash = hash_new(HASH_XXH3);
    char hex[HASH_MAX_HEX];

    hash_add_numbers(hash, x, n, sizeof(*x));
    hash_end(hash, hex);
    hex[13] = '\0';
    return (double)strtoull(hex, NULL, 16);
}

/* ---- steps ---- */

static const struct sae_record *
last_record(const struct planned *p)
{
    return (const void *)train_state_at(&p->run.state, p->trainer.step - 1);
}

/* Is there no variance to explain? */
static bool
are_equal(const float *x, size_t n, size_t d)
{
    for (size_t r = 1; r < n; r++)
        if (memcmp(x, x + r * d, d * sizeof(*x)) != 0)
            return false;
    return true;
}

/* What was decided by the first array of a pipe holds no more. */
static void
tell_more(struct pass *s)
{
    const char *copy = s->rows.copy.dir ? "there is no copy of them, and the "
                                          "run ends with the last"
                                        : NULL;

    s->told_more = true;
    if (copy || s->plan.by_first)
        err_warn("more arrays follow the first%s%s%s", copy ? ": " : "",
                 copy ? copy : "",
                 s->plan.by_first ? "; the defaults, --batch and what follows "
                                    "from it, are those of its rows alone"
                                  : "");
}

/* A step of an SAE on the batch. */
static int
step(struct pass *s, struct planned *p, const float *x, size_t n,
     struct err *err)
{
    uint64_t at = p->trainer.step + 1;
    struct sae_record r;

    if (at == 1 && !p->o.init)
        sae_init(s->work, &p->trainer);
    if (p->total && at == p->total + 1 && p->o.decay > 0 && !s->has_grown) {
        s->has_grown = true;
        err_warn(
            "more arrays follow the first, whose rows end at step %llu: the "
            "learning rate fell there, and is --lr again (-n STEPS, of "
            "all arrays, lets it fall at their end)",
            (unsigned long long)p->total);
    }
    if (sae_step(s->work, &p->trainer, &r, err) < 0)
        return -1;
    if (!isfinite(r.loss) && are_equal(x, n, s->rows.d))
        return err_set(err, EX_DATAERR,
                       "%s: the rows of step %llu (%zu) are the same, which "
                       "leaves nothing to explain",
                       p->dir.s, (unsigned long long)at, n);
    if (!isfinite(r.loss))
        return train_run_not_finite(&p->run, p->dir.s, "the loss", r.loss, at,
                                    true, err);
    if (!isfinite(r.grad_norm))
        return train_run_not_finite(&p->run, p->dir.s, "the gradient's norm",
                                    r.grad_norm, at, true, err);
    train_state_record(&p->run.state, (const double *)&r);
    p->input[BEFORE] = (double)s->rows.taken;
    p->input[AFTER] = (double)rows_after(&s->rows);
    p->input[SUM] = sum_of(x, n * s->rows.d);
    if (train_run_stepped(&p->run, true, err) < 0)
        return -1;
    return p->run.log.replaces ? train_run_save(&p->run, err) : 0;
}

/* All SAEs on the batch of n rows. */
static int
steps(struct pass *s, size_t n, struct err *err)
{
    double at = (double)s->rows.taken;
    size_t layer = SIZE_MAX;

    for (size_t i = 0; i < s->plan.n; i++) {
        struct planned *p = &s->plan.list[i];
        const float *x = rows_layer(&s->rows, p->layer);

        if (is_done(s, p))
            continue;
        if (p->trainer.step && at == p->input[BEFORE] &&
            sum_of(x, n * s->rows.d) != p->input[SUM])
            return err_set(err, EX_DATAERR,
                           "%s: the input is another: rows %.0f to %.0f are "
                           "not those that the run had",
                           p->run.state_path.s, p->input[BEFORE],
                           p->input[AFTER] - 1);
        if (at < p->input[AFTER])
            continue;
        if (p->trainer.step && at > p->input[AFTER])
            return err_set(err, EX_DATAERR,
                           "%s: the run goes on with row %.0f (found %.0f; "
                           "--input-at is the input's first)",
                           p->run.state_path.s, p->input[AFTER], at);
        if (p->layer != layer)
            sae_batch(s->work, x, n);
        layer = p->layer;
        if (step(s, p, x, n, err) < 0)
            return -1;
    }
    return 0;
}

static int
save_all(struct pass *s, struct err *err)
{
    for (size_t i = 0; i < s->plan.n; i++)
        if (s->plan.list[i].trainer.step > s->plan.list[i].run.saved &&
            train_run_save(&s->plan.list[i].run, err) < 0)
            return -1;
    return 0;
}

static bool
all_done(const struct pass *s)
{
    for (size_t i = 0; i < s->plan.n; i++)
        if (!is_done(s, &s->plan.list[i]))
            return false;
    return true;
}

/* May a last batch that is not full be a step?  If it is all there is. */
static bool
is_all(const struct pass *s, size_t n)
{
    return n > 0 && s->rows.taken == s->cmd->input_at &&
           s->plan.list[0].trainer.step == 0;
}

/* Is there a step after those of this batch? */
static bool
needs_more(const struct pass *s)
{
    for (size_t i = 0; i < s->plan.n; i++) {
        const struct planned *p = &s->plan.list[i];

        if (!p->total || p->trainer.step + 1 < p->total || is_endless(s))
            return true;
    }
    return false;
}

static void
say(const struct pass *s, double seconds, size_t n)
{
    for (size_t i = 0; i < s->plan.n; i++) {
        const struct planned *p = &s->plan.list[i];
        const struct sae_record *r = last_record(p);

        tool_say("%s%sstep %llu: fvu %.4g, l0 %.4g, %.0f dead, %.0f rows/s",
                 p->name ? p->name : "", p->name ? ": " : "",
                 (unsigned long long)p->trainer.step, r->fvu, r->l0, r->dead,
                 (double)n / (seconds + 1e-9));
    }
}

static int
run_steps(struct pass *s, struct err *err)
{
    const struct train_cmd *cmd = s->cmd;
    struct progress progress = { .what = "train",
                                 .unit = "row",
                                 .total =
                                     s->plan.list[0].total * s->plan.o.batch,
                                 .kept = s->rows.taken,
                                 .quiet = cmd->quiet };
    struct err later;
    int rc = 0;

    progress_start(&progress);
    while (rc == 0 && !all_done(s) && !sig_stop()) {
        double began = clock_s();
        ssize_t n = rows_batch(&s->rows, err);

        if (n < 0) {
            rc = err->status == EX_TEMPFAIL ? 0 : -1;
            if (rc < 0) /* with better input it goes on from here */
                (void)save_all(s, &later);
            break;
        }
        if (s->rows.has_more && !s->told_more)
            tell_more(s);
        if ((size_t)n < s->plan.o.batch && !is_all(s, (size_t)n)) {
            s->ended = true;
            break;
        }
        if (needs_more(s))
            rows_ahead(&s->rows);
        rc = steps(s, (size_t)n, err);
        progress_at(&progress, rows_after(&s->rows));
        if (rc == 0 && cmd->verbose && s->plan.list[0].trainer.step)
            say(s, clock_s() - began, (size_t)n);
    }
    s->tells = progress_end(&progress);
    s->seconds = clock_s() - progress.started;
    return rc;
}

/* Says why a pass that ended before its last step did. */
static int
check_end(const struct pass *s, struct err *err)
{
    const struct planned *p = &s->plan.list[0];

    if (!s->ended)
        return train_run_stopped(&p->run, s->cmd->output, err);
    if (p->trainer.step == 0)
        return err_set(err, EX_DATAERR, "the input has no rows to train on");
    if (s->plan.steps && p->trainer.step < p->total)
        return err_set(err, EX_DATAERR,
                       "the input ended after %llu rows, in step %llu of %llu "
                       "(--resume continues with more; -f -n %llu needs no "
                       "more)",
                       (unsigned long long)rows_after(&s->rows),
                       (unsigned long long)p->trainer.step + 1,
                       (unsigned long long)p->total,
                       (unsigned long long)p->trainer.step);
    return 0;
}

static void
warn_fvu(const struct planned *p)
{
    if (p->trainer.step && last_record(p)->fvu > 1)
        err_warn("%s: fvu is %.4g in the last step: worse than the mean of the "
                 "rows",
                 p->dir.s, last_record(p)->fvu);
}

/* Is the run too short for its learning rate?  Of SAEs with the same --warmup
 * it is said once. */
static void
warn_warmup(const struct pass *s)
{
    uint64_t said = 0;

    for (size_t i = 0; i < s->plan.n; i++) {
        const struct planned *p = &s->plan.list[i];

        if (p->trainer.step || !p->total || p->total >= p->o.warmup ||
            p->o.warmup == said)
            continue;
        said = p->o.warmup;
        schedule_warn(p->total, said);
    }
}

/* What the defaults became. */
static void
say_defaults(const struct pass *s)
{
    const struct planned *p = &s->plan.list[0];
    const struct sae_options *o = &p->o;
    struct str line = { 0 };

    if (s->rows.n_rows)
        str_addf(&line, "%llu row%s, ", (unsigned long long)s->rows.n_rows,
                 plural(s->rows.n_rows));
    str_addf(&line, "--batch %llu", (unsigned long long)o->batch);
    if (s->rows.n_rows && !s->plan.steps)
        str_addf(&line, " --epochs %llu", (unsigned long long)o->epochs);
    if (p->total)
        str_addf(&line, ": %llu step%s", (unsigned long long)p->total,
                 plural(p->total));
    str_addf(&line, ", --warmup %llu --lr %.3g", (unsigned long long)o->warmup,
             o->lr);
    tool_say("%s", line.s);
    str_free(&line);
}

static void
say_end(const struct pass *s, const struct planned *p)
{
    const struct sae_record *r = last_record(p);
    struct str line = { 0 };

    train_run_summary(&p->run,
                      offsetof(struct sae_record, fvu) / sizeof(r->fvu), &line);
    tool_say("%s, %.0f dead, %.0f s", line.s, r->dead, s->seconds);
    str_free(&line);
}

static int
run_pass(struct pass *s, struct err *err)
{
    uint64_t first = first_row(s);
    struct str pictures = { 0 };

    if (first != UINT64_MAX && first > s->cmd->input_at &&
        rows_skip(&s->rows, first, err) < 0)
        return -1;
    if (s->cmd->verbose)
        tool_say("%s, %s, %d thread%s; %zu SAE%s, d %zu, from row %llu on",
                 tool_host(), isa_name(cpu_isa()), s->cmd->n_threads,
                 plural((uint64_t)s->cmd->n_threads), s->plan.n,
                 plural(s->plan.n), s->rows.d,
                 (unsigned long long)s->rows.taken);
    if (s->plan.is_default && !s->cmd->quiet)
        say_defaults(s);
    warn_warmup(s);
    if (run_steps(s, err) < 0 || save_all(s, err) < 0)
        return -1;
    if (!all_done(s) && check_end(s, err) < 0)
        return -1;
    for (size_t i = 0; i < s->plan.n; i++)
        if (save_result(&s->plan.list[i], &s->rows.mask, err) < 0)
            return -1;
    for (size_t i = 0; i < s->plan.n; i++)
        warn_fvu(&s->plan.list[i]);
    for (size_t i = 0; s->tells && i < s->plan.n; i++)
        say_end(s, &s->plan.list[i]);
    for (size_t i = 0; s->cmd->plot && i < s->plan.n; i++)
        train_run_plot(&s->plan.list[i].run, &pictures);
    if (pictures.n)
        tool_put("%s", pictures.s);
    str_free(&pictures);
    if (s->rows.n_bad)
        err_warn("%llu row%s with NaN or Inf %s left out",
                 (unsigned long long)s->rows.n_bad, plural(s->rows.n_bad),
                 s->rows.n_bad == 1 ? "was" : "were");
    return 0;
}

static bool
has_states(const struct sae_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++)
        if (plan->list[i].has_state)
            return true;
    return false;
}

int
train_main(const struct train_cmd *cmd, struct err *err)
{
    struct pass s = { .cmd = cmd };
    int rc;

    sig_install(false);
    rc = outdir_check_name(cmd->output, err);
    if (rc == 0)
        rc = plan_open(&s.plan, cmd, err);
    if (rc == 0 && cmd->resume && !has_states(&s.plan))
        err_warn("%s: there is no run to resume: one begins", cmd->output);
    for (size_t i = 0; i < s.plan.n && rc == 0; i++)
        rc = save_claim(&s.plan.list[i], cmd, err);
    if (rc == 0)
        rc = open_rows(&s, err);
    if (rc == 0)
        rc = wrap_rows(&s, err);
    if (rc == 0)
        rc = rows_room(&s.rows, (size_t)s.plan.o.batch, err);
    if (rc == 0)
        rc = plan_settle(&s.plan, &s.rows, err);
    if (rc == 0)
        rc = open_trainers(&s, err);
    if (rc == 0)
        rc = run_pass(&s, err);
    /* one that was stopped is resumed with its options */
    for (size_t i = s.plan.n; i > 0 && rc < 0; i--)
        if (err->status != EX_TEMPFAIL)
            train_run_undo(&s.plan.list[i - 1].run);
    sae_work_close(s.work);
    gemm_close(s.gemm);
    par_close(s.par);
    rows_close(&s.rows);
    plan_close(&s.plan);
    return rc;
}
