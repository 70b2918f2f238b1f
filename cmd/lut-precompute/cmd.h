/* SPDX-License-Identifier: ISC */
/*
 * lut-precompute's command line as parsed, and what it does.  Only main.c
 * prints errors and exits.
 */
#ifndef LUT_PRECOMPUTE_CMD_H
#define LUT_PRECOMPUTE_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"

struct precompute_cmd {
    const char *model, *sae, *output; /* -m -s -o */
    const char *index;                /* --index: nothing else is done */
    const char *layers;               /* globs with commas between; or NULL */
    bool fuse_qkv, fuse_gate_up;
    enum dtype dtype;       /* of the tables */
    size_t k;               /* 0: the SAE's own */
    int keep_centering;     /* 1: --centering explicit */
    int bf16;               /* 1: --compute bf16 */
    bool no_prefix;         /* --no-model-prefix */
    const char *created_at; /* by SOURCE_DATE_EPOCH; NULL: unsaid */
    bool store_weights, screen, resume, verify, dry_run, verbose, quiet;
    int out_flags; /* OUT_FORCE or 0 */
    int n_threads;
    uint64_t part, n_parts; /* --shard; n_parts 0: all layers */

    /* calibrate */
    const char *dir, *layer; /* its operands */
    const char *input;       /* -i, "-": standard input */
    int x_dtype;             /* of a raw x, or -1 */
    const char *dims;        /* --dims, or NULL */
    int64_t top;             /* --top, with it */
};

/* run_all() makes all tables of the command line, or prints what --dry-run
 * does: 0, TU_NEGATIVE where --verify finds a difference, or -1 with 'err' set.
 */
int run_all(const struct precompute_cmd *cmd, struct err *err);

/*
 * index_write() makes metadata.json from the files of its layers.  Its
 * entries of layers whose files do not describe themselves are kept; with
 * 'prune' only while the file exists.  A damaged file, or one that neither
 * describes, is left out: with 'prune' an error (EX_DATAERR) when the rest is
 * done, else a warning.
 */
int index_write(const char *dir, bool prune, struct err *err);

/* index_elbow() sets the layer's elbow_thresholds in DIR/metadata.json, and
 * changes nothing else in it; two at once wait for each other where files can
 * be locked. */
int index_elbow(const char *dir, const char *layer, double p, double value,
                struct err *err);

/* calibrate() finds them, and the inputs for --dims, from rows of x, and prints
 * a table: 0, or -1 with 'err' set. */
int calibrate(const struct precompute_cmd *cmd, struct err *err);

/* index_check(): may tables be added to DIR?  Called before the first product:
 * an index of routed experts, or a damaged one, is refused. */
int index_check(const char *dir, struct err *err);

#endif
