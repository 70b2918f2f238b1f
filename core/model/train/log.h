/* SPDX-License-Identifier: ISC */
/* The log of a training run: a line of TSV for each step, and a picture. */
#ifndef CORE_MODEL_TRAIN_LOG_H
#define CORE_MODEL_TRAIN_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/chart.h"
#include "core/err.h"
#include "core/str.h"

/* What a log has of each step: columns of doubles, one of which is the loss. */
struct train_column {
    const char *name;
    bool is_whole; /* a count */
};
struct train_table {
    const struct train_column *columns; /* [n] */
    size_t n, loss;
};

/* That of a model's training. */
struct step_record {
    double loss, lr, grad_norm, tokens;
};
extern const struct train_table train_step_table;

/* A loss on other text, after 'step' steps; both are F64 in files. */
struct eval_record {
    double step, loss;
};
struct eval_list {
    struct eval_record *list; /* [n], by step */
    size_t n, cap;
};

/* Its files, or NULL, and the heading of the picture; the rest is private. */
struct train_log {
    const char *path, *svg, *title;
    const char *unit; /* what the loss is: "nats per token" */
    const struct train_table *table;
    uint64_t each; /* lines of the steps that it divides; 0: of all */
    const struct eval_list *evals; /* NULL: the log has no column for them */
    int fd;                        /* 'path', for the next line; -1: not open */
    int error;        /* errno of the first line that was lost; 0 */
    bool replaces;    /* the files are an earlier run's: they stay until
                       * train_log_draw() */
    struct str first; /* step 1 of a log that no checkpoint has */
    struct str lines; /* those of a log that replaces one */
};

/*
 * Records are [n][table->n].
 * train_log_head(), train_log_line(): TSV.  The head ends with a line of step 0
 * where something was evaluated before the first step.
 * train_log_chart(): the curve of the loss of n steps, and of what was
 * evaluated up to the last of them, by chart_svg() or chart_text().
 */
void train_log_head(struct str *to, const struct train_table *table,
                    const struct eval_list *evals);
void train_log_line(struct str *to, const struct train_table *table,
                    uint64_t step, const double *record,
                    const struct eval_list *evals);
void train_log_chart(struct str *to, const struct train_log *log,
                     const double *records, size_t n,
                     void (*draw)(struct str *to, const struct chart *chart));

/*
 * train_log_check(): may it write?  Only what is free or, to 'resume', was
 * written by the run of these steps.  Where there are none, as of a run that
 * was killed before its first checkpoint, a log is kept until its step 1 turns
 * out to be that of this run.
 * train_log_exists(): is there an earlier run's log or picture to replace?
 * train_log_begin() writes both files for n steps, and so cuts off the lines of
 * later ones; train_log_step() appends a line at once, and keeps in 'error'
 * that it could not, as train_log_sync() does, which waits until the lines are
 * on the disk; train_log_draw() replaces the picture.  Where the log replaces
 * an earlier run's, the lines wait in memory: train_log_sync(), to be called
 * when the state is written but has no name yet, removes the old log, which the
 * old state can give again, and train_log_draw(), called next, writes the new
 * one.  0, or -1 with 'err' set (EX_CANTCREAT, EX_IOERR). train_log_remove()
 * removes the files, but no devices.
 */
int train_log_check(struct train_log *log, bool resume, const double *records,
                    size_t n, struct err *err);
bool train_log_exists(const struct train_log *log);
int train_log_begin(struct train_log *log, const double *records, size_t n,
                    struct err *err);
int train_log_step(struct train_log *log, uint64_t step, const double *record,
                   struct err *err);
void train_log_sync(struct train_log *log);
int train_log_draw(struct train_log *log, const double *records, size_t n,
                   struct err *err);
void train_log_close(struct train_log *log);
void train_log_remove(const struct train_log *log);

#endif
