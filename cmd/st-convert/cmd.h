/* SPDX-License-Identifier: ISC */
/* st-convert's command line, as parsed; only main.c prints errors and exits. */
#ifndef ST_CONVERT_CMD_H
#define ST_CONVERT_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/kernel/encode.h"
#include "core/opt_value.h"

struct st_convert_cmd {
    const char *input, *out_path;
    int dtype;     /* -1: as they are */
    int weights;   /* enum encode_kind; -1: as they are */
    int64_t group; /* 0: not given */
    bool asymmetric, head;
    int absmax; /* --scales absmax */
    bool dequantize, merge, if_missing, json, verbose, quiet;
    const char *activations; /* a directory, or NULL */
    struct opt_list ignored, selected, renamed;
    size_t shard_nbytes; /* 0: a shard for each of the input */
    int n_threads, out_flags;
};

#endif
