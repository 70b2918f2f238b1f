/*
 * Moments of the dims of many rows.  Rows come in spans; within one, blocks of
 * rows and columns are summed on their own and merged in their order, so that
 * no result depends on how many threads there are, nor on the spans' length if
 * it is a multiple of MOMENTS_ROWS.
 */
#ifndef SAEV_READ_COLUMNS_H
#define SAEV_READ_COLUMNS_H

#include <stddef.h>

#include "core/kernel/moments.h"
#include "core/par.h"

#define COLUMNS_MAX ((size_t)1 << 19) /* some 48 MiB */

struct columns {
    size_t d, n_rows;      /* so far */
    struct moments *all;   /* [d] */
    struct moments *parts; /* [blocks of a span][d] */
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

#endif
