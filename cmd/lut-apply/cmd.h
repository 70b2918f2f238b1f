/*
 * lut-apply's command line, as parsed; only main.c prints errors and exits.
 */
#ifndef LUT_APPLY_CMD_H
#define LUT_APPLY_CMD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/out.h"

struct apply_cmd {
    const char *dir, *name; /* DIR LAYER */
    const char *model;      /* -m, or NULL */
    const char *input;      /* -i, "-": standard input */
    const char *out_path, *svg;
    int out_flags;
    double ratio, tau; /* NaN: not given */
    int64_t top;       /* -1: not given */
    bool absolute, weighted;
    int x_dtype; /* of a raw x, or -1 */
    enum dtype dtype;
    bool raw, json, verbose, quiet;
    int n_threads;
    int64_t batch;
    struct out *out;
};

#endif
