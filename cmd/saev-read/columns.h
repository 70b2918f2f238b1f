/*
 * Moments of the dims of many rows, in float64.  Rows come in spans; within
 * one, blocks of rows and columns are summed on their own and merged in their
 * order, so that no result depends on how many threads there are, nor on the
 * spans' length if it is a multiple of COLUMNS_BLOCK.
 * NaN and infinities are counted, and everything else is over the other
 * elements of their dim.
 */
#ifndef SAEV_READ_COLUMNS_H
#define SAEV_READ_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/par.h"

#define COLUMNS_BLOCK ((size_t)64)      /* rows of a block */
#define COLUMNS_MAX   ((size_t)1 << 19) /* some 40 MiB */

/* Of each dim; m2 is the sum of squared distances from the mean. */
struct moments {
    double *mean, *m2;
    float *min, *max; /* infinite where there is no finite element */
    uint64_t *n_nan, *n_inf;
};

struct columns {
    size_t d, n_rows;     /* so far */
    struct moments all;   /* [d] */
    struct moments parts; /* [blocks of a span][d] */
    size_t span_rows;     /* at most so many at once */
    /* of the rows of the span: their norms, NaN where one has a NaN or an
     * infinity */
    double *norms;
};

/* -1 with 'err' set if there is no memory.  Owner: until columns_close(). */
int columns_open(struct columns *c, size_t d, size_t span_rows,
                 struct err *err);
void columns_close(struct columns *c); /* a zeroed struct is fine */

/* columns_add() takes x [n, d]; leaves their norms in c->norms. */
void columns_add(struct columns *c, const float *x, size_t n, struct par *par);

/* columns_distances() leaves the distances of x [n, d] from 'mean' [d] in
 * c->norms instead. */
void columns_distances(struct columns *c, const float *x, size_t n,
                       const double *mean, struct par *par);

/* The finite elements of a dim; their mean and deviation (over n), NaN if
 * there are none. */
uint64_t columns_n(const struct columns *c, size_t dim);
double columns_mean(const struct columns *c, size_t dim);
double columns_std(const struct columns *c, size_t dim);

#endif
