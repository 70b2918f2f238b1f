/* SPDX-License-Identifier: ISC */
/*
 * moe-sft tune: AdamW fits a low-rank adapter of a whole model to text.
 *
 * Lines of JSON become tokens and labels (tune_data.c), these the sequences of
 * steps (tune_pack.c, tune_run.c).  A step is the gradient of the mean loss of
 * its targets (core/model/train/lm.h) and a move of the f32 adapter.  DIR is a
 * PEFT directory with the state next to it, from which --resume continues to
 * the same bits (tune_save.c, tune_settings.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/moe-sft/tune.h"
#include "cmd/moe-sft/write.h"
#include "core/hash.h"
#include "core/kernel/cpu.h"
#include "core/kernel/gemm.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/attention.h"
#include "core/model/config_file.h"
#include "core/opt.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

/* of a run by default: test/bench/RESULTS */
#define ENOUGH_STEPS ((uint64_t)200)

/* What the model is: its configuration, and its tensors with their weights. */
static int
digest_base(struct tune *t, struct err *err)
{
    const struct stdir *dir = &t->lm->model->dir;
    struct hash *hash = hash_new(HASH_XXH3);
    struct str config = { 0 };
    int rc = config_file_text(&config, t->o.tune.model, err);

    if (rc == 0)
        hash_add(hash, config.s, config.n);
    for (size_t i = 0; rc == 0 && i < dir->n_tensors; i++) {
        const struct st_tensor *tensor = dir->tensors[i].t;

        st_hash(hash, tensor);
        hash_add(hash, st_data(dir->tensors[i].st, tensor), tensor->nbytes);
        if (sig_stop())
            rc = sig_stopped("no step was begun", err);
    }
    hash_end(hash, t->base_digest);
    str_free(&config);
    return rc;
}

static void
digest_init(struct tune *t)
{
    struct hash *hash = hash_new(HASH_XXH3);

    hash_add_numbers(hash, t->adamw.master, t->adamw.n, sizeof(float));
    hash_end(hash, t->init_digest);
}

/* ---- opening ---- */

/* Examples that each of several processes can read. */
static int
check_shared(const char *path, int n_ranks, struct err *err)
{
    bool is_stdin = !strcmp(path, "-");
    struct stat st;

    if (!is_stdin && (stat(path, &st) < 0 || S_ISREG(st.st_mode) ||
                      S_ISDIR(st.st_mode))) /* or it is found out later */
        return 0;
    return err_set(err, TU_USAGE,
                   "%s is that of one process, and not of %d: name a file",
                   is_stdin ? "standard input" : path, n_ranks);
}

static int
check_command(const struct cmd *cmd, int n_ranks, struct err *err)
{
    if (!cmd->output && !cmd->grads && !cmd->tune.dry_run)
        return err_set(err, TU_USAGE, "tune: -o is missing");
    if (cmd->grads && !strcmp(cmd->grads, "-"))
        return err_set(err, TU_USAGE, "--grads needs a file name, not -");
    if (cmd->tune.eval && !strcmp(cmd->tune.data, "-") &&
        !strcmp(cmd->tune.eval, "-"))
        return err_set(err, TU_USAGE, "--data and --eval are both -");
    if (n_ranks > 1 &&
        (check_shared(cmd->tune.data, n_ranks, err) < 0 ||
         (cmd->tune.eval && check_shared(cmd->tune.eval, n_ranks, err) < 0)))
        return -1;
    return can_write(cmd, cmd->grads, err);
}

/* The state keeps these names, and is UTF-8. */
static int
check_name(const char *option, const char *name, struct err *err)
{
    if (!name || utf8_valid(name, strlen(name)) == strlen(name))
        return 0;
    return err_set(err, TU_USAGE, "%s %s: a name that is not UTF-8", option,
                   name);
}

/* Options, those of the run that is resumed among them. */
static int
open_options(struct tune *t, const struct cmd *cmd, struct err *err)
{
    bool resumed;

    t->o = *cmd;
    if (ranks_self(t->ranks) > 0) {
        t->o.verbose = false;
        t->o.tune.log_every = 0;
    }
    if (cmd->output) {
        tune_dir_init(t);
        if (check_name("--eval", t->o.tune.eval, err) < 0 ||
            check_name("--svg", t->o.train.svg, err) < 0 ||
            tune_dir_check(t, err) < 0)
            return -1;
    }
    if (config_load(&t->config, t->o.tune.model, err) < 0 ||
        config_refuse_vision(t->config.family, t->o.tune.model, err) < 0)
        return -1;
    resumed = t->o.train.resume && !file_missing(t->run.state_path.s);
    return tune_settle(t, resumed ? t->run.state_path.s : NULL, err);
}

static const char *
data_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

