/* SPDX-License-Identifier: ISC */
/*
 * Rows of activations to their active latents: of lookup tables, of SAEs, and
 * of SAEs in training.
 *
 *   z       = W x + bias; with 'shift', of x - shift
 *   active: the k largest of z that are over 0, of equals those with lower
 *           indices; or all that are over their thresholds
 *
 * Where latents_screen() was called, cheaper products show which few can be
 * active, and these alone are computed exactly: no bit differs.
 */
#ifndef CORE_MODEL_LATENTS_H
#define CORE_MODEL_LATENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/kernel/gemm.h"
#include "core/kernel/screen.h"
#include "core/kernel/sums.h"

/* All of it is borrowed. */
struct latents {
    struct gemm_matrix w;    /* [n, in] rows that follow each other */
    const float *bias;       /* [n] */
    const float *shift;      /* [in], or NULL */
    const float *thresholds; /* [n], >= 0; NULL: the k largest */
    size_t k;                /* 1 .. n; 0: none is active, 'hook' is all */
    bool bf16;               /* x - shift and W are rounded: gemm_bf16() */
    struct screen *screen;   /* NULL: none */
    /* sees each block of z, as struct gemm_end says; then nothing is screened.
     * NULL: none */
    void (*hook)(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows,
                 size_t col, size_t n_cols, int thread);
    void *ctx;
};

/*
 * latents_screen() returns what these latents are screened by, or NULL where
 * that does not pay on this CPU, or memory is missing, which is used from the
 * first rows on that it pays for.  'stored' may be NULL; 'waits' as in
 * screen_open().
 * Owner: the caller, until screen_close().
 */
struct screen *latents_screen(const struct latents *l,
                              const struct screen_stored *stored, bool waits);

/* A workspace for any of some latents.  latents_size() makes room for one more
 * in sizes that begin as 0. */
struct latents_sizes {
    size_t in, k;
    bool bf16;
    size_t over;     /* n, of those with thresholds */
    size_t screened; /* n, of those that are screened */
};
void latents_size(struct latents_sizes *sizes, const struct latents *l);

/*
 * latents_work_open() makes the workspace for up to 'rows' rows at once, or as
 * many as 128 MiB hold, which latents_rows() returns: a row takes 32 k bytes
 * for each thread, or with thresholds 8 n.  If some are screened, also 8 k
 * numbers for each of 512 rows and thread, 1.5 n for each of 32 rows, and 64
 * bytes for each of n and 1100 for each of in.  'gemm' is borrowed.
 * 0, or -1 with 'err' set (EX_SOFTWARE).  One thread at a time may use it.
 * Owner: the caller, until latents_work_close().
 */
struct latents_work;
int latents_work_open(struct latents_work **work, struct gemm *gemm,
                      const struct latents_sizes *sizes, size_t rows,
                      struct err *err);
void latents_work_close(struct latents_work *work); /* NULL is fine */
size_t latents_rows(const struct latents_work *work);

/*
 * latents_encode(), then latents_select() find what is active in rows x [n,
 * in], ldx floats apart; n is at most latents_rows().
 * latents_room() is scratch [rows, in] until the next latents_encode(),
 * latents_notes() room [rows, 2] for what the caller keeps of rows.
 */
void latents_encode(struct latents_work *work, const struct latents *l,
                    const float *x, size_t ldx, size_t n);
void latents_select(struct latents_work *work, const struct latents *l);
float *latents_room(const struct latents_work *work);
double *latents_notes(const struct latents_work *work);
struct par *latents_par(const struct latents_work *work);

/* What was found in a row. */
struct latents_row {
    bool bad; /* z has a NaN or an infinity: some that are finite follow */
    size_t n;
    const uint32_t *idx; /* [n], ascending */
    const float *v;      /* [n] z */
};
struct latents_row latents_row(const struct latents_work *work, size_t i);

/* What active latents are multiplied by: y = bias + sum over i of v_i w_i, in
 * the order of idx.  All of it is borrowed. */
struct decoder {
    const void *w; /* [latents, n], BF16, F16 or F32, at any address */
    enum dtype dtype;
    const float *bias; /* [n] */
    size_t n;
};

/*
 * latents_sum() makes n columns of y of a row, from column c on; of a bad row
 * the bias.  latents_decode() makes rows y [n_rows, n], ldy floats apart, of
 * the first ones; a bad one becomes NaN.
 */
void latents_sum(const struct latents_work *work, size_t i,
                 const struct decoder *by, float *y, size_t c, size_t n);
void latents_decode(const struct latents_work *work, const struct decoder *by,
                    float *y, size_t ldy, size_t n_rows);

#endif
