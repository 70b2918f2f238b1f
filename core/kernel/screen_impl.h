/* SPDX-License-Identifier: ISC */
/* What the files of screening share. */
#ifndef CORE_KERNEL_SCREEN_IMPL_H
#define CORE_KERNEL_SCREEN_IMPL_H

#include "core/kernel/screen.h"
#include "core/kernel/sums.h"

#define SCREEN_MAX_IN 65536

#define SCREEN_ROWS                                                          \
    512                /* of x at once: gemm_bf16() reads W once for as many \
                        */
#define SHADOW_ROWS 64 /* of x at once by a shadow, fewer of many latents */

/* What is known of the rows of W, and how far it is from them. */
struct screen_form {
    float *norm; /* [n] |F|, rounded up */
    float *lost; /* [n] |E - F|, rounded up */
    bool lossless, ready, usable;
    size_t waited; /* rows of batches left to the exact products so far */
    struct screen_counts counts;
};

struct screen {
    struct gemm_matrix w;
    const float *bias;
    struct screen_stored stored;
    bool waits;

    struct screen_form half; /* in bf16 */
    struct gemm_panels panels;

    struct screen_form shadow; /* int8 times a row's scale */
    const int8_t *int8;        /* [n, in] 'made', or stored ones */
    int8_t *made;
    float *scale; /* [n] */

    void *memory;
    size_t nbytes;
};

/* What is added to a product of a row of W, a |F| + b |E - F|, so that the
 * exact one is surely under it: of a row of x.  a 0: it cannot be proved. */
struct screen_slack {
    float a, b;
};

/* The slack of an x of that norm and 'in' columns, 'lost' being the norm of
 * what its own form lost; both are f32 sums' square roots. */
struct screen_slack screen_slack(size_t in, double norm, double lost);

/* What p is at most and at least, of a U over 0 that 'slack' was added to. */
static inline double
screen_most(float u)
{
    return (double)u * (1 + 0x1p-22);
}

static inline double
screen_least(float u, double slack)
{
    return (double)u * (1 - 0x1p-20) - slack * (2 + 0x1p-10);
}

/* The forms of all rows of W, and whether the bound holds for them. */
void screen_prepare_half(struct screen *s, struct gemm *gemm);
void screen_prepare_shadow(struct screen *s, struct gemm *gemm);

struct screen_work {
    struct gemm *gemm;
    size_t in, k, n, threads;
    struct topk *top;  /* [threads, SCREEN_ROWS] */
    uint64_t *keys;    /* [threads, SCREEN_ROWS, topk_cap(screen_kept(k))] */
    uint64_t *scratch; /* [threads, topk_cap(screen_kept(k))] */
    uint64_t *key;     /* [threads, topk_cap(k)] */
    uint32_t *idx;     /* [threads, 2, screen_kept(k)] */
    float *v;          /* [threads, 2, screen_kept(k)] */
    struct screen_slack *slack; /* [SCREEN_ROWS] */
    uint16_t *half;             /* [SCREEN_ROWS, gemm_ld_bf16(in)] x in bf16 */
    uint64_t *bits; /* [SCREEN_ROWS, screen_words(n)] may be over thresholds */

    size_t n_rows;  /* at most SHADOW_ROWS */
    int16_t *x;     /* [n_rows, in and zeros] x over x_scale */
    float *x_scale; /* [n_rows] */
    float *u;       /* [n_rows, screen_ld(n)] upper bounds */
    float *low;     /* [n_rows, screen_units(n)] lower bounds */
    uint32_t *near; /* [n_rows, screen_near(n)] which may be among the k */
    float *p;       /* [n_rows, screen_near(n)] their exact products */
    size_t *n_near; /* [n_rows] */

    void *memory;
    size_t nbytes;
};

/* More rows of W than are wanted, so that the bound's width seldom matters:
 * trained and random encoders need 1.4 k, 2.1 k for k = 256 of 32768. */
static inline size_t
screen_kept(size_t k)
{
    return 2 * k + 48;
}

/* Rows of U: not a multiple of what the caches' sets are apart. */
static inline size_t
screen_ld(size_t n)
{
    return (n + 63) / 64 * 64 + 16;
}

/* Whole units of so many rows of W: their bounds are made at once. */
#define SCREEN_UNIT 256
static inline size_t
screen_units(size_t n)
{
    return (n + SCREEN_UNIT - 1) / SCREEN_UNIT * SCREEN_UNIT;
}

/* Where more of n rows must be computed exactly, all may be. */
static inline size_t
screen_near(size_t n)
{
    return n / 4 + 1;
}

/* A bit for each of n rows of W. */
static inline size_t
screen_words(size_t n)
{
    return (n + 63) / 64;
}

/*
 * A row of W whose U is not over its threshold times this has no p over its
 * threshold.  By FMA or not, the difference U - SCREEN_UNDER t is rounded to a
 * number over 0 where p > t: p <= U (1 + 4 u), so that it is over t / 2^21, or
 * where that is less than the least f32, over this, as then U > t.
 */
#define SCREEN_UNDER (1 - 0x1p-20f)

/* What the threads share in one batch. */
struct screen_batch {
    struct screen_work *w;
    const struct screen *s;
    const struct vec_ops *ops;
    size_t k, ldx, n;
    const float *thresholds; /* NULL: the k largest */
    const float *x;
    struct screen_found found;
};

/* screen_rescore(): exact products of some rows of W by row i of x.
 * screen_finish(): of such p, biases to come, row i's k largest, or those over
 * their thresholds; 'idx' and 'p' may be what is found. */
void screen_rescore(const struct screen_batch *b, size_t i, const uint32_t *idx,
                    float *p, size_t n);
void screen_finish(struct screen_batch *b, size_t i, size_t thread,
                   const uint32_t *idx, float *p, size_t n);

/* All rows of a batch, of at most SCREEN_ROWS or SHADOW_ROWS. */
void screen_by_half(struct screen_batch *b);
void screen_by_shadow(struct screen_batch *b);

/* The slack of an x of which bf16 made 'half'. */
struct screen_slack screen_half_slack(const struct screen *s, const float *x,
                                      const uint16_t *half);

/* screen_open() and screen_rows() by what the CPU is fast at; here by what a
 * test wants. */
enum screen_way { SCREEN_NOT = 0, SCREEN_HALF = 1, SCREEN_SHADOW = 2 };
int screen_open_by(struct screen **screen, const struct gemm_matrix *w,
                   const float *bias, const struct screen_stored *stored,
                   unsigned ways, struct err *err);
void screen_rows_by(struct screen_work *w, struct screen *s,
                    enum screen_way way, size_t k, const float *thresholds,
                    const float *x, size_t ldx, size_t n,
                    const struct screen_found *found);

#endif
