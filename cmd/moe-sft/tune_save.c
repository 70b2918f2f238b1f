/* moe-sft tune: DIR, with the adapter, the state and the log. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/moe-sft/peft.h"
#include "cmd/moe-sft/tune.h"
#include "cmd/moe-sft/write.h"
#include "core/format/peft.h"
#include "core/inuse.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"

/* What DIR has: adapters' files first. */
static const char *const files[] = { PEFT_MODEL,          PEFT_CONFIG,
                                     "best/" PEFT_MODEL,  "best/" PEFT_CONFIG,
                                     "state.safetensors", "log.tsv" };
#define N_ADAPTER_FILES 4
#define N_FILES         6

void
tune_dir_paths(struct tune *t)
{
    const char *dir = t->o.output;

    str_addf(&t->state_path, "%s/state.safetensors", dir);
    str_addf(&t->log_path, "%s/log.tsv", dir);
    str_addf(&t->best_path, "%s/best", dir);
}

/* ---- files ---- */

/* A file of the adapter's tensors with these numbers, not committed; NULL with
 * 'err' set. */
static struct stw *
write_tensors_of(const struct tune *t, const float *values, const double *loss,
                 const char *path, int flags, struct err *err)
{
    const struct lm *lm = t->lm;
    struct stw *w = stw_new();
    float scalar = loss ? (float)*loss : 0;
    struct str text = { 0 };
    int rc = 0, scalar_at = 0;

    stw_meta(w, "format", "pt");
    str_addf(&text, "%.9g", (double)scalar);
    if (loss)
        stw_meta(w, "loss", text.s);
    for (size_t i = 0; rc >= 0 && i < lm->n_tensors; i++) {
        const uint64_t shape[] = { lm->tensors[i].rows, lm->tensors[i].cols };

        rc = stw_add(w, lm->tensors[i].name, DT_F32, 2, shape, err);
    }
    if (rc >= 0 && loss)
        rc = scalar_at = stw_add(w, "loss", DT_F32, 0, NULL, err);
    if (rc >= 0)
        rc = stw_open(w, path, flags, err);
    for (size_t i = 0; rc == 0 && i < lm->n_tensors; i++)
        rc = stw_write_numbers(w, (int)i, values + lm->tensors[i].first,
                               lm->tensors[i].rows * lm->tensors[i].cols, 4,
                               err);
    if (rc == 0 && loss)
        rc = stw_write_numbers(w, scalar_at, &scalar, 1, 4, err);
    str_free(&text);
    if (rc == 0)
        return w;
    stw_free(w);
    return NULL;
}

static int
commit(struct stw *w, struct err *err)
{
    int rc = w ? stw_commit(w, err) : -1;

    stw_free(w);
    return rc;
}

int
tune_write_grads(const struct tune *t, double loss, const char *path,
                 struct err *err)
{
    if (ranks_self(t->ranks) > 0)
        return 0;
    return commit(
        write_tensors_of(t, t->lm->grad, &loss, path, t->o.out_flags, err),
        err);
}

static int
write_adapter(const struct tune *t, const char *dir, int flags, struct err *err)
{
    const struct lm_lora *lora = &t->lm->lora;
    struct str names = { 0 }, path = { 0 };
    int rc;

    for (int i = 0; i < LM_N_TARGETS; i++)
        if (lora->targets & (1u << i))
            str_addf(&names, "%s\"%s\"", names.n ? ", " : "[",
                     lm_target_module((enum lm_target)i));
    str_adds(&names, "]");

    struct peft_written config = { .base_model = t->o.tune.model,
                                   .rank = lora->rank,
                                   .alpha = lora->alpha,
                                   .rslora = lora->rslora,
                                   .targets = names.s };

    str_addf(&path, "%s/" PEFT_MODEL, dir);
    rc = commit(write_tensors_of(t, t->adamw.master, NULL, path.s, flags, err),
                err);
    if (rc == 0)
        rc = peft_write_config(&config, dir, flags, err);
    str_free(&path);
    str_free(&names);
    return rc;
}

int
tune_dir_best(struct tune *t, struct err *err)
{
    const struct eval_list *e = &t->state.evals;
    double loss = e->list[e->n - 1].loss, lowest = INFINITY;
    struct str path = { 0 };

    if (ranks_self(t->ranks) > 0)
        return 0;
    str_addf(&path, "%s/" PEFT_MODEL, t->best_path.s);
    if (file_missing(path.s)) /* not written yet, or deleted */
        t->best_from = e->n - 1;
    str_free(&path);
    for (size_t i = t->best_from; i + 1 < e->n; i++)
        lowest = fmin(lowest, e->list[i].loss);
    if (loss >= lowest)
        return 0;
    if (outdir_make(t->best_path.s, NULL, err) < 0)
        return -1;
    return write_adapter(t, t->best_path.s, OUT_RUN, err);
}

/* ---- the run ---- */

/* Is DIR one that this run may use? */
int
tune_dir_check(const struct tune *t, struct err *err)
{
    const char *dir = t->o.output;
    struct str adapter = { 0 };
    struct stat st;
    int rc = 0;

    if (outdir_check_name(dir, err) < 0)
        return -1;
    if (lstat(dir, &st) < 0)
        return 0;
    if (file_same(dir, t->o.tune.model))
        return err_set(err, TU_USAGE, "-o %s is the model's own directory",
                       dir);
    if (!t->o.train.resume && !(t->o.out_flags & OUT_FORCE))
        return err_set(err, EX_CANTCREAT,
                       "%s: exists already (--resume continues its run, "
                       "--force starts a new one)",
                       dir);
    /* an adapter that no run of ours has left is not for us to replace */
    str_addf(&adapter, "%s/" PEFT_MODEL, dir);
    if (t->o.train.resume && !(t->o.out_flags & OUT_FORCE) &&
        file_missing(t->state_path.s) && file_missing(t->log_path.s) &&
        !file_missing(adapter.s))
        rc = err_set(err, EX_NOINPUT,
                     "%s: has no state.safetensors, from which --resume "
                     "continues (--init begins with an adapter)",
                     dir);
    str_free(&adapter);
    return rc;
}

