/* SPDX-License-Identifier: ISC */
/*
 * Matrix products C = X W^T: X [m, k] is activations, W [n, k] weights, as a
 * linear layer has them, C [m, n] f32.  m, n, k may be anything, 0 included
 * (a sum over k = 0 is 0).
 *
 * The caller names how exact it wants them:
 *
 *   exact  W is widened to f32, X is f32, sums are f32, in one order on every
 *          CPU, for few rows of X (gemv_ISA.c) and for many: column c adds to
 *          lane c % 8 by FMA.  After 1024 columns, or after the last, filled
 *          up with zeros to 8 (each lane adds 0 * 0), lanes l and l + 4 are
 *          added, l and l + 2, l and l + 1; and this to the sum so far.
 *   bf16   W and X are rounded to bf16; products are exact, sums f32.
 *          With X split into two bf16 (hi + lo, 2^-17 of it lost) only W is.
 *   int8   symmetric int8, a scale for each row of W and of X; sums are exact
 *          in 32 bits and rescaled once.
 *
 * An output's bits depend on its two rows and its k alone, in the bf16 class
 * also on the instruction set (hardware adds in orders of its own, and AMX and
 * AVX512-BF16 take denormals for 0): never on m, n, the threads, how calls are
 * cut, nor on whether W was packed before or on the fly.  The sign and payload
 * of a NaN are not promised.
 *
 * Weights of the bf16 and int8 classes are worked on in panels of 64 rows of W,
 * one layout for every instruction set (K rounded up, zeros where W ends):
 *   bf16  [n / 64][k / 2][64][2]       int8  [n / 64][k / 4][64][4]
 * gemm_pack() makes them once; a job without them packs on the fly, which
 * pays from a few hundred rows of X.
 *
 * A C of these two classes that is stored as it is summed (struct gemm_end all
 * 0) is written by streaming stores from 4 MiB on, if it and its rows are
 * 64-byte aligned: up to twice as fast, and its next reader finds it in memory.
 */
#ifndef CORE_KERNEL_GEMM_H
#define CORE_KERNEL_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/kernel/weight.h"
#include "core/par.h"

/* Names the exact class's order in what files say of their numbers: another
 * order gets another name. */
#define GEMM_EXACT_ORDER "8 lanes"

#define GEMM_PANEL 64 /* rows of W, columns of C */

/*
 * gemm_open() makes the workspace of all products: some threads and each
 * one's scratch (about 1 MiB, independent of the shapes).  'par' is borrowed
 * and may be NULL.  0, or -1 with 'err' set (EX_SOFTWARE).
 * One thread at a time may use it.  Owner: the caller, until gemm_close().
 * Nothing else here allocates or can fail.
 */
struct gemm;
int gemm_open(struct gemm **gemm, struct par *par, struct err *err);
void gemm_close(struct gemm *gemm); /* NULL is fine */
struct par *gemm_par(const struct gemm *gemm);
size_t gemm_workspace(int n_threads); /* bytes that gemm_open() takes */

/*
 * W [n, k] is the first n rows and k columns of 'weight', or, 'by_k', its first
 * k rows and n columns transposed, as backward wants it and GPT-2's files have
 * it: then without scales.  gemm_exact() reads it as fast for up to four rows
 * of X, and from about 50 on packs it.
 * I8 is for the int8 class alone.  'native', for the bf16 class alone: F32 in
 * the machine's order, as activations are.
 */
struct gemm_matrix {
    struct weight weight;
    size_t n, k;
    bool by_k, native;
};

/* A packed matrix: data [gemm_packed_nbytes()] of the caller's, 64-byte
 * aligned; one class's panels. */
enum gemm_class { GEMM_BF16, GEMM_INT8 };
struct gemm_panels {
    enum gemm_class class;
    size_t n, k;
    void *data;
    float *scale; /* int8: [n] of W's rows; NULL: 1 */
};

/* gemm_packed_nbytes() is the size of a packed [n, k] matrix. */
size_t gemm_packed_nbytes(enum gemm_class class, size_t n, size_t k);

/*
 * gemm_pack() packs w: into BF16 panels (other dtypes are rounded to bf16,
 * nearest even), or I8 into INT8 panels, whose scales are the caller's.
 */
void gemm_pack(struct gemm *gemm, struct gemm_panels *panels,
               const struct gemm_matrix *w);

/*
 * What becomes of a block of sums, in this order: times the scales (int8),
 * + bias, + what C holds, then 'hook' sees (and may change) it, then it is
 * stored in C, if there is a C.
 *   hook(ctx, t, ldt, row, n_rows, col, n_cols, thread)
 *   t[i * ldt + j] belongs to C[row + i][col + j]; called from any thread, for
 *   every output once, in no order.
 */
