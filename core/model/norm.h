/*
 * RMSNorm: of the residual stream before each half of a block, and of the
 * heads of q and k.
 */
#ifndef CORE_MODEL_NORM_H
#define CORE_MODEL_NORM_H

#include <stddef.h>

#include "core/par.h"

/* y = x / sqrt(mean(x^2) + eps) * weight */
struct norm {
    const float *weight; /* [n]; NULL: there is no such norm */
    size_t n;
    float eps;
};

/*
 * norm_rows() normalizes rows into y [n_rows, n]: those of x, which may be y,
 * or where 'from' [n_rows] is given the rows from[i] of x.
 * 'par' may be NULL; a row's bits depend on it and the instruction set alone.
 */
void norm_rows(struct par *par, const struct norm *norm, float *y,
               const float *x, const size_t *from, size_t n_rows);

/*
 * norm_backward(): dy [n_rows, n], the gradient of norm_rows(x), becomes that
 * of x, or where 'sum' is given is lost, and that of x is added to 'sum':
 *   dx = r (weight dy - x r^2 mean(weight dy x)),  r = 1 / sqrt(mean(x^2) +
 * eps)
 */
void norm_backward(struct par *par, const struct norm *norm, float *sum,
                   float *dy, const float *x, size_t n_rows);

#endif
