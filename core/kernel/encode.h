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
 * A scale is rounded to the type that it is stored as first, and never to 0: to
 * the smallest that has an inverse.  A code is then the nearest to
 * x * f32(1 / scale), ties to even, plus the zero.
 */
#ifndef CORE_KERNEL_ENCODE_H
#define CORE_KERNEL_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/kernel/weight.h"

/* S8 is what gemm_to_int8() makes: scale = absmax / 127, whatever it is, and
 * x * f32(127 / absmax), or 0 where that is infinite. */
enum encode_kind { ENCODE_F8, ENCODE_I8, ENCODE_I4, ENCODE_S8 };

struct encode_form {
    enum encode_kind kind;
    size_t group;           /* columns that have a scale; I4: even */
    enum dtype scale_dtype; /* F32, BF16 or F16; S8: F32 */
    bool asymmetric;        /* I4: with zeros */
    bool search;            /* I4: the least squared error */
};

/* How far a row's codes are from it. */
struct encode_error {
    double squares, of; /* sums of squares: of the differences, of the row */
    double max;         /* the largest difference */
};

/*
 * encode_row() encodes the k numbers of a row of w.
 *   code   a byte each: F8 E4M3; I8 plus 128; S8; two of I4, plus 8, the first
 *          of them in the lower half
 *   scale  [groups]   little-endian
 *   zero   [groups]   plus 8; of asymmetric I4 alone, else NULL
 *   weight [k]        of each squared error when scales are searched, finite
 *                     and not negative; NULL: 1
 * false: the row has a NaN, an infinity, or a number whose square or scale
 * would be one, and nothing else is of use.  Memory: some KiB of the stack.
 */
bool encode_row(const struct encode_form *form, uint8_t *code, char *scale,
                uint8_t *zero, const struct weight *w, size_t row, size_t k,
                const float *weight, struct encode_error *error);

/* encode_groups() is how many groups k columns have. */
size_t encode_groups(const struct encode_form *form, size_t k);

/* encode_add() adds a row's error to a tensor's, whose encode_relative_rms() is
 * the root of the squares' ratio. */
void encode_add(struct encode_error *to, const struct encode_error *row);
double encode_relative_rms(const struct encode_error *error);

#endif
