/* SPDX-License-Identifier: ISC */
/*
 * Means, deviations and ranges, in float64.  A set of numbers comes in blocks:
 * the moments of each are computed on their own, from its mean, and merged in
 * an order of the caller's, so that no result needs to depend on which thread
 * computed which. NaN and infinities are counted apart, and everything else is
 * over the other numbers.
 */
#ifndef CORE_KERNEL_MOMENTS_H
#define CORE_KERNEL_MOMENTS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOMENTS_ROWS ((size_t)64) /* of a block of columns, at most */

struct moments {
    uint64_t n, n_nan; /* finite numbers; those that are neither are infinite */
    double min, max;   /* infinite where n is 0 */
    double mean, m2;   /* m2: sum of squared distances from the mean */
};

/* Of no numbers: what others are merged to. */
#define MOMENTS_NONE \
    ((struct moments){ .min = (double)INFINITY, .max = -(double)INFINITY })

/* moments_columns(): of each column of x [n_rows, n_columns], its rows ld
 * apart, to m [n_columns].  finite: all of x is known to be.  n_rows is at most
 * MOMENTS_ROWS. */
void moments_columns(struct moments *m, const float *x, size_t ld,
                     size_t n_rows, size_t n_columns, bool finite);

/* moments_of(): of n numbers; returns how many are 0. */
uint64_t moments_of(struct moments *m, const double *x, size_t n);

/* moments_merge() makes a the moments of both sets. */
void moments_merge(struct moments *a, const struct moments *b);

/* The mean and the deviation (over n); NaN of no numbers.  Of numbers that are
 * all the same that number and 0, whatever a sum of them was rounded to. */
double moments_mean(const struct moments *m);
double moments_std(const struct moments *m);

/* moments_distance() is |x - from| of n numbers each; from NULL: |x|. */
double moments_distance(const float *x, const double *from, size_t n);

/* Neumaier's sum, of s and c: what each addition to s rounds off is kept in c.
 * One rounding's error, however many are added. */
struct moments_sum {
    double s, c;
};

static inline void
moments_add(struct moments_sum *sum, double v)
{
    double t = sum->s + v;

    sum->c += fabs(sum->s) >= fabs(v) ? sum->s - t + v : v - t + sum->s;
    sum->s = t;
}

#endif
