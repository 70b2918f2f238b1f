/* SPDX-License-Identifier: ISC */
/*
 * The SAEs of a pass: what the command line says, what the states of a run that
 * is resumed say, and what is left to defaults.
 */
#ifndef SAE_TRAIN_PLAN_H
#define SAE_TRAIN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/sae-train/cmd.h"
#include "core/err.h"
#include "core/model/rows.h"
#include "core/model/train/run.h"
#include "core/model/train/sae.h"
#include "core/str.h"

enum { N_TENSORS = 4, N_OTHERS = 3 };

struct planned {
    char *name; /* of --sae or --layers; NULL: the only one */
    char *layer_name;
    size_t layer; /* of the input's */
    struct sae_options o;
    unsigned given;         /* bits: fields of 'o' that the command line has */
    bool asked;             /* -n was given */
    uint64_t total, layers; /* steps; of the input */
    uint64_t saes;          /* of the pass */
    size_t d;

    struct str dir, svg_path;
    struct train_run run;
    bool has_state; /* of a run to resume, in DIR; its step is run.saved */
    struct sae_trainer trainer;
    struct train_tensor tensors[N_TENSORS];
    struct train_numbers others[N_OTHERS];
    struct opt_list kept; /* texts that options point to */

    /* where the input was, before and after the last batch, and a checksum of
     * its rows: what a resumed run compares; whole numbers under 2^53 */
    double input[3]; /* before, after, sum */
};
enum { BEFORE, AFTER, SUM };

struct sae_plan {
    const struct train_cmd *cmd;
    struct sae_options o; /* of the pass: what SAEs may not differ in */
    uint64_t steps;       /* -n, as given now or to the run; or 0 */
    uint64_t in_all;      /* steps, by plan_rows(); 0: not known */
    bool is_default;      /* something of the pass was left to plan_rows() */
    bool by_first;        /* the batch is that of a pipe's first array */
    struct planned *list; /* [n] by layer */
    size_t n;
    char *names;         /* what the layers' names are pieces of */
    const char **layers; /* [n_layers], or NULL */
    size_t n_layers;
};

/*
 * plan_open() makes the list, with what the states in DIR say.
 * plan_rows() sets batch, epochs and steps where neither the command line nor a
 * state does: by the number of rows, if it is known.
 * plan_settle() completes it for these rows.
 * 0, or -1 with 'err' set: TU_USAGE, EX_DATAERR.
 * Owner: the caller, until plan_close(); a zeroed struct is fine.
 */
int plan_open(struct sae_plan *plan, const struct train_cmd *cmd,
              struct err *err);
int plan_rows(struct sae_plan *plan, const struct row_stream *rows,
              struct err *err);
int plan_settle(struct sae_plan *plan, const struct row_stream *rows,
                struct err *err);
void plan_close(struct sae_plan *plan);

/* The default of --warmup for so many steps, and of --lr for so many rows of
 * these steps; 0: not known. */
uint64_t default_warmup(uint64_t steps);
double default_lr(uint64_t latents, double rows);

/* plan_set_state() says in a state what a resumed run must have in common. */
void plan_set_state(struct planned *p, const struct opt_tool *tool);

#endif
