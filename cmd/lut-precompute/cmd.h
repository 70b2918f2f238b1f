/*
 * lut-precompute's command line, as parsed; only main.c prints and exits.
 */
#ifndef LUT_PRECOMPUTE_CMD_H
#define LUT_PRECOMPUTE_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

struct precompute_cmd {
    const char *model, *sae, *output; /* -m -s -o */
    const char *index;                /* --index: nothing else is done */
    const char *layers;               /* globs with commas between; or NULL */
    bool fuse_qkv, fuse_gate_up;
    enum dtype dtype;   /* of the tables */
    size_t k;           /* 0: the SAE's own */
    int keep_centering; /* 1: --centering explicit */
    bool store_weights, resume, verify, dry_run, verbose, quiet;
    int out_flags; /* OUT_FORCE or 0 */
    int n_threads;
    uint64_t part, n_parts; /* --shard; n_parts 0: all layers */
};

#endif
