/* SPDX-License-Identifier: ISC */
/*
 * A training run: the directory that it fills step by step, and how it begins,
 * goes on and ends.  DIR has state.safetensors, from which --resume continues
 * to the same bits, a log, and what is trained.
 *
 * What is trained is written when the state is complete on the disk but has no
 * name yet, and the state gets its name last: a full disk leaves both as they
 * were, and a run that is killed between the two does the same steps again.
 */
#ifndef CORE_MODEL_TRAIN_RUN_H
#define CORE_MODEL_TRAIN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/train/log.h"
#include "core/model/train/ranks.h"
#include "core/model/train/state.h"
#include "core/str.h"

/* Exit status of a run whose loss or gradient is NaN or infinite. */
#define TRAIN_NOT_FINITE 76

struct train_run {
    const char *dir;
    const char *what;         /* "train", as another run there is called */
    const char *const *files; /* [n_files] that it may leave in DIR, but for
                               * its log and picture */
    size_t n_files;
    bool resume, force;
    uint64_t save_every, print_every; /* steps, or 0: never */
    struct ranks *ranks;              /* of which 0 alone writes and prints */
    struct train_state state;
    struct train_log log;
    int (*print)(const struct str *text); /* to stdout: 0, or errno */
    /* writes what is trained: 0, or -1 with 'err' set; NULL: nothing yet */
    int (*write)(void *of, struct err *err);
    void *of;

    struct str state_path, log_path; /* in DIR */
    bool is_new;                     /* nothing of a run was there */
    bool any_saved;                  /* DIR has the state of step 'saved' */
    uint64_t saved;

    /* private */
    int lock;         /* DIR, where its file system has locks; or -1 */
    uint32_t found;   /* a bit for each of 'files' that was there, */
    bool had_log;     /* and for the log */
    bool is_made;     /* what was not there is this run's to remove */
    size_t n_old;     /* bytes of DIR's path that were there before */
    int stdout_errno; /* of the first line that was lost, or 0 */
};

/* train_run_init() makes an empty run of 'dir', which must outlive it, whose
 * log is DIR/log.tsv.  Owner: the caller, until train_run_close(); a zeroed
 * struct whose dir is NULL is fine. */
void train_run_init(struct train_run *run, const char *dir);
void train_run_close(struct train_run *run);

/*
 * train_run_claim() reports the files that the run will write (core/inuse.h).
 * train_run_open() makes DIR, locks it, reads the state that is resumed, and
 * refuses files that are not this run's; a rank other than 0 reads the state
 * alone.  train_run_begin() begins the log.  0, or -1 with 'err' set: TU_USAGE,
 * EX_CANTCREAT, or train_state_read()'s.
 */
int train_run_claim(struct train_run *run, struct err *err);
int train_run_open(struct train_run *run, struct err *err);
int train_run_begin(struct train_run *run, struct err *err);

/* train_run_taken() fills 'err' (EX_CANTCREAT): a run is there, and is neither
 * resumed nor replaced; -1. */
int train_run_taken(const char *path, struct err *err);

/* train_run_head() prints the log's head, if lines of it are printed.
 * train_run_stepped() is called when the state has another record: it writes
 * and prints the line and, if the run is 'going' on, saves when it is time to.
 * train_run_save() saves.  0, or -1 with 'err' set. */
void train_run_head(struct train_run *run);
int train_run_stepped(struct train_run *run, bool going, struct err *err);
int train_run_save(struct train_run *run, struct err *err);

/*
 * The ends of a run fill 'err' and return -1: train_run_stopped(), by a signal
 * or a deadline (EX_TEMPFAIL), 'dir' is what to resume; train_run_not_finite()
 * by a number 'v' of 'step' that is not (TRAIN_NOT_FINITE); 'hint': another
 * learning rate may help. train_run_end() says whether lines were lost: 0, or
 * -1 (EX_IOERR). train_run_plot() appends the loss as a picture in characters.
 */
int train_run_stopped(const struct train_run *run, const char *dir,
                      struct err *err);
int train_run_not_finite(const struct train_run *run, const char *where,
                         const char *what, double v, uint64_t step, bool hint,
                         struct err *err);
int train_run_end(const struct train_run *run, struct err *err);
void train_run_plot(const struct train_run *run, struct str *to);

/* train_run_summary() appends a line's text: DIR, the steps, and a column of
 * the log from the first to the last.  The run has at least one step. */
void train_run_summary(const struct train_run *run, size_t column,
                       struct str *to);

/* train_run_undo() removes what a run has made that failed before anything was
 * saved: the same command again would find it in its way. */
void train_run_undo(const struct train_run *run);

#endif
