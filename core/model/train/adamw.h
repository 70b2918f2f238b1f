/* SPDX-License-Identifier: ISC */
/*
 * AdamW: Adam with decoupled weight decay, f32 parameters and moments, each
 * step computed in double and rounded once.  The same bits for any number of
 * threads.
 * Source: torch.optim.AdamW (amsgrad, maximize: false); Loshchilov & Hutter,
 * ICLR 2019.
 */
#ifndef CORE_MODEL_TRAIN_ADAMW_H
#define CORE_MODEL_TRAIN_ADAMW_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/par.h"

struct adamw {
    double beta1, beta2, eps, weight_decay;
    size_t n;
    float *master, *m, *v; /* [n]: parameters, first and second moment */
};

/* adamw_open() makes room for n parameters, all 0; the other fields are the
 * caller's.  -1 with 'err' set (EX_SOFTWARE). */
int adamw_open(struct adamw *a, size_t n, struct err *err);
void adamw_close(struct adamw *a); /* a zeroed struct is fine */

/* adamw_step() is step t = 1, 2, .. of parameters first .. first + n - 1, by
 * their gradients scale * grad[first], .. */
void adamw_step(struct adamw *a, size_t first, size_t n, const float *grad,
                double scale, double lr, uint64_t t, struct par *par);

/* What a step's moves have in common: adamw_rates() of step t, for parameters
 * that are moved piece by piece, where adamw_step() has no part of them. */
struct adamw_rates {
    double scale, keep; /* of the gradient; of a parameter */
    double size;        /* lr / (1 - beta1^t) */
    double correct;     /* 1 / sqrt(1 - beta2^t) */
};
struct adamw_rates adamw_rates(const struct adamw *a, double scale, double lr,
                               uint64_t t);
void adamw_move(struct adamw *a, const struct adamw_rates *rates, size_t first,
                size_t n, const float *grad); /* grad [n] */

#endif