struct gemm_end {
    const float *bias; /* [n], or NULL */
    bool accumulate;
    void (*hook)(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows,
                 size_t col, size_t n_cols, int thread);
    void *ctx;
};

/* One matrix of a call, which has GEMM_MAX_JOBS at most; all share X, and its
 * k.  A job may have some rows of X alone, as an expert has: C's first is that
 * of X's row 'row' then. */
#define GEMM_MAX_JOBS 32
struct gemm_job {
    struct gemm_matrix w;
    const struct gemm_panels *panels; /* instead of w, not for exact */
    float *c;                         /* [m, n], rows ldc apart; may be NULL */
    size_t ldc;
    struct gemm_end end;
    size_t row, m; /* 0, 0: all of X */
};

/* gemm_exact(): X f32, rows ldx floats apart, at any address. */
void gemm_exact(struct gemm *gemm, const struct gemm_job *jobs, size_t n_jobs,
                const float *x, size_t ldx, size_t m);

/*
 * gemm_bf16(): X bf16, as gemm_to_bf16() or gemm_split() make it: rows ldx
 * elements apart, ldx >= gemm_ld_bf16(k), zeros from k to there.  'lo' is the
 * other half of a split X, or NULL; there x that bf16 rounds to infinity, or is
 * infinite, is NaN: infinity less infinity.
 */
size_t gemm_ld_bf16(size_t k); /* k rounded up to an odd multiple of 32 */
void gemm_to_bf16(struct gemm *gemm, uint16_t *to, const float *x, size_t ldx,
                  size_t m, size_t k);
void gemm_split(struct gemm *gemm, uint16_t *hi, uint16_t *lo, const float *x,
                size_t ldx, size_t m, size_t k);
/* gemm_bf16_is_native(): has the CPU an instruction for it?  Where it has none,
 * X in bf16, widened, and bf16 weights that are not packed are multiplied
 * faster by gemm_exact(). */
bool gemm_bf16_is_native(void);
void gemm_bf16(struct gemm *gemm, const struct gemm_job *jobs, size_t n_jobs,
               const uint16_t *x, const uint16_t *lo, size_t ldx, size_t m);

/*
 * Small bf16 products in the calling thread, for whoever keeps sums from one
 * to the next, as attention does: t [m, GEMM_PANEL] = (add ? t : 0) + x b.
 *   gemm_bf16_row()    a row of x: k floats rounded, and zeros to
 *                      gemm_ld_bf16(k)
 *   gemm_bf16_panels() b [n / 64, rounded up][gemm_bf16_panel_size(k)]: w in
 *                      panels of 64 columns, zeros for k outside
 *                      begin .. end - 1; w is by_k, n <= GEMM_PANELS_MAX_N
 *   gemm_bf16_block()  the sum of one panel; x's rows ldx apart, all 64-byte
 *                      aligned
 */
size_t gemm_bf16_panel_size(size_t k); /* elements */
void gemm_bf16_row(uint16_t *to, const float *x, size_t k);
#define GEMM_PANELS_MAX_N 2048
void gemm_bf16_panels(uint16_t *b, const struct gemm_matrix *w, size_t begin,
                      size_t end);
void gemm_bf16_block(float *t, const uint16_t *x, size_t ldx, const uint16_t *b,
                     size_t m, size_t k, bool add);

/*
 * gemm_int8(): X int8, as gemm_x_int8() makes it: rows ldx >= gemm_ld_int8(k)
 * apart; row i stands for x[i] * x_scale[i].
 * k <= GEMM_INT8_MAX_K, or sums could leave 32 bits.
 * gemm_to_int8(): scale = absmax / 127 of each row, nearest even; a row of
 * zeros has the scale 0; zeros from k to gemm_ld_int8(k).  For weights' rows.
 * gemm_x_int8(): the same of X, F32 as the machine has it or BF16 as files
 * have it, to what the instruction set reads: with AVX512-VNNI each byte is the
 * number + 128.
 */
#define GEMM_INT8_MAX_K 65536
size_t gemm_ld_int8(size_t k); /* k rounded up to an odd multiple of 64 */
void gemm_to_int8(struct gemm *gemm, int8_t *to, float *scale, const float *x,
                  size_t ldx, size_t m, size_t k);
void gemm_x_int8(struct gemm *gemm, int8_t *to, float *scale, const void *x,
                 enum dtype dtype, size_t ldx, size_t m, size_t k);
void gemm_int8(struct gemm *gemm, const struct gemm_job *jobs, size_t n_jobs,
               const int8_t *x, const float *x_scale, size_t ldx, size_t m);

#endif
