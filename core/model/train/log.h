/* The log of a training run: a line of TSV for each step, and a picture. */
#ifndef CORE_MODEL_TRAIN_LOG_H
#define CORE_MODEL_TRAIN_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/str.h"

/* What each step was like. */
struct step_record {
    double loss, lr, grad_norm, tokens;
};

/* Its files, or NULL, and what stands over the picture. */
struct train_log {
    const char *path, *svg, *title;
};

/* train_log_head(), train_log_line(): TSV.  train_log_svg(): the curve of the
 * loss of n steps. */
void train_log_head(struct str *to);
void train_log_line(struct str *to, uint64_t step,
                    const struct step_record *record);
void train_log_svg(struct str *to, const char *title,
                   const struct step_record *records, size_t n);

/*
 * train_log_write() writes both files, train_log_remove() takes them away, no
 * devices.  train_log_check(): may it write?  Only what is free or, to
 * 'resume', was written by the run of these steps.
 * 0, or -1 with 'err' set (EX_CANTCREAT).
 */
int train_log_write(const struct train_log *log,
                    const struct step_record *records, size_t n,
                    struct err *err);
void train_log_remove(const struct train_log *log);
int train_log_check(const struct train_log *log, bool resume,
                    const struct step_record *records, size_t n,
                    struct err *err);

#endif
