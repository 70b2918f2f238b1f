/* SPDX-License-Identifier: ISC */
/*
 * What the objects of one instruction set export, each one table a family,
 * and the functions that find the right one.  Private to core/kernel and its
 * tests: tools call the families' own headers.
 */
#ifndef CORE_KERNEL_OPS_H
#define CORE_KERNEL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/dtype.h"
#include "core/kernel/cpu.h"
#include "core/kernel/vec.h"
#include "core/kernel/weight.h"
#include "core/mem.h"

struct cvt_ops {
    void (*from_bf16)(float *to, const void *from, size_t n);
    void (*from_f16)(float *to, const void *from, size_t n);
    void (*to_bf16)(void *to, const float *from, size_t n);
    void (*to_f16)(void *to, const float *from, size_t n);
};

/* The exact class: this many columns add up in lanes, and the sums of such
 * parts in order, so that a part's weights can stay in the cache for all rows
 * of X while its lanes are not kept. */
#define EXACT_PART 1024

/* y[i][r] = sum over c of w[r][c] * x[i][c]: rows of w one after the other, at
 * any address, those of x and y 'ldx' and 'ldy' apart.  Each sum is made in an
 * order fixed by 'cols' alone: see gemm.h. */
struct gemv_args {
    float *y;
    const void *w;
    const float *x;
    size_t ldy, ldx; /* in floats */
    size_t rows, cols, n_x;
    enum dtype w_dtype;
    bool add; /* to y */
    size_t
        ahead; /* bytes of each row from what is read to what is prefetched */
};

/* y[i] = sum over c of w[idx[i]][c] * x[c], for one x: of some rows of w the
 * bits that gemv has. */
struct gemv_rows {
    float *y;
    const void *w;
    const uint32_t *idx; /* [n] */
    const float *x;
    size_t n, cols;
    enum dtype w_dtype;
};

/* lanes[l][i][r] += w[c][r] * x[i][c] for c = l, l + 8, .., in order: of w by
 * k, 'n_k' rows 'ldw' bytes apart, which belong to the lanes of one part. */
#define BY_K_X 4
struct gemv_by_k {
    float *lanes; /* [n_lanes, n_x, ld], 64-byte aligned, ld a multiple of 16:
                   * what is beyond 'cols' may be written */
    const char *w;
    const float *x;
    size_t ld, ldw, ldx;
    size_t n_lanes, n_x, n_k, cols; /* n_x <= BY_K_X */
    enum dtype w_dtype;
    size_t
        ahead; /* bytes of each row from what is read to what is prefetched */
};

struct gemv_ops {
    void (*gemv)(const struct gemv_args *a);
    void (*by_k)(const struct gemv_by_k *a);
    void (*rows)(const struct gemv_rows *a);
};

/* y[i][r] = sum over c of w[row + r][c] * x[i][c], in gemv's order, of weights
 * that have codes. */
struct code_gemv {
    float *y;
    const struct weight *w;
    const float *x;
    size_t ldy, ldx; /* in floats */
    size_t row, rows, cols, n_x;
    size_t ahead; /* as gemv's */
};

/* Of weights that have codes.
 *   read   as weight_read()
 *   gemv   false: this is for numbers that read() makes; NULL: always */
struct code_ops {
    void (*read)(float *to, const struct weight *w, size_t row, size_t col,
                 size_t n);
    bool (*gemv)(const struct code_gemv *a);
};

/* Numbers of a group, encoded as y = x * by within low .. high, rounded to a
 * whole number, or an E4M3, which stands for y * scale. */
struct encode_part {
    const float *x, *weight; /* [n]; weight: of squared errors, or NULL: 1 */
    size_t n;
    float scale, by, low, high;
    float plus; /* from a whole number to its code */
    bool f8;
};

/* Sums: of squared errors, of y * x, of y * y. */
struct encode_fit {
    float error, xy, yy;
};

/* What is summed or compared is added to what is there.
 *   range    of x and 0, not finite if a number is not
 *   measure  of whole numbers y; 'fits': xy and yy, too */
