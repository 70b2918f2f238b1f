/* SPDX-License-Identifier: ISC */
#include "core/format/matrix.h"

size_t
matrix_nbytes(const struct matrix *m)
{
    return m->rows * m->cols * dtype_size(m->dtype);
}

double
matrix_get(const struct matrix *m, size_t row, size_t col)
{
    return dtype_get(m->dtype, m->data,
                     m->by_col ? col * m->rows + row : row * m->cols + col);
}

void
matrix_vector(const struct matrix *m, double *to)
{
    for (size_t i = 0; i < m->cols; i++)
        to[i] = dtype_get(m->dtype, m->data, i);
}