static int
open_data(struct tune *t, struct err *err)
{
    t->text = (struct tune_text){ .dir = t->o.tune.model,
                                  .config = &t->config,
                                  .template = t->o.tune.template,
                                  .vars = t->vars };
    if (tune_data_open(&t->data, t->o.tune.data, &t->text,
                       (size_t)t->o.tune.ctx, err) < 0)
        return -1;
    tune_windows_open(&t->windows, &t->data, (size_t)t->o.tune.ctx,
                      t->o.tune.pack);
    if (!t->o.tune.eval)
        return 0;
    if (tune_data_open(&t->eval_data, t->o.tune.eval, &t->text,
                       (size_t)t->o.tune.ctx, err) < 0) {
        struct err cause = *err;

        if (cause.status == EX_NOINPUT && !opt_given(t->o.line, "eval"))
            err_set(err, cause.status,
                    "%s: its --eval: %s (--eval says where it is now)",
                    t->run.state_path.s, cause.what);
        return -1;
    }
    if (t->eval_data.n_targets == 0)
        return err_set(err, EX_DATAERR,
                       "%s: no example has a target, so there is no loss on it",
                       data_name(t->o.tune.eval));
    tune_windows_open(&t->eval_windows, &t->eval_data, (size_t)t->o.tune.ctx,
                      t->o.tune.pack);
    return 0;
}

static int
open_steps(struct tune *t, struct err *err)
{
    uint64_t n = t->windows.n, each, epochs = t->o.tune.epochs;

    if (__builtin_mul_overflow(t->o.tune.batch, t->o.train.accumulate, &each))
        return err_set(err, TU_USAGE, "--batch times --accumulate is too much");
    t->per_epoch = (n - 1) / each + 1;
    if (!epochs) /* a dozen examples, too, are learnt */
        epochs = (ENOUGH_STEPS - 1) / t->per_epoch + 1;
    if (t->o.train.steps)
        t->total = t->o.train.steps;
    else if (__builtin_mul_overflow(epochs, t->per_epoch, &t->total) ||
             t->total > SFT_MAX_STEPS)
        return err_set(err, TU_USAGE, "--epochs is too much");
    t->schedule = train_schedule(&t->o.train, t->total);
    t->order = (struct train_order){ .seed = t->o.seed,
                                     .shuffle = t->o.train.shuffle };
    t->step = xcalloc((size_t)(each < n ? each : n), sizeof(*t->step));
    return 0;
}

/* B A of more than min(in, out) ranks is no more than of so many. */
static int
check_rank(const struct tune *t, struct err *err)
{
    const struct lm *lm = t->lm;
    size_t most = 0;

    for (size_t i = 0; i + 1 < lm->n_tensors; i += 2)
        most =
            larger(most, smaller(lm->tensors[i].cols, lm->tensors[i + 1].rows));
    if (!opt_given(t->o.line, "rank") || lm->lora.rank <= most)
        return 0;
    return err_set(err, TU_USAGE,
                   "--rank %zu: the largest matrix that gets an adapter has "
                   "rank %zu, at most",
                   lm->lora.rank, most);
}

static int
open_lm(struct tune *t, struct err *err)
{
    uint64_t each =
        t->o.tune.batch * t->o.train.accumulate; /* sequences of a step */
    struct lm_options options = {
        .lora = t->lora,
        .seed = t->o.seed,
        .init = t->o.tune.init,
        .compute = t->o.tune.compute,
        .int8 = t->o.tune.int8,
        .max_tokens = larger(t->data.longest, t->eval_data.longest),
        .n_slices = (size_t)(t->o.tune.slices < each ? t->o.tune.slices : each),
        .ranks = t->ranks,
    };

    if (ranks_self(t->ranks) == 0 &&
        options.n_slices < (size_t)ranks_count(t->ranks))
        err_warn("%d ranks share %zu slice%s of a step: some have nothing to "
                 "do (see --slices, --batch)",
                 ranks_count(t->ranks), options.n_slices,
                 plural(options.n_slices));
    if (lm_open(&t->lm, t->o.tune.model, &options, t->par, err) < 0)
        return -1;
    return check_rank(t, err);
}

/* Memory for the adapter, its gradients and its moments. */
static int
open_adapter(struct tune *t, struct err *err)
{
    struct lm *lm = t->lm;

    t->adamw = (struct adamw){ .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = t->o.train.weight_decay };
    if (adamw_open(&t->adamw, lm->n_params, err) < 0)
        return -1;
    lm_start(lm, t->adamw.master);
    if (sig_stop())
        return sig_stopped("no step was begun", err);
    return lm_prepare(lm, t->adamw.master, err);
}

