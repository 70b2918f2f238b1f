/* SPDX-License-Identifier: ISC */
/*
 * Weights as a file has them.  How their rows are stored is known to few:
 * weight.c, gemm_pack.c's packing, and what reads rows in gemv's and gemm's
 * exact kernels (lanes8.h, scalar.h).  Everyone else asks for rows and columns.
 */
#ifndef CORE_KERNEL_WEIGHT_H
#define CORE_KERNEL_WEIGHT_H

#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

/* How a number of few bits is stored.  Of two in a byte the lower half is the
 * even column. */
enum code_kind {
    CODE_I8, /* -128 .. 127 */
    CODE_U8, /* 0 .. 255 */
    CODE_U4, /* 0 .. 15 */
    CODE_F8, /* E4M3 */
    CODE_F4, /* E2M1 */
};

/*
 * Codes that stand for numbers: f32((code - zero) * scale), rounded once, by
 * the scale and the zero of the block that the row and the column are in.  The
 * last blocks may be smaller.  Nothing here is owned.
 * Source: the forms of quantized safetensors, see core/model/form.h.
 */
struct weight_code {
    enum code_kind kind;
    size_t rows, cols; /* of a block: 1 x 128, 128 x 128, 1 x all of them */
    const void *scale; /* [n / rows, ld], little-endian, at any address */
    enum dtype scale_dtype; /* F32, BF16, F16 or F8_E8M0 */
    size_t ld;              /* blocks from one row of them to the next */
    const uint8_t *zero;    /* as the scales, of CODE_I8 plus 128; NULL: */
    int zero_all;           /* of all of them */
    const uint32_t *block;  /* [k]: the block of each column, where they are
                             * not in order; or NULL */
};

/* Part of a matrix begins at another row or column of it. */
struct weight {
    const void *data;   /* the matrix: little-endian, at any address */
    enum dtype dtype;   /* BF16, F16 or F32; I8: times its row's scale */
    size_t ld;          /* columns from a row to the next */
    const float *scale; /* I8: of each row of the matrix; NULL: 1 */
    size_t row, col;    /* of the matrix: the first ones of these weights */
    const struct weight_code *code; /* instead of numbers, dtype is U8, and ld
                                     * and col are even if two are in a byte */
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

/* weight_pieces() lists all that rows of k columns are made of: these bytes,
 * and the scales, zeros and columns' blocks of codes.  Returns how many pieces.
 * The scales of I8 are not among them. */
#define WEIGHT_PIECES 4
struct weight_piece {
    const void *data;
    size_t nbytes;
};
size_t weight_pieces(struct weight_piece to[WEIGHT_PIECES],
                     const struct weight *w, size_t rows, size_t k);

#endif
