/* SPDX-License-Identifier: ISC */
/*
 * Is a gradient right?  Differences of the loss along a direction, against
 * what the gradient says of it: they share the forward pass alone.
 *
 * The loss is the sum of f32 arithmetic, so that it has noise: a step must be
 * so long that the loss moves far more than that, and so short that what is
 * not linear stays small.  With e(h) the error of the gradient g along d by a
 * central difference with the step h,
 *   e(h) = (loss(x + h d) - loss(x - h d) - g . (moved)) / 2 h
 * where 'moved' is by how much the f32 values did move,
 *   (4 e(h / 2) - e(h)) / 3    has no term in h^2 any more (Richardson);
 *   |e(h) - e(h / 2)| / 3      was that term in e(h / 2), and so is far more
 *                              than what is left, of h^4;
 *   1.9 noise / h              is its standard deviation, for independent
 *                              noise of four losses: sqrt(4^2 2 + 1 / 2) / 3.
 * The bound is the second, and six times the third.  Of some h, each 4 times
 * another, that with the smallest bound counts.  A loss that jumps between two
 * points, at which a token gets other experts, is seen by how e(h) grows.
 *
 * Source of the noise: J. J. Moré, S. M. Wild, Estimating Computational Noise
 * (SIAM J. Sci. Comput. 33, 2011): of m fourth differences t, of losses at
 * points close together, it is sqrt(sum(t^2) / (70 m)), as 4!^2 / 8! = 1 / 70.
 */
#ifndef CORE_MODEL_TRAIN_DIFFERENCE_H
#define CORE_MODEL_TRAIN_DIFFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* A loss of 'values', which are moved, and put back. */
struct difference {
    int (*loss)(void *ctx, double *loss, struct err *err); /* 0, or -1 */
    void *ctx;
    float *values; /* [n] */
    size_t n;
    double noise; /* its standard deviation, by difference_noise(): 2^-26 of
                   * 1 or more, for what f32 sums near 1 cannot hold */
};

/* difference_noise() takes 12 losses, at points that differ by some units of
 * the values' last places.  -1 with 'err' set, by loss(). */
int difference_noise(struct difference *d, uint64_t seed, struct err *err);

struct slope {
    double error; /* of the gradient along the direction */
    double bound; /* of 'error', if the gradient is right */
};

/*
 * difference_slope(): values [first, first + n) are moved along 'direction'
 * [n], whose norm is 1; 'grad' [n] is their gradient, and 'enough' a bound that
 * is good enough.  It takes 4 losses for each step that is tried, of which
 * there are DIFFERENCE_STEPS at most, and 8 where the gradient seems wrong.  -1
 * with 'err' set, by loss().
 */
#define DIFFERENCE_STEPS 6
int difference_slope(const struct difference *d, size_t first, size_t n,
                     const double *direction, const float *grad, double enough,
                     struct slope *slope, struct err *err);

#endif