/* What a state says of this run. */
static int
open_state(struct tune *t, struct err *err)
{
    struct lm *lm = t->lm;

    t->tensors = xcalloc(lm->n_tensors, sizeof(*t->tensors));
    for (size_t i = 0; i < lm->n_tensors; i++)
        t->tensors[i] = (struct train_tensor){ .name = lm->tensors[i].name,
                                               .shape = { lm->tensors[i].rows,
                                                          lm->tensors[i].cols },
                                               .n_dims = 2 };
    if (t->o.tune.compute == COMPUTE_BF16)
        str_addf(
            &t->arithmetic, "%s, %s%s", isa_name(cpu_isa()),
            attention_takes_bf16(&lm->model->config) ? "bf16 attention, " : "",
            lm->model->config.n_experts && !t->o.tune.int8 ? "bf16 experts, "
                                                           : "");
    str_adds(&t->arithmetic, GEMM_EXACT_ORDER);
    t->run.state = (struct train_state){ .program = "moe-sft tune",
                                         .table = &train_step_table,
                                         .format = "moe-sft tune state 3",
                                         .arithmetic = t->arithmetic.s,
                                         .any_isa = t->o.train.any_isa,
                                         .tensors = t->tensors,
                                         .n_tensors = lm->n_tensors,
                                         .adamw = &t->adamw };
    if (digest_base(t, err) < 0)
        return -1;
    if (t->o.tune.init)
        digest_init(t);
    tune_set_settings(t);
    return 0;
}

static int
open_run(struct tune *t, struct err *err)
{
    const struct lm *lm = t->lm;

    if (ranks_agree(t->ranks, tune_dir_open(t, err), err) < 0 ||
        tune_same(t, err) < 0)
        return -1;
    if (t->o.verbose)
        tool_say("%s, %s, %d process%s, %d thread%s; %zu parameter%s; from "
                 "step %llu on",
                 tool_host(), isa_name(cpu_isa()), ranks_count(t->ranks),
                 ranks_count(t->ranks) == 1 ? "" : "es", t->o.n_threads,
                 plural(t->o.n_threads), lm->n_params, plural(lm->n_params),
                 (unsigned long long)t->run.state.step);
    return 0;
}

int
tune_open(struct tune *t, const struct cmd *cmd, struct ranks *ranks,
          struct err *err)
{
    *t = (struct tune){ .ranks = ranks };
    if (open_options(t, cmd, err) < 0 ||
        par_open(&t->par, cmd->n_threads, err) < 0 || open_data(t, err) < 0 ||
        open_steps(t, err) < 0)
        return -1;
    return open_lm(t, err);
}

static int
tune(struct tune *t, const struct cmd *cmd, struct ranks *ranks,
     struct err *err)
{
    const char *what = cmd->tune.dry_run ? "run\t--dry-run\n"
                       : cmd->grads      ? "run\t--grads\n"
                                         : "run\tsteps\n";
    int rc;

    if (ranks_agree(ranks, tune_open(t, cmd, ranks, err), err) < 0 ||
        ranks_same(ranks, what, err) < 0)
        return -1;
    if (t->data.n_targets == 0)
        err_warn("%s: no example has a target: nothing is learned from it",
                 data_name(t->o.tune.data));
    if (t->o.tune.dry_run)
        return tune_print(t, err);
    rc = open_adapter(t, err);
    if (rc == 0)
        rc = open_state(t, err);
    if (ranks_agree(t->ranks, rc, err) < 0 || tune_same(t, err) < 0)
        return -1;
    if (cmd->grads)
        return tune_grads(t, cmd->grads, err);
    rc = open_run(t, err);
    if (rc == 0)
        rc = tune_run(t, err);
    if (rc < 0)
        tune_dir_undo(t);
    return rc;
}

void
tune_close(struct tune *t)
{
    lm_close(t->lm);
    adamw_close(&t->adamw);
    train_run_close(&t->run);
    train_order_close(&t->order);
    tune_windows_close(&t->windows);
    tune_windows_close(&t->eval_windows);
    tune_data_close(&t->data);
    tune_data_close(&t->eval_data);
    tune_text_close(&t->text);
    json_decref(t->vars);
    config_free(&t->config);
    par_close(t->par);
    free(t->step);
    free(t->tensors);
    str_free(&t->arithmetic);
    opt_drop(&t->kept);
    str_free(&t->best_path);
}

int
tune_main(const struct cmd *cmd, struct err *err)
{
    struct tune *t = xcalloc(1, sizeof(*t));
    struct ranks *ranks;
    int rc = ranks_open(&ranks, err);

    sig_install(false);
    if (ranks_self(ranks) > 0)
        err_warn_hook(NULL);
    if (rc == 0)
        rc = ranks_agree(ranks, check_command(cmd, ranks_count(ranks), err),
                         err);
    if (rc == 0) {
        rc = tune(t, cmd, ranks, err);
        tune_close(t);
    }
    if (rc < 0 && ranks_self(ranks) > 0)
        rc = err->status; /* rank 0 prints why */
    ranks_close(ranks);
    free(t);
    return rc;
}
