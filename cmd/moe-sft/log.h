/* The log of a training run, and its picture. */
#ifndef MOE_SFT_LOG_H
#define MOE_SFT_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/state.h"
#include "cmd/moe-sft/train.h"
#include "core/err.h"
#include "core/str.h"

/* log_head(), log_line(): TSV.  log_print() puts it on stdout, unless it is
 * time to stop and nobody reads there.  log_svg(): the curve of the loss. */
void log_head(struct str *to);
void log_line(struct str *to, uint64_t step, const struct step_record *record);
void log_print(const struct str *text, int *first_errno);
void log_svg(struct str *to, const char *title,
             const struct step_record *records, size_t n);

/* log_write() writes --log and --svg, log_remove() takes them away, no devices.
 * log_check(): may it write?  Without --force only what is free or, with
 * --resume, was written by the run of that state: 0, or -1 with 'err' set
 * (EX_CANTCREAT). */
int log_write(const struct train_options *o, const struct state *s,
              struct err *err);
void log_remove(const struct train_options *o);
int log_check(const struct train_options *o, const struct state *s,
              struct err *err);

#endif
