/* SPDX-License-Identifier: ISC */
/*
 * Norms of rows: of the residual stream before the halves of a block, of what
 * they give it, and of the heads of q and k.
 */
#ifndef CORE_MODEL_NORM_H
#define CORE_MODEL_NORM_H

#include <stdbool.h>
#include <stddef.h>

#include "core/par.h"

enum norm_form {
    NORM_NONE,  /* y = x: a model has no such norm */
    NORM_RMS,   /* y = x / sqrt(mean(x^2) + eps) * weight + bias */
    NORM_LAYER, /* the same of x - mean(x) */
    NORM_SCALE, /* y = x * weight: LayerScale */
};

/* Before a half of a block, and of what it adds: with both, sandwiches. */
enum norm_place { NORM_PRE = 1, NORM_POST = 2 };

/* What a family's norms are. */
struct norm_kind {
    enum norm_form form;
    unsigned places; /* enum norm_place, ored */
    bool plus_one;   /* a file has w of weight = 1 + w */
    bool has_bias;
};

struct norm {
    enum norm_form form;
    const float *weight; /* [n] as it is multiplied by; of NORM_NONE NULL */
    const float *bias;   /* [n], or NULL: 0 */
    size_t n;            /* of NORM_NONE, too */
    float eps;
    size_t n_sets; /* of weights and bias, [n_sets, n], for rows in turn: row i
                    * has set i % n_sets; 0: 1 */
};

/*
 * norm_bind() makes a norm of a file's weight [n_sets, n], to which it adds 1
 * if that is how the file means it, and bias, as it, or NULL.  Both are the
 * caller's, as long as the norm is there.
 */
void norm_bind(struct norm *norm, const struct norm_kind *kind, float *weight,
               const float *bias, size_t n_sets, size_t n, float eps);

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
 * and of NORM_LAYER this of x - mean(x), which x becomes, without its mean.
 */
void norm_backward(struct par *par, const struct norm *norm, float *sum,
                   float *dy, float *x, size_t n_rows);

#endif
