/*
 * saev-write's command line, as parsed; only main.c prints errors and exits.
 */
#ifndef SAEV_WRITE_CMD_H
#define SAEV_WRITE_CMD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/dtype.h"

struct write_cmd {
    const char *meta_path;  /* -m */
    const char *parent;     /* -o, without a slash at its end */
    const char *input_path; /* "-": standard input */
    enum dtype dtype;       /* of raw input */
    bool dtype_given;
    bool raw; /* do not look for a .npy header */
    bool pad, if_missing, force, manifest, resume, no_sync;
    bool sharded; /* --shard: */
    uint64_t part, n_parts;
    bool first_given; /* --first: */
    uint64_t first;   /* the image the stream begins with */
    bool quiet, verbose;
};

#endif
