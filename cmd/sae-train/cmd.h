/* SPDX-License-Identifier: ISC */
/*
 * sae-train's command line, as parsed, and its verbs; only main.c prints errors
 * and exits.
 */
#ifndef SAE_TRAIN_CMD_H
#define SAE_TRAIN_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/opt.h"

enum { ACT_TOPK, ACT_BATCHTOPK };
enum { COMPUTE_F32, COMPUTE_BF16 };
enum { FORMAT_SPARSIFY, FORMAT_SAELENS };

/* What a run that is resumed has had: first what may differ between the SAEs of
 * a pass, then what may not. */
struct sae_options {
    uint64_t k, latents,
        expansion; /* latents 0: init's, or expansion times d */
    int activation, compute;
    double aux_coef;
    uint64_t aux_k; /* 0: no aux; UINT64_MAX: d / 2 */
    uint64_t dead_after;
    double lr;       /* < 0: by the latents and the rows */
    uint64_t warmup; /* UINT64_MAX: by the steps */
    double decay, clip;
    bool no_normalize;
    uint64_t seed;
    const char *init, *hook; /* or NULL */

    uint64_t batch, epochs; /* 0: by the rows */
    uint64_t log_every;
    int format;
    bool skip_bad;
    const char *skip_ids; /* or NULL */
    uint64_t skip_positions;
    double max_norm; /* 0: any */
};

struct train_cmd {
    struct sae_options o; /* first: their places are those in it */
    const struct opt_line *line;
    char **paths; /* [n_paths] operands after the verb */
    int n_paths;
    const char *output;
    struct opt_list saes; /* --sae NAME:.. */
    const char *layers;   /* --layers NAME,.. */
    uint64_t tokens;      /* of raw rows by layers */
    uint64_t dim;         /* of raw rows; 0: .npy, or a dump */
    int x_dtype;          /* or -1 */
    uint64_t steps, save_every, input_at;
    bool resume, any_isa, long_info, rows, json, plot, verbose, quiet;
    const char *svg;
    struct opt_list eval; /* -s */
    int by;               /* eval --by: 0, or 1 + the word's place */
    int n_threads, out_flags;
};

/* The verbs: 0, or -1 with 'err' set. */
int train_main(const struct train_cmd *cmd, struct err *err);
int eval_main(const struct train_cmd *cmd, struct err *err);
int info_main(const struct train_cmd *cmd, struct err *err);

#endif
