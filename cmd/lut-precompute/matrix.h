/*
 * Rows of a file's matrix as f32, transposed or not, and sums of them in f64.
 */
#ifndef LUT_PRECOMPUTE_MATRIX_H
#define LUT_PRECOMPUTE_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

#include "core/dtype.h"
#include "core/par.h"

/* A matrix of a mapped file, [rows, cols]; a vector has one row. */
struct matrix {
    const void *data; /* NULL: there is none */
    enum dtype dtype; /* BF16, F16, F32 */
    size_t rows, cols;
    bool by_col; /* stored as [cols, rows] in the file */
};

/* matrix_nbytes() is its size in the file. */
size_t matrix_nbytes(const struct matrix *m);

/* matrix_rows() widens rows first .. first + n - 1 to f32, 'ld' floats apart.
 * 'par' may be NULL.  Cannot fail. */
void matrix_rows(struct par *par, const struct matrix *m, size_t first,
                 size_t n, float *to, size_t ld);

/* matrix_vector() widens a vector to f64. */
void matrix_vector(const struct matrix *m, double *to);

/* matrix_times() is m b + bias in f64, where bias->data may be NULL.
 * b [cols], bias [1, rows], sums [rows]. */
void matrix_times(struct par *par, const struct matrix *m, const double *b,
                  const struct matrix *bias, double *sums);

/* dot64() is the sum of a[i] b[i], in an order fixed by n. */
double dot64(const float *a, const double *b, size_t n);

#endif
