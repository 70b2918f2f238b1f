/* SPDX-License-Identifier: ISC */
/*
 * sae-look's command line, parsed, and its verbs; only main.c prints errors
 * and exits.
 */
#ifndef SAE_LOOK_CMD_H
#define SAE_LOOK_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/opt.h"

/* Orders of latents: all but the first are descending, equals by index. */
enum look_sort { SORT_INDEX, SORT_DENSITY, SORT_MEAN, SORT_MAX };

/* What an example is. */
enum look_per { LOOK_PER_SEQUENCE, LOOK_PER_ROW };

struct look_cmd {
    const struct opt_line *line;
    char **args; /* [n_args] operands after the verb */
    int n_args;
    enum look_sort sort;
    uint64_t n; /* -n; 0: not given */
    double min_density, max_density;
    const char *sae, *model, *hook, *output; /* or NULL */
    bool no_norm, json, quiet;
    uint64_t quantiles, pairs_shown;

    /* scan and merge */
    const char *acts_ids; /* or NULL */
    uint64_t tokens;      /* 0: by the input */
    uint64_t dim;         /* of raw rows; 0: .npy, or a dump */
    int x_dtype;          /* or -1 */
    uint64_t input_at;
    const char *skip_ids; /* or NULL */
    uint64_t skip_positions;
    double max_norm; /* 0: any */
    bool skip_bad;
    enum look_per per;
    uint64_t top, sample, seed;
    uint64_t context[2];
    bool context_all;
    const char *latents, *pairs; /* LATENTS, or NULL */
    const char *codes, *model_id;
    uint64_t splits;
    size_t mem; /* bytes */
    bool gaps;

    /* html, prompts and export; model_id, too */
    uint64_t examples, negatives;
    const char *images; /* a list, or NULL */
    uint64_t grid[2];   /* patches of a row, rows */
    size_t max_bytes;
    const char *neuronpedia, *source;
    int n_threads, out_flags;
};

/* The verbs, each in the file of its name: 0, or -1 with 'err' set. */
int scan_main(const struct look_cmd *cmd, struct err *err);
int merge_main(const struct look_cmd *cmd, struct err *err);
int lens_main(const struct look_cmd *cmd, struct err *err);
int list_main(const struct look_cmd *cmd, struct err *err);
int show_main(const struct look_cmd *cmd, struct err *err);
int compare_main(const struct look_cmd *cmd, struct err *err);
int diff_main(const struct look_cmd *cmd, struct err *err);
int html_main(const struct look_cmd *cmd, struct err *err);
int prompts_main(const struct look_cmd *cmd, struct err *err);
int label_main(const struct look_cmd *cmd, struct err *err);
int export_main(const struct look_cmd *cmd, struct err *err);

#endif