struct encode_error;
struct encode_ops {
    void (*range)(float *low, float *high, const float *x, size_t n);
    void (*measure)(struct encode_fit *f, const struct encode_part *p,
                    bool fits);
    void (*codes)(uint8_t *code, const struct encode_part *p,
                  struct encode_error *e);
};

/* t[i * ldt + r] = the sum over c of w[r][c] * x[i][c], rounded once: rows of
 * int8 one after the other, at any address, by rows of int16 that have zeros
 * up to a multiple of SHADOW_STEP columns.  No such sum, nor a part of one, may
 * leave int32. */
#define SHADOW_STEP 32
struct shadow_args {
    float *t;
    const int8_t *w;
    const int16_t *x;
    size_t ldt, ldx;
    size_t rows, cols, n_x;
    size_t ahead; /* as gemv's, for one row of x */
};

/* Of n such sums in u: u = u x_scale scale + bias + w, where w is a norm + b
 * lost; and low[j] is the largest u[i] shrink - twice w[i], i % width being j,
 * a NaN or not where one of these is.  width is a multiple of 16.
 * All f32; no rounding is promised. */
struct shadow_bound {
    float *u, *low;
    const float *scale, *bias, *norm, *lost;
    float x_scale, a, b, shrink, twice;
    size_t n, width;
};

struct shadow_ops {
    void (*products)(const struct shadow_args *a);
    void (*bound)(const struct shadow_bound *b);
};

struct weighted_sum;
struct sparse_sum;

struct sums_ops {
    void (*weighted)(const struct weighted_sum *s);
    void (*sparse)(const struct sparse_sum *s);
    /* bit i: x[i] is not within lo .. hi, or is a NaN; n <= 64 */
    uint64_t (*outside)(const float *x, size_t n, float lo, float hi);
    /* topk_key() of the x[i] whose bit is set, whose index is first + i;
     * returns how many.  to [64] */
    size_t (*keys)(uint64_t *to, const float *x, uint64_t bits, uint32_t first);
    /* how many are over lo; those over lo and under hi, in their order, to
     * 'to' [n], which may be 'key' */
    size_t (*over)(const uint64_t *key, size_t n, uint64_t lo);
    size_t (*between)(uint64_t *to, const uint64_t *key, size_t n, uint64_t lo,
                      uint64_t hi);
};

struct softmax_block;

struct vec_ops {
    float (*dot)(const float *a, const float *b, size_t n);
    void (*axpy)(float *y, float s, const float *x, size_t n);
    void (*axpy_diff)(float *y, float s, const float *x, const float *b,
                      size_t n);
    void (*mul_add)(float *y, const float *a, const float *b, size_t n);
    void (*delta)(const struct vec_delta *d);
    void (*add)(float *y, const float *x, size_t n);
    void (*scale)(float *y, float s, size_t n);
    float (*max)(const float *x, size_t n, bool *nan); /* of what is no NaN */
    void (*scale_mul)(float *y, const float *x, float s, const float *w,
                      size_t n); /* y[i] = x[i] * s * w[i] */
    float (*exp_sum)(float *x, float max, size_t n);
    void (*softmax_block)(const struct softmax_block *b);
    void (*act[N_ACTS])(float *gate, const float *up, size_t n);
    void (*act_back[N_ACTS])(float *h, float *gate, float *up, const float *dh,
                             size_t n);
    void (*rope)(float *x, const float *c, const float *s, size_t half);
    void (*softcap)(float *x, float cap, size_t n);
};

/* A block of exact sums, which may be a part of k: see gemm_exact.c. */
struct gemm_block {
    float *t; /* t[i * ldt + r]: row i of x by row r of w; added if 'add'.
               * Sums of up to the next multiple of 'group' rows are written */
    size_t ldt;
    float *w;         /* [rows / group][k / 8][group][8]: one stream for the
                       * prefetcher; 64-byte aligned, zeros from k on.  By k:
                       * [rows / group][8][k / 8][group], groups of 16 at the
                       * end */
    const void *from; /* w is filled from here: rows 'ld' bytes apart of
                       * w_dtype, or, by k, columns */
    size_t ld;
    enum dtype w_dtype;
    size_t rows;
    const float *x;
    size_t ldx, m, k; /* k <= EXACT_PART: a sum ends with its part */
    bool add;
};