/* A pipe or directory in the place of a file: a run would wait on the one, and
 * could not replace the other. */
static int
check_is_file(const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st) < 0 || S_ISREG(st.st_mode) || S_ISCHR(st.st_mode))
        return 0;
    return err_set(err, EX_CANTCREAT, "%s: is not a file", path);
}

/* All that a run writes in DIR, which must exist, are files or nothing yet. */
static int
check_files(const struct tune *t, struct err *err)
{
    int rc = t->o.train.svg ? check_is_file(t->o.train.svg, err) : 0;

    for (int i = 0; rc == 0 && i < N_FILES; i++) {
        struct str path = { 0 };

        str_addf(&path, "%s/%s", t->o.output, files[i]);
        rc = check_is_file(path.s, err);
        str_free(&path);
    }
    return rc;
}

/* No file that is read is replaced, and the picture is none of the others, nor
 * in DIR/best, which a run without --keep-best removes. */
static int
claim_files(const struct tune *t, struct err *err)
{
    const char *svg = t->o.train.svg;

    if (outdir_claim(t->o.output, files, N_FILES, t->o.train.resume, err) < 0 ||
        (svg && (inuse_check(svg, err) < 0 ||
                 inuse_claim(svg, t->o.train.resume, err) < 0)))
        return -1;
    if (svg && (file_same(svg, t->best_path.s) ||
                (!t->o.tune.keep_best && file_is_in(svg, t->best_path.s))))
        return err_set(err, TU_USAGE, "--svg %s: is in a directory of the run",
                       svg);
    return 0;
}

/* The state of the run that is resumed, if there is one. */
static int
read_state(struct tune *t, struct err *err)
{
    if (!t->o.train.resume || file_missing(t->state_path.s))
        return 0;
    if (train_state_read(&t->state, t->state_path.s, err) < 0)
        return -1;
    t->saved = t->state.step;
    t->any_saved = true;
    return 0;
}

int
tune_dir_open(struct tune *t, struct err *err)
{
    const char *dir = t->o.output;
    bool force = t->o.out_flags & OUT_FORCE;
    bool is_new = file_missing(dir);
    struct train_log log = { .path = t->log_path.s,
                             .svg = t->o.train.svg,
                             .title = dir,
                             .unit = "nats per target token",
                             .table = &train_step_table,
                             .fd = -1 };

    if (ranks_self(t->ranks) > 0) {
        int rc = read_state(t, err);

        tune_drop_extra(t);
        return rc;
    }
    if (tune_dir_check(t, err) < 0 || claim_files(t, err) < 0 ||
        outdir_lock(dir, "tune", &t->lock, &t->n_old, err) < 0)
        return -1;
    t->made_dir = is_new;
    if (check_files(t, err) < 0 || read_state(t, err) < 0)
        return -1;
    log.evals = t->o.tune.eval ? &t->state.evals : NULL;
    if (!force && train_log_check(&log, t->o.train.resume, t->state.records,
                                  (size_t)t->state.step, err) < 0)
        return -1;
    tune_drop_extra(t);
    log.replaces = force && train_log_exists(&log);
    t->log = log; /* not before: tune_dir_undo() removes its files */
    return train_log_begin(&t->log, t->state.records, (size_t)t->state.step,
                           err);
}

/*
 * The state is complete on the disk before the adapter gets its name, and gets
 * its own name last: a full disk leaves both as they were, and a run that is
 * killed between the two does the same steps again.
 */
int
tune_dir_save(struct tune *t, struct err *err)
{
    struct stw *state;
    int rc;

    if (ranks_self(t->ranks) > 0)
        return 0;
    /* what an earlier run left there is not this one's best */
    if (!t->any_saved && !t->o.tune.keep_best &&
        !file_missing(t->best_path.s) &&
        out_remove_dir(AT_FDCWD, t->best_path.s) < 0)
        return err_sys(err, EX_CANTCREAT, "%s: cannot be removed",
                       t->best_path.s);
    state = train_state_write(&t->state, t->state_path.s, err);
    rc = state ? write_adapter(t, t->o.output, OUT_RUN, err) : -1;
    /* a state that is done is not resumed: nothing would write lost lines */
    if (rc == 0)
        train_log_sync(&t->log);
    if (rc == 0)
        rc = stw_commit(state, err);
    stw_free(state);
    if (rc < 0)
        return -1;
    t->saved = t->state.step;
    t->any_saved = true;
    return train_log_draw(&t->log, t->state.records, (size_t)t->state.step,
                          err);
}

/* The same command again would find them in its way. */
void
tune_dir_undo(const struct tune *t)
{
    static const char *const names[] = { PEFT_MODEL, PEFT_CONFIG,
                                         "state.safetensors" };

    if (t->any_saved || !t->made_dir)
        return;
    train_log_remove(&t->log);
    out_remove_dir(AT_FDCWD, t->best_path.s);
    for (int i = 0; i < 3; i++) {
        struct str path = { 0 };

        str_addf(&path, "%s/%s", t->o.output, names[i]);
        unlink(path.s);
        str_free(&path);
    }
    outdir_unmake(t->o.output, t->n_old);
}
