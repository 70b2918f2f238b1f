/*
 * Rows of a file's matrix as f32, whichever way it lies there.
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
    bool by_col; /* lies as [cols, rows] in the file */
};

/* matrix_nbytes() is its size in the file. */
size_t matrix_nbytes(const struct matrix *m);

/* matrix_rows() widens rows first .. first + n - 1 to f32, 'ld' floats apart.
 * 'par' may be NULL.  Cannot fail. */
void matrix_rows(struct par *par, const struct matrix *m, size_t first,
                 size_t n, float *to, size_t ld);

#endif