#define GEMM_X 12 /* a multiple of the rows of x that kernels take at once */

/*
 * The inner loops of gemm.h, in three tables: of each, an instruction set has
 * all or none.  b is one panel's part of k, t [m][64].
 *   exact        see struct gemm_block; 'group' of its rows are side by side;
 *                exact_by_k, of weights by k
 *   transpose    to[i][r] = word i of row r: n words of 'rows', ld bytes apart
 *   interleave   to[i][j] = element j of rows 2 i and 2 i + 1, bf16, as one
 *                word: n pairs of rows of 'cols', ld bytes apart
 *   rows, cols   multiples of 16; the others of to's 64 stay as they are
 *   rescale      c[i][j] = s[i][j] * x_scale[i] * w_scale[j], rows of c ldc
 *                apart, of s 64
 *   stream       c is written by streaming stores, which any thread sees when
 *                the call returns.  c 64-byte aligned, ldc a multiple of 16,
 *                t 16-byte aligned.
 *   absmax       the largest |x|; NaN if one is NaN.  x: F32 as the machine
 *                has it or BF16 as files have it
 *   quantize     to[i] = x[i] * by, to nearest even, within -127 .. 127; x as
 *                of absmax
 *   rest         to[i] = x[i] - hi[i], which is exact if hi is x rounded
 *   sums         sum[j] = 128 * the sum over k of b's column j
 */
struct gemm_ops {
    void (*exact)(const struct gemm_block *b);
    size_t group;
    void (*exact_by_k)(const struct gemm_block *b);
    size_t group_by_k;
    void (*transpose)(uint32_t *to, const void *from, size_t ld, size_t rows,
                      size_t n);
    void (*interleave)(uint32_t *to, const void *from, size_t ld, size_t cols,
                       size_t n);
    void (*rescale)(float *c, size_t ldc, const int32_t *s,
                    const float *x_scale, const float *w_scale, size_t m,
                    size_t n, bool stream);
    float (*absmax)(const void *x, enum dtype dtype, size_t n);
    void (*quantize)(int8_t *to, const void *x, enum dtype dtype, float by,
                     size_t n);
    void (*rest)(float *to, const float *x, const uint16_t *hi, size_t n);
    void (*sums)(int32_t *sum, const int8_t *b, size_t k);
};

/* How sums leave for C: by streaming stores, or added to what it holds. */
enum gemm_to { TO_STORE, TO_STREAM, TO_ADD };

/* What a thread will read after this product, for its caches: 64 rows of W of
 * the same k, or a panel in as many parts; 'ld' bytes apart.  NULL: unknown. */
struct gemm_ahead {
    const void *rows;
    size_t ld;
};

/*
 *   product      t = (add ? t : 0) + a b.  a: rows lda elements apart; k: a
 *                multiple of 32; n: how many of the 64 columns are wanted; of
 *                t the others hold what they held, or their sums
 *   product_to   the same, to c [m][64], rows ldc apart, as 'how' says, and t
 *                is scratch (n is 64 then), or in t if c is NULL; with lo, the
 *                other half of a split a, (a + lo) b.  NULL: not available
 *   tile         rows of t that are done at once, or 0: then a call prepares
 *                what pays only over many rows
 */
struct gemm_bf16_ops {
    void (*product)(float *t, const uint16_t *a, size_t lda, const uint16_t *b,
                    size_t m, size_t n, size_t k, bool add);
    void (*product_to)(float *t, float *c, size_t ldc, enum gemm_to how,
                       const uint16_t *a, const uint16_t *lo, size_t lda,
                       const uint16_t *b, size_t m, size_t n, size_t k,
                       bool add, const struct gemm_ahead *ahead);
    size_t tile;
};

