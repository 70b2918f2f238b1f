/* SPDX-License-Identifier: ISC */
/*
 * Weights as a file has them.  How their rows are stored is known to few:
 * weight.c, gemm_pack.c's packing, and what reads rows in gemv's and gemm's
 * exact kernels (lanes8.h, scalar.h).  Everyone else asks for rows and columns.
 */
#ifndef CORE_KERNEL_WEIGHT_H
#define CORE_KERNEL_WEIGHT_H

#include <stddef.h>

#include "core/dtype.h"

/* Part of a matrix begins at another row or column of it. */
struct weight {
    const void *data;   /* the matrix: little-endian, at any address */
    enum dtype dtype;   /* BF16, F16 or F32; I8: times its row's scale */
    size_t ld;          /* columns from a row to the next */
    const float *scale; /* I8: of each row of the matrix; NULL: 1 */
    size_t row, col;    /* of the matrix: the first ones of these weights */
};

/* weight_read() makes f32 of n numbers of a row, from a column on. */
void weight_read(float *to, const struct weight *w, size_t row, size_t col,
                 size_t n);

/* weight_rows() makes f32 of whole rows, one after the other. */
void weight_rows(float *to, const struct weight *w, size_t row, size_t n_rows,
                 size_t n_cols);

/* weight_stored() is where the first 'rows' rows are, and how many bytes they
 * take: for hashes.  Rows follow each other, and all of their columns count. */
const void *weight_stored(const struct weight *w, size_t rows, size_t *nbytes);

#endif
