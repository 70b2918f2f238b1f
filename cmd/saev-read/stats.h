/*
 * The moments of the dims of a dump, and their picture: the deviations of all
 * dims, the largest first, on a log scale, the outliers with their names.
 */
#ifndef SAEV_READ_STATS_H
#define SAEV_READ_STATS_H

#include <stddef.h>

#include "core/kernel/moments.h"
#include "core/out.h"

struct dump_stats {
    const char *path; /* of the dump */
    const char *view; /* "cls", "image", "all" */
    char layer_json[24];
    size_t d;
    struct moments *dims;    /* [d] */
    size_t n_rows, n_finite; /* rows; those without a NaN or an infinity */
    double mean_norm;        /* of the finite ones; NaN if there are none */
    double scalar;           /* mean distance from the mean / sqrt(d) */
};

/* spectrum_svg() draws them; -1 with 'err' set: 'out' cannot be written, or no
 * memory. */
int spectrum_svg(struct out *out, const struct dump_stats *st, struct err *err);

#endif