/*
 *   product      as of bf16, k a multiple of 64.  comp [64]: 128 * the sums
 *                over k of b's columns, for kernels that read a + 128
 *   product_to   the same, rescaled (see gemm_ops) into c [m][64], rows ldc
 *                apart; t is scratch.  NULL: not available
 *   ready        makes n int8 of a (a multiple of 64) what product reads; NULL:
 *                they are it
 *   tile         as of bf16
 */
struct gemm_int8_ops {
    void (*product)(int32_t *t, const int8_t *a, size_t lda, const int8_t *b,
                    const int32_t *comp, size_t m, size_t k, bool add);
    void (*product_to)(int32_t *t, float *c, size_t ldc, bool stream,
                       const int8_t *a, size_t lda, const int8_t *b,
                       const float *x_scale, const float *w_scale, size_t m,
                       size_t k, bool add, const struct gemm_ahead *ahead);
    void (*ready)(int8_t *x, size_t n);
    size_t tile;
};

/* TABLE(vec) is vec_avx2 where FAMILY_simd.c is compiled with -DSIMD=avx2. */
#define TABLE_OF(family, isa)   family##_##isa
#define TABLE_NAME(family, isa) TABLE_OF(family, isa)
#define TABLE(family)           TABLE_NAME(family, SIMD)

/* The table of the best level up to 'isa' that has one and that this compiler
 * could build. */
const struct code_ops *code_ops_of(enum isa isa);
const struct cvt_ops *cvt_ops_of(enum isa isa);
const struct encode_ops *encode_ops_of(enum isa isa);
const struct gemm_ops *gemm_ops_of(enum isa isa);
const struct gemm_bf16_ops *gemm_bf16_ops_of(enum isa isa);
const struct gemm_int8_ops *gemm_int8_ops_of(enum isa isa);
const struct gemv_ops *gemv_ops_of(enum isa isa);
const struct shadow_ops *shadow_ops_of(enum isa isa);
const struct sums_ops *sums_ops_of(enum isa isa);
const struct vec_ops *vec_ops_of(enum isa isa);

/* kernel(args, dtype) of the weights' type, for a function that is inlined once
 * for each of them. */
#define BY_DTYPE(kernel, args)              \
    do {                                    \
        if ((args)->w_dtype == DT_BF16)     \
            kernel(args, DT_BF16);          \
        else if ((args)->w_dtype == DT_F16) \
            kernel(args, DT_F16);           \
        else                                \
            kernel(args, DT_F32);           \
    } while (0)

#define INLINE static inline __attribute__((always_inline, unused))

/* Bytes of a weight that BY_DTYPE() knows. */
INLINE size_t
weight_nbytes(enum dtype dtype)
{
    return dtype == DT_F32 ? 4 : 2;
}

/* Where a number is stored; of two in a byte, an even column's. */
static inline size_t
weight_bits(const struct weight *w)
{
    return !w->code ? dtype_table[w->dtype].bits
           : w->code->kind == CODE_U4 || w->code->kind == CODE_F4 ? 4
                                                                  : 8;
}

static inline const void *
weight_at(const struct weight *w, size_t row, size_t col)
{
    return (const char *)w->data +
           ((w->row + row) * w->ld + w->col + col) * weight_bits(w) / 8;
}

/* topk's key of a number that is not negative: of two keys that of the larger
 * number is larger, of equal numbers that of the lower index.  Under 2^63. */
static inline uint64_t
topk_key(float v, uint32_t i)
{
    return (uint64_t)f32_bits(v) << 32 | (uint32_t)~i;
}

/* Element i of little-endian 16 or 32-bit data at any address; not le16(),
 * whose bytes keep compilers from vectorizing. */
static inline uint16_t
load16(const void *p, size_t i)
{
    uint16_t v;

    memcpy(&v, (const char *)p + 2 * i, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap16(v);
#endif
    return v;
}

static inline float
load_f32(const void *p, size_t i)
{
    uint32_t u;
    float f;

    memcpy(&u, (const char *)p + 4 * i, sizeof(u));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    u = __builtin_bswap32(u);
#endif
    memcpy(&f, &u, sizeof(f));
    return f;
}

#endif
