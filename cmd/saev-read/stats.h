/* What stats.c computes and spectrum.c draws. */
#ifndef SAEV_READ_STATS_H
#define SAEV_READ_STATS_H

#include "cmd/saev-read/columns.h"
#include "cmd/saev-read/read.h"

struct stats {
    const char *path; /* of the dump */
    const char *view; /* "cls", "image", "all" */
    char layer_json[24];
    struct columns columns;
    size_t n_rows, n_finite; /* rows; those without a NaN or an infinity */
    double mean_norm;        /* of the finite ones; NaN if there are none */
    double scalar;           /* mean distance from the mean / sqrt(d) */
};

/* spectrum.c: the deviations of all dims, the largest first, on a log scale,
 * the outliers with their names. */
int spectrum_svg(struct out *out, const struct stats *st, struct err *err);

#endif
