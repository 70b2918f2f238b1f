/* SPDX-License-Identifier: ISC */
/*
 * A matrix that lies in a mapped file, transposed or not.
 */
#ifndef CORE_FORMAT_MATRIX_H
#define CORE_FORMAT_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

#include "core/dtype.h"

/* [rows, cols]; a vector has one row. */
struct matrix {
    const void *data; /* NULL: there is none */
    enum dtype dtype; /* BF16, F16, F32 */
    size_t rows, cols;
    bool by_col; /* stored as [cols, rows] in the file */
};

/* matrix_nbytes() is its size in the file. */
size_t matrix_nbytes(const struct matrix *m);

/* matrix_get() is one element. */
double matrix_get(const struct matrix *m, size_t row, size_t col);

/* matrix_vector() widens a vector to f64. */
void matrix_vector(const struct matrix *m, double *to);

#endif
