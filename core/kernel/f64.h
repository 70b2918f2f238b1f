/* SPDX-License-Identifier: ISC */
/*
 * exp, log, pow, sin and cos in double, the same bits on every machine: only
 * IEEE's + - * / are used, in one order.  (A C library selects variants of
 * these by CPU, whose last bits differ.)  For where a result depends on them:
 * RoPE's tables, likelihoods, learning rates.
 *
 * Within 1 ulp of the real value.  NaN gives NaN.
 */
#ifndef CORE_KERNEL_F64_H
#define CORE_KERNEL_F64_H

#include <stddef.h>

double f64_exp(double x);
double f64_log(double x);           /* of 0 -infinity, below it NaN */
double f64_pow(double x, double y); /* x >= 0, else NaN; x^0 and 1^y are 1 */

/* f64_log_sum_exp(): log(exp(x[0]) + ..), n >= 1, added in order; finite where
 * the largest is and none is NaN. */
double f64_log_sum_exp(const float *x, size_t n);

/* |x| <= 2^30, else NaN: as positions are (core/model/config.c), times
 * frequencies of 1 and less. */
double f64_sin(double x);
double f64_cos(double x);

#endif
