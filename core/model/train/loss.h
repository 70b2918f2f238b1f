/* SPDX-License-Identifier: ISC */
/*
 * What training lowers, and what is done to the gradients of it.  The same bits
 * for any number of threads.
 */
#ifndef CORE_MODEL_TRAIN_LOSS_H
#define CORE_MODEL_TRAIN_LOSS_H

#include <stddef.h>
#include <stdint.h>

#include "core/par.h"

/*
 * loss_mse() is the mean over n > 0 elements of (output - target)^2; its
 * gradient 2 (output - target) / n is rounded to bf16 (little-endian).
 */
double loss_mse(uint16_t *grad, const float *output, const float *target,
                size_t n, struct par *par);

/* grad_norm() is sqrt(sum of squares), summed in double. */
double grad_norm(const float *grad, size_t n, struct par *par);

/* clip_scale() is what a gradient of that norm is multiplied by to have 'clip'
 * at most; 0: no limit.  Source: torch.nn.utils.clip_grad_norm_. */
double clip_scale(double norm, double clip);

/* grad_add() adds n gradients to 'sum'. */
void grad_add(float *sum, const float *grad, size_t n, struct par *par);

#endif
