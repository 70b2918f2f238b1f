/*
 * Sums in double, and rounding from double once.
 */
#ifndef LUT_PRECOMPUTE_F64_H
#define LUT_PRECOMPUTE_F64_H

#include <stddef.h>

#include "cmd/lut-precompute/target.h"
#include "core/dtype.h"
#include "core/par.h"

double dot64(const float *a, const double *b, size_t n);
float f64_round(double v, enum dtype dtype); /* exact in f32 */
void bias_products(struct par *par, const struct target_layer *t,
                   const double *b, double *sums);

#endif
