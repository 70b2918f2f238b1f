/* SPDX-License-Identifier: ISC */
/*
 * Rows of a file's matrix as f32, and sums of them in f64.
 */
#ifndef CORE_MODEL_MATRIX_ROWS_H
#define CORE_MODEL_MATRIX_ROWS_H

#include <stddef.h>

#include "core/format/matrix.h"
#include "core/kernel/gemm.h"
#include "core/par.h"

/* matrix_rows() widens rows first .. first + n - 1 to f32, 'ld' floats apart;
 * matrix_weights() those of weights [n, k].  'par' may be NULL.  Cannot fail.
 */
void matrix_rows(struct par *par, const struct matrix *m, size_t first,
                 size_t n, float *to, size_t ld);
void matrix_weights(struct par *par, const struct gemm_matrix *w, size_t first,
                    size_t n, float *to, size_t ld);

/* matrix_times() is w b + bias in f64, where bias->data may be NULL.
 * b [k], bias [1, n], sums [n]. */
void matrix_times(struct par *par, const struct gemm_matrix *w, const double *b,
                  const struct matrix *bias, double *sums);

/* dot64() is the sum of a[i] b[i], in an order fixed by n. */
double dot64(const float *a, const double *b, size_t n);

#endif
