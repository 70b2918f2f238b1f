/* SPDX-License-Identifier: ISC */
/*
 * saev-read's command line, as parsed, and its verbs, which get it; only main.c
 * prints errors and exits.
 */
#ifndef SAEV_READ_CMD_H
#define SAEV_READ_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/format/saev_mask.h"
#include "core/numbers.h"
#include "core/out.h"
#include "core/perm.h"

struct read_cmd {
    const char *verb;
    char **args; /* operands after the verb */
    int n_args;
    enum saev_tokens tokens; /* --view */
    int64_t layer;           /* --layer; SAEV_ALL_LAYERS */
    bool layer_given;        /* "all" on purpose, too */
    struct index_range imgs; /* --imgs; first > last: all */
    const char *skip_ids;    /* --skip-ids LIST, or NULL */
    struct saev_mask mask;   /* it, --padding, --skip-positions, --max-norm */
    enum dtype dtype;        /* of the rows written: F32, F16, BF16 */
    bool raw;                /* no .npy header */
    uint64_t batch;          /* rows of an array; 0: all in one */
    const char *rows;        /* --rows FILE */
    bool index, json;        /* --index, --json */
    bool direct, deep;
    bool sharded; /* --shard: */
    uint64_t part, n_parts;
    bool strict;          /* a dump has to have its own hash as its name */
    uint64_t max_patches; /* --max-patches; 0: as it is */
    bool shuffle;
    uint64_t window, sample; /* slots, rows; 0: not asked for */
    uint64_t skip;           /* rows of the order that are left out */
    struct perm perm;        /* --seed, --epoch */
    size_t mem;              /* bytes that a shuffle may use */
    const char *tmpdir;      /* NULL: $TMPDIR, or /tmp */
    bool quiet, verbose;
    int n_threads;   /* -j */
    const char *svg; /* --svg FILE */
    bool plot;
    const char *out_path;
    int out_flags; /* OUT_FORCE or 0 */

    struct out *out;
    struct par *par; /* opened by verbs that use threads; main closes it */
};

/*
 * The verbs, each in the file of its name.  They return the exit status of the
 * answer (0, or TU_NEGATIVE), or -1 with 'err' set.
 */
int rows_main(struct read_cmd *cmd, struct err *err); /* the default verb */
int verify_main(struct read_cmd *cmd, struct err *err);
int info_main(struct read_cmd *cmd, struct err *err);
int stats_main(struct read_cmd *cmd, struct err *err);
int meta_main(struct read_cmd *cmd, struct err *err);

#endif
