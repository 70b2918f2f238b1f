/* SPDX-License-Identifier: ISC */
/*
 * What eval sums of rows, and of all but the 1 % of them that are largest: a
 * few tokens, the first of a text above all, can have most of the variance.
 */
#ifndef SAE_TRAIN_LARGEST_H
#define SAE_TRAIN_LARGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/kernel/moments.h"
#include "core/par.h"

/* Of each of d columns: the sums of x - from, and of its squares, so exact that
 * those of a few rows can be taken off again. */
struct row_sums {
    size_t d;
    uint64_t n;
    const double *from; /* [d] */
    struct moments_sum *sum, *square;
};

/* row_sums_add() adds n rows [d]; 'par' may be NULL.  row_sums_variance() is
 * sum |x - mean|^2, of the rows that are not in 'without', which may be NULL.
 */
void row_sums_add(struct row_sums *s, struct par *par, const float *const *rows,
                  size_t n);
double row_sums_variance(const struct row_sums *s,
                         const struct row_sums *without);

/*
 * The largest rows are the 1 % of all, rounded up, with the largest |x|^2, a
 * sum in f64 from the first column on; of equal ones those that come first.
 * As many and 1024 are kept; of a stream, whose rows nobody has counted, 4 %
 * more: if one of the largest is not among them, 'lost' is set at the end.
 */
struct large_row {
    double norm; /* |x|^2 */
    uint64_t row;
    size_t at; /* of the rows kept */
};

struct largest {
    size_t d, n_errors;
    uint64_t known; /* rows in all; 0: nobody has counted them */
    bool lost;

    /* private */
    uint64_t n;             /* rows so far */
    struct large_row *heap; /* [n_heap] the least first */
    size_t n_heap, cap_heap;
    void **blocks; /* of kept rows and their errors */
    size_t n_blocks, cap_blocks, block_rows;
    struct large_row best; /* of those that were not kept */
};

/* largest_open(): d, n_errors and known are set, all else is 0.  Owner: the
 * caller, until largest_close(); a zeroed struct is fine there. */
void largest_open(struct largest *l);
void largest_close(struct largest *l);

/* largest_add() adds n rows x [n, d], whose |x|^2 are norms [n], and whose
 * errors are errors[i * ld + row].
 * 0, or -1 with 'err' set (EX_SOFTWARE). */
int largest_add(struct largest *l, const float *x, const double *norms,
                size_t n, const double *errors, size_t ld, struct err *err);

/* largest_end(): no more come.  Adds the largest rows to s, and their errors to
 * error [n_errors]. */
void largest_end(struct largest *l, struct row_sums *s,
                 struct moments_sum *error);

#endif
