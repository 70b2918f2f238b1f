#include "cmd/moe-sft/train.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/data.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/verbs.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "core/model/train/adamw.h"
#include "core/model/train/log.h"
#include "core/model/train/loss.h"
#include "core/model/train/state.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/par.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"

struct train {
    const struct train_options *o;
    struct par *par;
    struct base base;
    struct expert_adapter adapter;
    struct moe_config config;
    struct moe *moe; /* opened by the first batch, anew by a longer one */
    struct data data;
    struct schedule schedule;
    struct adamw adamw;
    struct train_log log;
    struct train_tensor tensors[MOE_N_LORA];
    struct train_state state;
    size_t at[MOE_N_LORA + 1]; /* where a matrix begins in all below */
    float *grad, *sum;         /* of one batch, of a step's */
    float *output;             /* [max_len, hidden] */
    uint16_t *grad_output;
    size_t skipped; /* slots of the last step whose id is no expert */
    uint64_t saved; /* the step that DIR holds */
    bool any_saved;
    bool log_is_new; /* it, and the picture, are this run's own */
    struct str state_path, lora_path;
    int stdout_errno; /* a full disk ends no run, but is told */
    int lock;         /* DIR, where its file system has locks; or -1 */
};

/* ---- beginning ---- */

/* Frees the hash. */
static void
set_digest(struct train *t, const char *name, const char *path,
           struct hash *hash)
{
    char hex[HASH_MAX_HEX];

    hash_hex(hash, hex);
    hash_free(hash);
    train_state_set(&t->state, name, hex, path);
}

static const char *
data_path(const struct train_options *o)
{
    return o->input ? o->input : o->files[0];
}

static void
settle(struct train *t)
{
    const struct train_options *o = t->o;
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        { "--tp", (double)o->n_parts },
        { "--lr", o->lr },
        { "--warmup", (double)t->schedule.warmup },
        { "--clip", o->clip },
        { "--betas (the first)", o->beta1 },
        { "--betas (the second)", o->beta2 },
        { "--eps", o->eps },
        { "--weight-decay", o->weight_decay },
        { "--accumulate", (double)o->accumulate },
        { "--length", o->input ? (double)o->length : 0 },
        { "--seed", o->shuffle ? (double)o->seed : 0 },
        { "--shuffle", o->shuffle },
    };
    struct hash *base = hash_new(HASH_XXH3), *adapter = hash_new(HASH_XXH3);
    struct hash *data = hash_new(HASH_XXH3);

    base_digest(&t->base, base);
    set_digest(t, "base", o->base, base);
    adapter_digest(&t->adapter, adapter);
    set_digest(t, "adapter", o->lora, adapter);
    data_digest(o, data);
    set_digest(t, "data", data_path(o), data);
    train_state_set(&t->state, "--mode", mode_names[t->config.mode], NULL);
    train_state_set(&t->state, "--schedule", schedule_names[o->schedule], NULL);
    if (o->schedule != SCHEDULE_CONSTANT)
        train_state_set_number(&t->state, "--total", (double)t->schedule.total);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        train_state_set_number(&t->state, numbers[i].name, numbers[i].value);
}

static void
set_schedule(struct train *t)
{
    const struct train_options *o = t->o;
    uint64_t total = o->total ? o->total : o->steps;

    t->schedule = (struct schedule){
        .kind = o->schedule,
        .lr = o->lr,
        .total = total,
        .warmup = (uint64_t)(o->warmup < 1 ? ceil(o->warmup * (double)total)
                                           : o->warmup),
    };
}

/* Masters begin as the adapter's numbers. */
static int
open_masters(struct train *t, struct err *err)
{
    const struct train_options *o = t->o;

    for (int m = 0; m < MOE_N_LORA; m++)
        t->at[m + 1] =
            t->at[m] + moe_lora_numbers(&t->config, (enum moe_lora_matrix)m);
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
    return t->grad && t->sum ? 0 : -1;
}

/* The adapter is the masters, rounded. */
static int
update_adapter(struct train *t, struct err *err)
{
    struct moe_lora lora = adapter_lora(&t->adapter);

    for (int m = 0; m < MOE_N_LORA; m++)
        cvt_from_f32(t->adapter.m[m], DT_BF16, t->adamw.master + t->at[m],
                     t->at[m + 1] - t->at[m]);
    return t->moe ? moe_update_lora(t->moe, &lora, err) : 0;
}

static bool
there(const char *path)
{
    return path && !file_missing(path);
}

