/*
 * Sums in double, and rounding from double once.
 */
#ifndef LUT_PRECOMPUTE_F64_H
#define LUT_PRECOMPUTE_F64_H

#include <stddef.h>

#include "cmd/lut-precompute/target.h"
#include "core/dtype.h"
#include "core/par.h"

/* dot64() is the sum of a[i] b[i], in an order fixed by n. */
double dot64(const float *a, const double *b, size_t n);

/* f64_round() is v rounded once to a dtype of tables, as f32, which holds it.
 */
float f64_round(double v, enum dtype dtype);

/* bias_products() leaves W b + bias of all parts of a layer in sums [out],
 * where b [in] is the SAE's decoder_bias. */
void bias_products(struct par *par, const struct target_layer *t,
                   const double *b, double *sums);

#endif
