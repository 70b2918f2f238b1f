/* SPDX-License-Identifier: ISC */
/*
 * st-inspect's command line, parsed, and its verbs.  Only main.c prints errors
 * and exits.
 */
#ifndef ST_INSPECT_CMD_H
#define ST_INSPECT_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/hash.h"
#include "core/opt_value.h"
#include "core/out.h"
#include "core/par.h"
#include "core/record.h"
#include "core/str.h"

#define MAX_QUANTILES 16
#define MAX_BINS      1000

/* Levels of a tree. Bounds the rows, and their length, that one name can cause,
 * such as a name that consists of dots. */
#define TREE_MAX_DEPTH 64

struct inspect_cmd {
    const char *verb;
    char **args; /* operands after the verb */
    int n_args;
    struct opt_list globs; /* -t; a tensor is selected if any of them matches */
    bool json, align, fold, long_rows, hist, plot, raw, whole, all;
    bool ignore_dtype, dequantize;
    bool quiet, verbose;
    int out_flags; /* OUT_FORCE or 0 */
    int n_threads; /* -j */
    const char *out_path, *svg, *check, *slice;
    enum hash_kind hash;
    int dtype;     /* of cat's output; -1: as in the file */
    int64_t depth; /* of the tree; 0: TREE_MAX_DEPTH */
    int64_t n_bins;
    double atol, rtol;
    double quantiles[MAX_QUANTILES];
    size_t n_quantiles;

    struct out *out; /* the answer goes here, by way of 'text' */
    struct str text;
    struct record row; /* the rows of it */
    struct par *par;   /* opened by verbs that use threads; main closes it */
};

/*
 * The verbs, each in the file of its name, and check_main(), which is hash
 * --check.  They return the exit status of the answer (0, or TU_NEGATIVE), or
 * -1 with 'err' set; what they allocated is freed, and the answer is in
 * cmd->text.
 */
int list_main(struct inspect_cmd *cmd, struct err *err);
int tree_main(struct inspect_cmd *cmd, struct err *err);
int stats_main(struct inspect_cmd *cmd, struct err *err);
int hash_main(struct inspect_cmd *cmd, struct err *err);
int verify_main(struct inspect_cmd *cmd, struct err *err);
int diff_main(struct inspect_cmd *cmd, struct err *err);
int cat_main(struct inspect_cmd *cmd, struct err *err);
int meta_main(struct inspect_cmd *cmd, struct err *err);
int check_main(struct inspect_cmd *cmd, struct err *err);

#endif
