/* SPDX-License-Identifier: ISC */
/*
 * Numbers to codes of few bits, as weight.h reads them: scales, zeros, codes.
 * The same bits on every instruction set.
 *
 *   int8, fp8   scale = absmax / 127, / 448
 *   int4        absmax / 7.5, asymmetric (max - min) / 15 with 0 in the range,
 *               as llm-compressor has them; or, of these times some factors and
 *               of those that fit the codes best, the one whose squared error
 *               is least
 *
 * A scale is rounded to the type that it is stored as first.  A code is then
 * the nearest to x * f32(1 / scale), ties to even, plus the zero.
 */
#ifndef CORE_KERNEL_ENCODE_H
#define CORE_KERNEL_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

enum encode_kind { ENCODE_F8, ENCODE_I8, ENCODE_I4 };

struct encode_form {
    enum encode_kind kind;
    size_t group;           /* columns that have a scale */
    enum dtype scale_dtype; /* F32, BF16 or F16 */
    bool asymmetric;        /* I4: with zeros */
    bool search;            /* I4: the least squared error */
};

/* What a row's codes are apart from it. */
struct encode_error {
    double squares, of; /* sums of squares: of the differences, of the row */
    double max;         /* the largest difference */
};

/*
 * encode_row() encodes the k numbers of a row.
 *   code   [k]           a byte each: F8 E4M3; I8, I4: plus 128, plus 8
 *   scale  [groups]      as rounded
 *   zero   [groups]      plus 8; of asymmetric I4 alone, else NULL
 *   weight [k]           of each squared error when scales are searched, finite
 *                        and not negative; NULL: 1
 * false: x has a NaN, an infinity, or a number whose square or scale would be
 * one, and nothing else is of use.
 */
bool encode_row(const struct encode_form *form, uint8_t *code, float *scale,
                uint8_t *zero, const float *x, const float *weight, size_t k,
                struct encode_error *error);

/* encode_groups() is how many groups k columns have.  encode_halves() packs
 * codes of 4 bits, the first of two in the lower half of a byte: to
 * [(k + 1) / 2]. */
size_t encode_groups(const struct encode_form *form, size_t k);
void encode_halves(uint8_t *to, const uint8_t *code, size_t k);

#endif