/* Two runs in one folder would take turns in writing over each other's state.
 * Where there are no locks (some network file systems) nothing is held. */
static int
lock_dir(struct train *t, struct err *err)
{
    t->lock = open(t->o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->lock >= 0 && flock(t->lock, LOCK_EX | LOCK_NB) < 0 &&
        errno == EWOULDBLOCK)
        return err_set(err, EX_CANTCREAT, "%s: another train is at work there",
                       t->o->dir);
    return 0;
}

/* Is there a run to go on with, or one that must not be written over? */
static int
look_into_dir(struct train *t, struct err *err)
{
    const struct train_options *o = t->o;
    struct stat st;

    str_addf(&t->state_path, "%s/state.safetensors", o->dir);
    str_addf(&t->lora_path, "%s/lora.safetensors", o->dir);
    if (outdir_check_name(o->dir, err) < 0 || outdir_make(o->dir, err) < 0)
        return -1;
    if (stat(o->dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, EX_CANTCREAT, "%s: is no folder", o->dir);
    if (access(o->dir, W_OK | X_OK) < 0)
        return err_sys(err, EX_CANTCREAT, "%s: cannot be written", o->dir);
    if (lock_dir(t, err) < 0)
        return -1;
    if (o->resume && there(t->state_path.s)) {
        if (train_state_read(&t->state, t->state_path.s, err) < 0)
            return -1;
        t->saved = t->state.step;
        t->any_saved = true;
        if (update_adapter(t, err) < 0)
            return -1;
    } else if (!o->resume && !o->force &&
               (there(t->state_path.s) || there(t->lora_path.s))) {
        return err_set(err, EX_CANTCREAT,
                       "%s: holds a run already (--resume goes on with it, "
                       "--force begins anew)",
                       o->dir);
    }
    return o->force ? 0
                    : train_log_check(&t->log, o->resume, t->state.records,
                                      (size_t)t->state.step, err);
}

/* What the files are of. */
static void
set_state(struct train *t)
{
    for (int m = 0; m < MOE_N_LORA; m++) {
        t->tensors[m] = (struct train_tensor){ moe_lora_names[m], { 0 }, 3 };
        moe_lora_shape(&t->config, (enum moe_lora_matrix)m,
                       t->tensors[m].shape);
    }
    t->state.program = "moe-sft train";
    t->state.format = "moe-sft state 1";
    t->state.tensors = t->tensors;
    t->state.n_tensors = MOE_N_LORA;
    t->state.adamw = &t->adamw;
    t->log = (struct train_log){ t->o->log, t->o->svg, t->o->dir };
}

static int
write_log(const struct train *t, struct err *err)
{
    return train_log_write(&t->log, t->state.records, (size_t)t->state.step,
                           err);
}

static int
train_open(struct train *t, const struct train_options *o, struct err *err)
{
    *t = (struct train){ .o = o, .lock = -1 };
    if (par_open(&t->par, o->n_threads, err) < 0 ||
        base_open(&t->base, o->base, o->layer, err) < 0 ||
        adapter_open(&t->adapter, o->lora, &t->base, err) < 0 ||
        data_open(&t->data, o, &t->base, t->par, err) < 0)
        return -1;
    t->config = adapter_config(&t->adapter, 0);
    t->config.n_parts = o->n_parts;
    t->config.strict_ids = o->strict_ids;
    if (base_mode(&t->base, o->mode, &t->config.mode, err) < 0)
        return -1;
    set_state(t);
    set_schedule(t);
    settle(t);
    if (open_masters(t, err) < 0 || look_into_dir(t, err) < 0)
        return -1;
    t->log_is_new = !o->resume && !o->force;
    return write_log(t, err); /* what cannot be is told now */
}

static void
close_rows(struct train *t)
{
    moe_close(t->moe);
    t->moe = NULL;
    free(t->output);
    free(t->grad_output);
    t->output = NULL;
    t->grad_output = NULL;
}

static void
train_close(struct train *t)
{
    close_rows(t);
    mem_big_free(t->grad, t->adamw.n, sizeof(float));
    mem_big_free(t->sum, t->adamw.n, sizeof(float));
    adamw_close(&t->adamw);
    data_close(&t->data);
    adapter_close(&t->adapter);
    base_close(&t->base);
    par_close(t->par);
    free(t->state.records);
    if (t->lock >= 0)
        close(t->lock);
    str_free(&t->state_path);
    str_free(&t->lora_path);
}

/* ---- a step ---- */

/* An operator for batches of that length: twice the one before, at least. */
static int
make_room(struct train *t, const struct batch *b, struct err *err)
{
    struct moe_lora lora = adapter_lora(&t->adapter);
    size_t n = b->qlen;

    if (t->config.top_k == 0)
        t->config.top_k = b->top_k;
    if (b->top_k != t->config.top_k)
        return err_set(err, EX_DATAERR,
                       "%s: expert_ids has %zu slots a token (expected %zu, as "
                       "the batches before)",
                       b->name, b->top_k, t->config.top_k);
    if (t->moe && n <= t->config.max_len)
        return 0;
    if (t->moe && n < 2 * t->config.max_len)
        n = 2 * t->config.max_len;
    close_rows(t);
    t->config.max_len = n;
    t->output = mem_try(n, t->base.hidden * sizeof(float), "outputs", err);
    t->grad_output = mem_try(n, t->base.hidden * 2, "gradients", err);
    if (!t->output || !t->grad_output ||
        moe_open(&t->moe, &t->config, t->o->n_threads, err) < 0 ||
        moe_load(t->moe, &t->base.weights, err) < 0)
        return -1;
    return moe_update_lora(t->moe, &lora, err);
}

static int
not_finite(const struct train *t, const char *where, const char *what, double v,
           struct err *err)
{
    struct str held = { 0 };

    if (t->any_saved)
        str_addf(&held, "holds step %llu", (unsigned long long)t->saved);
    else
        str_adds(&held, "holds nothing yet");
    err_set(err, SFT_NOT_FINITE, "%s: %s is %s in step %llu (%s %s)", where,
            what, isnan(v) ? "nan" : "infinite",
            (unsigned long long)t->state.step + 1, t->o->dir, held.s);
    str_free(&held);
    return -1;
}

/* The gradients of a batch's loss, overwriting 'grad'. */
static int
batch_gradients(struct train *t, const struct batch *b, float *grad,
                double *loss, struct err *err)
{
    struct moe_batch batch = batch_of(b);
    struct moe_grads grads = { .lora_dtype = DT_F32 };

    for (int m = 0; m < MOE_N_LORA; m++)
        grads.lora[m] = grad + t->at[m];
    if (make_room(t, b, err) < 0 ||
        moe_forward(t->moe, &batch, t->output, true, err) < 0)
        return -1;
    t->skipped += moe_skipped(t->moe);
    *loss = loss_mse(t->grad_output, t->output, b->target, b->qlen * b->hidden,
                     t->par);
    if (!isfinite(*loss))
        return not_finite(t, b->name, "the loss", *loss, err);
    return moe_backward(t->moe, t->grad_output, &grads, err);
}

/* The batches of a step, their gradients added up: 1, or 0 where the stream
 * has ended or it is time to stop: a step begun is then given up. */
static int
run_batches(struct train *t, struct step_record *r, struct err *err)
{
    uint64_t n = t->o->accumulate, first = t->state.step * n;

    for (uint64_t i = 0; i < n; i++) {
        struct batch b = { 0 };
        double loss;
        int rc;

        if (sig_stop())
            return 0;
        rc = data_get(&t->data, first + i, &b, err);
        if (rc == 0 && i > 0)
            err_warn("%s: %llu batches at its end are no whole step, left out",
                     "standard input", (unsigned long long)i);
        if (rc <= 0)
            return rc;
        rc = batch_gradients(t, &b, i ? t->grad : t->sum, &loss, err);
        r->tokens += (double)b.qlen;
        batch_close(&b);
        if (rc < 0)
            return -1;
        if (i > 0)
            grad_add(t->sum, t->grad, t->adamw.n, t->par);
        r->loss += loss / (double)n;
    }
    return 1;
}

static int
run_step(struct train *t, struct err *err)
{
    struct step_record r = { .lr = schedule_lr(&t->schedule, t->state.step) };
    double scale = 1 / (double)t->o->accumulate;
    int rc;

    t->skipped = 0;
    rc = run_batches(t, &r, err);
    if (rc <= 0)
        return rc;
    r.grad_norm = scale * grad_norm(t->sum, t->adamw.n, t->par);
    if (!isfinite(r.grad_norm))
        return not_finite(t, data_path(t->o), "the gradient's norm",
                          r.grad_norm, err);
    adamw_step(&t->adamw, t->sum, scale * clip_scale(r.grad_norm, t->o->clip),
               r.lr, t->state.step + 1, t->par);
    train_state_record(&t->state, &r);
    return update_adapter(t, err) < 0 ? -1 : 1;
}

/* ---- what it leaves ---- */

/*
 * The state is all on the disk before the adapter gets its name, and gets its
 * own last: a full disk leaves both as they were, and a run that is killed in
 * between does the same steps again.
 */
static int
save(struct train *t, struct err *err)
{
    struct stw *state = train_state_write(&t->state, t->state_path.s, err);
    int rc =
        state ? adapter_write(&t->adapter, t->lora_path.s, OUT_FORCE, err) : -1;

    if (rc == 0)
        rc = stw_commit(state, err);
    stw_free(state);
    if (rc < 0)
        return -1;
    t->saved = t->state.step;
    t->any_saved = true;
    return write_log(t, err);
}

/* On standard output, unless it is time to stop and nobody reads there. */
static void
print_log(const struct str *text, int *first_errno)
{
    if (out_stdout_ready() &&
        (fputs(text->s, stdout) == EOF || fflush(stdout) == EOF) &&
        !*first_errno)
        *first_errno = errno;
}

static void
say_step(struct train *t, double seconds)
{
    const struct step_record *r = &t->state.records[t->state.step - 1];
    struct str line = { 0 };

    if (!t->o->log) {
        train_log_line(&line, t->state.step, r);
        print_log(&line, &t->stdout_errno);
        str_free(&line);
    }
    if (t->o->verbose)
        tool_say("step %llu: loss %.4g, %.0f tokens/s, %zu slots skipped",
                 (unsigned long long)t->state.step, r->loss,
                 r->tokens / (seconds + 1e-9), t->skipped);
}

static int
stopped(const struct train *t, struct err *err)
{
    char how[256];

    snprintf(how, sizeof(how), "%.160s holds step %llu, --resume goes on",
             t->o->dir, (unsigned long long)t->saved);
    return sig_stopped(how, err);
}

/* The steps that are left; 0 when they are done, or the stream is. */
static int
run_steps(struct train *t, struct err *err)
{
    while (t->o->steps == 0 || t->state.step < t->o->steps) {
        double started = clock_s();
        int rc = run_step(t, err);

        if (rc < 0)
            return -1;
        if (rc == 0)
            return 0;
        say_step(t, clock_s() - started);
        if (t->o->save_every && t->state.step % t->o->save_every == 0 &&
            save(t, err) < 0)
            return -1;
    }
    return 0;
}

static int
train_steps(struct train *t, struct err *err)
{
    struct str head = { 0 };
    bool done;

    if (!t->o->log) {
        train_log_head(&head);
        print_log(&head, &t->stdout_errno);
        str_free(&head);
    }
    /* a wait for the stream that was stopped is no failure: save, too */
    if (run_steps(t, err) < 0 && err->status != EX_TEMPFAIL)
        return -1;
    if (!(t->any_saved && t->saved == t->state.step && there(t->lora_path.s)) ||
        t->o->resume)
        if (save(t, err) < 0)
            return -1;
    done = t->o->steps == 0 ? !sig_stop() : t->state.step >= t->o->steps;
    if (done)
        return 0;
    if (sig_stop())
        return stopped(t, err);
    return err_set(err, EX_DATAERR,
                   "standard input: ended after step %llu of %llu (%s holds "
                   "it)",
                   (unsigned long long)t->state.step,
                   (unsigned long long)t->o->steps, t->o->dir);
}

/* -v: "HOST, avx512bf16, 2 threads; ...". */
static void
say_setup(const struct train *t)
{
    tool_say("%s, %s, %d threads; %zu experts of %zu x %zu, rank %zu; from "
             "step %llu on",
             tool_host(), isa_name(cpu_isa()), par_threads(t->par),
             t->base.n_experts, t->base.hidden, t->base.intermediate,
             t->adapter.rank, (unsigned long long)t->state.step);
}

int
train_run(const struct train_options *o, struct err *err)
{
    struct train *t = xmalloc(sizeof(*t));
    int rc = train_open(t, o, err);

    if (rc == 0 && o->verbose)
        say_setup(t);
    if (rc == 0)
        rc = train_steps(t, err);
    if (rc == 0 && t->stdout_errno) {
        errno = t->stdout_errno;
        rc = err_sys(err, EX_IOERR, "standard output: cannot be written");
    }
    if (rc < 0 && t->log_is_new && !t->any_saved)
        train_log_remove(
            &t->log); /* the same again would find them in its way */
    train_close(t);
    free(t);
    return rc;
}
