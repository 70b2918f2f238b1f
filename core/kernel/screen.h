/* SPDX-License-Identifier: ISC */
/*
 * The k largest of W x + bias that are over 0, without all of the exact
 * products: cheaper products of all rows of W, with a bound on their errors,
 * show which few can be among the k largest; the exact products of these
 * decide.  Where the bound proves that no other row of W can be, the k
 * largest, their order and their bits are those of gemm_exact() and topk.
 * The same of all that are over thresholds, of which each row of W has one.
 * Batches have products of W in bf16; a few rows of x those of its shadow: int8
 * times a scale for each row.
 */
#ifndef CORE_KERNEL_SCREEN_H
#define CORE_KERNEL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/kernel/gemm.h"

/* A shadow that a file has: of each row of W int8 [in] and a scale, and how far
 * they are from it at most, as a Euclidean norm.  f32, little-endian, at any
 * address.  What is not finite is not used. */
struct screen_stored {
    const void *int8;  /* [n, in], or NULL: none is stored */
    const void *scale; /* [n] */
    const void *error; /* [n] */
};

/*
 * screen_open() prepares screening for w, whose rows follow each other (ld ==
 * k, not by_k), with bias [n]: both are borrowed, and so is what 'stored' (it
 * may be NULL) points to.  What this CPU screens by is made on first use: a
 * packed copy in bf16, a shadow if none is stored, 24 bytes for each row:
 * screen_count()'s nbytes in all.  With 'waits' the first rows are left to the
 * exact products, until these took as long as that does, and small W
 * altogether. 0, or -1 with 'err' set (EX_SOFTWARE).  One thread at a time may
 * use it. Owner: the caller, until screen_close().
 */
struct screen;
int screen_open(struct screen **screen, const struct gemm_matrix *w,
                const float *bias, const struct screen_stored *stored,
                bool waits, struct err *err);
void screen_close(struct screen *screen); /* NULL is fine */

/* screen_shadow_row() makes row i of w's shadow. */
void screen_shadow_row(const struct gemm_matrix *w, size_t i, int8_t *to,
                       float *scale, float *error);

/* screen_ready() makes what n rows of x are screened by, if they are; else
 * screen_rows() does so on first use. */
void screen_ready(struct screen *screen, struct gemm *gemm, size_t n);

/* A workspace for matrices of up to 'in' columns and n rows, and up to k
 * largest, in any number of rows of x.  'gemm' is borrowed.  0, or -1 with
 * 'err' set (EX_SOFTWARE).  Owner: the caller, until screen_work_close(). */
struct screen_work;
int screen_work_open(struct screen_work **work, struct gemm *gemm, size_t in,
                     size_t n, size_t k, struct err *err);
void screen_work_close(struct screen_work *work); /* NULL is fine */

/* Of each row of x: */
struct screen_found {
    uint32_t *idx; /* [n, ld] ascending */
    float *v;      /* [n, ld] */
    size_t *n;     /* [n] how many */
    bool *proved;  /* [n]; if not, the others are not set */
    size_t ld;
};

/*
 * screen_rows() finds the k largest of n rows of x, ldx floats apart, or with
 * 'thresholds' [n of W], which are not negative, all over these: found->ld is n
 * of W at least then.
 * false, and nothing is found, where the exact products are faster: W is small,
 * n rows have no fast instructions for bf16, most rows failed so far, or it
 * still waits.
 * A row is not proved where too many rows of W are near the k-th largest or
 * their thresholds, or numbers are not finite, or too large or too small for
 * the bound.
 */
bool screen_rows(struct screen_work *work, struct screen *screen, size_t k,
                 const float *thresholds, const float *x, size_t ldx, size_t n,
                 const struct screen_found *found);

/* screen_count() adds up screens (NULL: none): the bytes that they may take,
 * rows of x so far, and those that were not proved. */
struct screen_counts {
    size_t nbytes;
    uint64_t rows, unproved;
};
void screen_count(const struct screen *screen, struct screen_counts *to);

#endif
