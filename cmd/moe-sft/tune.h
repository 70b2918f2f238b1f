/* SPDX-License-Identifier: ISC */
/* What the files of moe-sft tune share: a run. */
#ifndef MOE_SFT_TUNE_H
#define MOE_SFT_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/tune_data.h"
#include "cmd/moe-sft/tune_pack.h"
#include "cmd/moe-sft/verbs.h"
#include "core/err.h"
#include "core/model/config.h"
#include "core/model/train/adamw.h"
#include "core/model/train/lm.h"
#include "core/model/train/order.h"
#include "core/model/train/ranks.h"
#include "core/model/train/run.h"
#include "core/model/train/schedule.h"
#include "core/par.h"
#include "core/str.h"

struct tune {
    struct cmd o; /* the command line, completed by the state of the run that is
                   * resumed */
    struct lm_lora lora; /* of a new adapter, or of the state's */

    struct par *par;
    struct ranks *ranks; /* of which 0 alone writes and prints */
    struct config config;
    json_t *vars;         /* of --template-var, or of the state; NULL: none */
    char now[24];         /* of the first step, in seconds */
    bool had_no_messages; /* the run that is resumed */
    struct tune_text text;
    struct tune_data data, eval_data; /* eval_data.n 0: no --eval */
    struct tune_windows windows, eval_windows;
    struct lm *lm;

    struct schedule schedule;
    uint64_t total;     /* steps of the run */
    double seconds;     /* where a line says how they ended */
    uint64_t per_epoch; /* steps */
    struct train_order order;
    struct lm_seq *step; /* [batch * accumulate] */

    struct adamw adamw;
    struct train_tensor *tensors; /* [lm->n_tensors] */
    struct train_run run;
    struct str arithmetic;
    struct opt_list kept; /* texts from the state that options point to */
    char base_digest[HASH_MAX_HEX], init_digest[HASH_MAX_HEX];

    struct str best_path;
    size_t best_from; /* the first evaluation that DIR/best may be of */
};

/* ---- tune.c ---- */

/* tune_open() completes the options and opens the data, the first step's
 * sequences among them, and the model: nothing that it takes for training is
 * allocated.  -1 with 'err' set; tune_close() in either case.  'ranks' is
 * borrowed, NULL for one process. */
int tune_open(struct tune *t, const struct cmd *cmd, struct ranks *ranks,
              struct err *err);
void tune_close(struct tune *t);

/* ---- tune_settings.c: options, from the command line and from a state ---- */

/* tune_settle() completes the options, of a model whose config is there: with
 * those of the state at 'path', which
 * were not given again (NULL: there is none), and defaults.  -1 with 'err' set:
 * TU_USAGE, EX_DATAERR. */
int tune_settle(struct tune *t, const char *path, struct err *err);

/* tune_set_settings() says in the state what a resumed run must have in common
 * with this one. */
void tune_set_settings(struct tune *t);

/* tune_targets() is the list of --targets, "q,k,v", of a set. */
void tune_targets(struct str *to, const struct config *config,
                  unsigned targets);

/* tune_same() compares what this run is with that of rank 0. */
int tune_same(struct tune *t, struct err *err);

/* ---- tune_save.c: DIR ---- */

/* tune_dir_init() says what the run is, tune_dir_check() whether it may be
 * there, and tune_dir_open() begins it.  tune_dir_best() writes DIR/best, if
 * the last evaluation has the lowest loss, or the lowest since DIR/best was
 * deleted.  tune_dir_undo() removes what a run that failed before its first
 * checkpoint has made. */
void tune_dir_init(struct tune *t);
int tune_dir_check(const struct tune *t, struct err *err);
int tune_dir_open(struct tune *t, struct err *err);
int tune_dir_best(struct tune *t, struct err *err);
void tune_dir_undo(const struct tune *t);

/* tune_write_grads() writes the gradients of the last lm_grad(). */
int tune_write_grads(const struct tune *t, double loss, const char *path,
                     struct err *err);

/* ---- tune_run.c: steps ---- */

/* tune_run() does the steps that are left: 0, or -1 with 'err' set. */
int tune_run(struct tune *t, struct err *err);

/* tune_drop_extra() forgets the evaluation of a last step that is not the last
 * any more. */
void tune_drop_extra(struct tune *t);

/* tune_grads() computes the first step's gradients, and writes them. */
int tune_grads(struct tune *t, const char *path, struct err *err);

/* ---- tune_print.c: --dry-run ---- */
int tune_print(const struct tune *t, struct err *err);

#endif
