/* SPDX-License-Identifier: ISC */
/* A norm's formula in f64. */
#ifndef TEST_UNIT_NORM_REF_H
#define TEST_UNIT_NORM_REF_H

#include <math.h>

#include "core/model/norm.h"

/* Number i of a normalized row. */
static inline double
norm_ref(const struct norm *norm, const float *row, size_t i)
{
    double n = (double)norm->n, mean = 0, sum = 0;

    if (norm->form == NORM_NONE)
        return (double)row[i];
    for (size_t k = 0; norm->form == NORM_LAYER && k < norm->n; k++)
        mean += (double)row[k] / n;
    for (size_t k = 0; k < norm->n; k++)
        sum += pow((double)row[k] - mean, 2);
    return ((double)row[i] - mean) / sqrt(sum / n + (double)norm->eps) *
               (double)norm->weight[i] +
           (norm->bias ? (double)norm->bias[i] : 0);
}

#endif
