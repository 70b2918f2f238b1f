/* SPDX-License-Identifier: ISC */
#include "core/model/train/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/inuse.h"
#include "core/map.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/sig.h"
#include "core/tty.h"

void
train_run_init(struct train_run *r, const char *dir)
{
    *r = (struct train_run){
        .dir = dir, .lock = -1, .log.fd = -1, .n_old = SIZE_MAX
    };
    str_addf(&r->state_path, "%s/" OUTDIR_STATE, dir);
    str_addf(&r->log_path, "%s/log.tsv", dir);
    r->log.path = r->log_path.s;
    r->log.title = dir;
}

void
train_run_close(struct train_run *r)
{
    train_state_close(&r->state);
    if (!r->dir)
        return;
    train_log_close(&r->log);
    if (r->lock >= 0)
        close(r->lock);
    str_free(&r->state_path);
    str_free(&r->log_path);
}

/* ---- opening ---- */

int
train_run_claim(struct train_run *r, struct err *err)
{
    const char *const named[] = { r->log.path, r->log.svg };

    if (outdir_claim(r->dir, r->files, r->n_files, r->resume, err) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        if (named[i] && (inuse_check(named[i], err) < 0 ||
                         inuse_claim(named[i], r->resume, err) < 0))
            return -1;
    return 0;
}

int
train_run_taken(const char *path, struct err *err)
{
    return err_set(err, EX_CANTCREAT,
                   "%s: exists already (--resume continues its run, --force "
                   "starts a new one)",
                   path);
}

/* A pipe or directory in the place of a file: a run would wait on the one, and
 * could not replace the other. */
static int
check_is_file(const char *path, struct err *err)
{
    struct stat st;

    if (!path || stat(path, &st) < 0 || S_ISREG(st.st_mode) ||
        S_ISCHR(st.st_mode))
        return 0;
    return err_set(err, EX_CANTCREAT, "%s: is not a file", path);
}

static int
find_files(struct train_run *r, struct err *err)
{
    struct str path = { 0 };
    int rc = check_is_file(r->log.path, err);

    if (rc == 0)
        rc = check_is_file(r->log.svg, err);
    for (size_t i = 0; rc == 0 && i < r->n_files; i++) {
        str_clear(&path);
        str_addf(&path, "%s/%s", r->dir, r->files[i]);
        rc = check_is_file(path.s, err);
        if (rc < 0 || file_missing(path.s))
            continue;
        r->found |= UINT32_C(1) << i;
        if (!r->resume && !r->force)
            rc = strcmp(r->files[i], OUTDIR_STATE) == 0
                     ? train_run_taken(path.s, err)
                     : out_exists(path.s, err);
    }
    str_free(&path);
    return rc;
}

/* The state of the run that is resumed, if there is one. */
static int
read_state(struct train_run *r, struct err *err)
{
    if (!r->resume || file_missing(r->state_path.s))
        return 0;
    if (train_state_read(&r->state, r->state_path.s, err) < 0)
        return -1;
    r->saved = r->state.step;
    r->any_saved = true;
    return 0;
}

int
train_run_open(struct train_run *r, struct err *err)
{
    if (ranks_self(r->ranks) > 0)
        return read_state(r, err);
    if (outdir_lock(r->dir, r->what, &r->lock, &r->n_old, err) < 0 ||
        find_files(r, err) < 0 || read_state(r, err) < 0)
        return -1;
    if (!r->force && train_log_check(&r->log, r->resume, r->state.records,
                                     (size_t)r->state.step, err) < 0)
        return -1;
    r->had_log = train_log_exists(&r->log);
    r->is_new = !r->found && !r->had_log;
    /* else a kill would leave the old state with a log that is not its own */
    r->log.replaces = r->force && !r->is_new;
    r->is_made = !r->log.replaces;
    return 0;
}

int
train_run_begin(struct train_run *r, struct err *err)
{
    if (ranks_self(r->ranks) > 0)
        return 0;
    return train_log_begin(&r->log, r->state.records, (size_t)r->state.step,
                           err); /* a log that cannot be written ends it now */
}

/* ---- steps ---- */

static void
print(struct train_run *r, struct str *text)
{
    int lost = r->print(text);

    if (lost && !r->stdout_errno)
        r->stdout_errno = lost;
    str_free(text);
}

void
train_run_head(struct train_run *r)
{
    struct str head = { 0 };

    if (!r->print_every)
        return;
    train_log_head(&head, r->state.table, r->log.evals);
    print(r, &head);
}

int
train_run_save(struct train_run *r, struct err *err)
{
    struct stw *state;
    int rc;

    if (ranks_self(r->ranks) > 0)
        return 0;
    state = train_state_write(&r->state, r->state_path.s, err);
    rc = !state ? -1 : r->write ? r->write(r->of, err) : 0;
    /* a state that is done is not resumed: nothing would write lost lines */
    if (rc == 0)
        train_log_sync(&r->log);
    if (rc == 0)
        rc = stw_commit(state, err);
    stw_free(state);
    if (rc < 0)
        return -1;
    r->saved = r->state.step;
    r->any_saved = true;
    return train_log_draw(&r->log, r->state.records, (size_t)r->state.step,
                          err);
}

int
train_run_stepped(struct train_run *r, bool going, struct err *err)
{
    uint64_t step = r->state.step;
    const double *record = train_state_at(&r->state, step - 1);
    struct str line = { 0 };

    if (ranks_self(r->ranks) > 0)
        return 0;
    if (train_log_step(&r->log, step, record, err) < 0)
        return -1;
    if (r->print_every && step % r->print_every == 0) {
        train_log_line(&line, r->state.table, step, record, r->log.evals);
        print(r, &line);
    }
    if (going && r->save_every && step % r->save_every == 0)
        return train_run_save(r, err);
    return 0;
}

/* ---- ends ---- */

int
train_run_stopped(const struct train_run *r, const char *dir, struct err *err)
{
    char how[256];

    if (r->log.replaces)
        snprintf(how, sizeof(how), "%.160s is as it was, run it again", dir);
    else
        snprintf(how, sizeof(how), "%.160s holds step %llu, --resume continues",
                 dir, (unsigned long long)r->state.step);
    return sig_stopped(how, err);
}

int
train_run_not_finite(const struct train_run *r, const char *where,
                     const char *what, double v, uint64_t step, bool hint,
                     struct err *err)
{
    char holds[80] = "nothing is saved yet";

    if (r->any_saved)
        snprintf(holds, sizeof(holds), "step %llu is saved",
                 (unsigned long long)r->saved);
    return err_set(err, TRAIN_NOT_FINITE, "%s: %s is %s in step %llu (%s%s)",
                   where, what, isnan(v) ? "NaN" : "infinite",
                   (unsigned long long)step, holds,
                   hint ? "; a lower --lr or more --warmup may help" : "");
}

int
train_run_end(const struct train_run *r, struct err *err)
{
    errno = r->log.error ? r->log.error : r->stdout_errno;
    return errno ? err_sys(err, EX_IOERR, "%s: cannot be written",
                           r->log.error ? r->log.path : "standard output")
                 : 0;
}

void
train_run_plot(const struct train_run *r, struct str *to)
{
    train_log_chart(to, &r->log, r->state.records, (size_t)r->state.step,
                    chart_text);
}

void
train_run_summary(const struct train_run *r, size_t column, struct str *to)
{
    uint64_t n = r->state.step;

    str_addf(to, "%s: %llu step%s, %s %.4g to %.4g", r->dir,
             (unsigned long long)n, plural(n),
             r->log.table->columns[column].name,
             train_state_at(&r->state, 0)[column],
             train_state_at(&r->state, n - 1)[column]);
}

void
train_run_undo(const struct train_run *r)
{
    struct str path = { 0 };

    if (r->any_saved)
        return;
    if (r->is_made && !r->had_log)
        train_log_remove(&r->log);
    for (size_t i = 0; r->is_made && i < r->n_files; i++) {
        if (r->found & UINT32_C(1) << i)
            continue;
        str_clear(&path);
        str_addf(&path, "%s/%s", r->dir, r->files[i]);
        unlink(path.s);
    }
    str_free(&path);
    outdir_unmake(r->dir, r->n_old);
}
