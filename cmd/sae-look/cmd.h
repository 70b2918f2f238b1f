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
    int n_threads, out_flags;
};

/* The verbs, each in the file of its name: 0, or -1 with 'err' set. */
int lens_main(const struct look_cmd *cmd, struct err *err);
int list_main(const struct look_cmd *cmd, struct err *err);
int show_main(const struct look_cmd *cmd, struct err *err);

#endif
