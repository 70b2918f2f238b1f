/* SPDX-License-Identifier: ISC */
/*
 * Weighted sums of rows: of all rows of a matrix, as attention's of its values
 * (and of its keys, transposed); of a few rows of a lookup table; and which
 * few.
 */
#ifndef CORE_KERNEL_SUMS_H
#define CORE_KERNEL_SUMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

/*
 * weighted_sum() computes y[i][c] = sum over r of p[i][r] * w[r][c], and what y
 * held before if 'add'.
 *   w  [rows, cols]  BF16, F16 or F32 ('w_dtype'), little-endian, rows 'ldw'
 *                    elements apart, at any address; 'native': F32 in the
 *                    machine's order, as activations are
 *   p  [n, rows]     f32, rows 'ldp' floats apart
 *   y  [n, cols]     f32, rows 'ldy' floats apart; must not overlap p
 *   next             what the caller reads next, as many bytes as [rows, cols]:
 *                    prefetched meanwhile; NULL: unknown
 *
 * sparse_sum() computes y[c] += sum over i of v[i] * w[idx[i]][c].
 *   w    as above
 *   idx  [n] rows of w, in the order of the sum
 *   v    [n] f32
 *   y    [cols] f32; must not overlap v
 *
 * In both a sum is one f32 accumulator, r or i ascending, by FMA: its
 * bits depend on nothing but its own numbers.
 * They run in the calling thread and cannot fail.
 */
struct weighted_sum {
    float *y;
    const void *w, *next;
    const float *p;
    size_t ldy, ldw, ldp;
    size_t rows, cols, n;
    enum dtype w_dtype;
    bool add, native;
};

struct sparse_sum {
    float *y;
    const void *w;
    const uint32_t *idx;
    const float *v;
    size_t ldw, cols, n;
    enum dtype w_dtype;
};

void weighted_sum(const struct weighted_sum *s);
void sparse_sum(const struct sparse_sum *s);

/*
 * The k largest of many numbers that are over 0, of equals those with lower
 * indices; exact, however the numbers come.  Numbers at or under what is
 * surely not among them are skipped by a comparison; the others are kept until
 * there are 4 k (of several threads 5/4 k: there k is large, and room costs
 * more than selections do), then a selection leaves k.
 */
struct sums_ops;
struct topk {
    const struct sums_ops *ops;
    uint64_t *key;  /* [cap] of the caller's */
    uint64_t *room; /* as many: scratch, which others may use between calls */
    size_t k, n, cap;
    float below; /* a number at or under it is not among them */
    bool bad;    /* one was infinite, or a NaN */
};

/* topk_start() begins with none; key and room have topk_cap(k) elements. */
size_t topk_cap(size_t k);
void topk_start(struct topk *t, uint64_t *key, uint64_t *room, size_t k);

/* topk_put() offers x[0 .. n), whose indices are first, first + 1, .. */
void topk_put(struct topk *t, const float *x, uint32_t first, size_t n);

/* topk_add() offers what another one of the same k has kept. */
void topk_add(struct topk *t, const struct topk *other);

/* topk_take() writes the k, or fewer, in ascending order of their indices and
 * returns how many.  idx, v [k]. */
size_t topk_take(struct topk *t, uint32_t *idx, float *v);

/*
 * select_over() writes the x[i] that are over their thresholds, and their
 * indices, ascending; returns how many.  *bad is set where one of x is NaN or
 * infinite, over it or not.  idx, v [n]; v may be x.
 */
size_t select_over(uint32_t *idx, float *v, const float *x,
                   const float *threshold, size_t n, bool *bad);

/*
 * One top-k of several threads, each of which collects TOPK_OFFERS before it
 * waits for the others.  topk_shared_start() begins with none (key and room
 * have topk_shared_cap(k) elements), and topk_shared_close() ends; topk_offer()
 * offers as topk_put() does; topk_hand_over() hands over what a thread has
 * left.  'shared->top' is read by topk_take() when all have.
 */
#define TOPK_OFFERS ((size_t)4096)
struct topk_shared {
    struct topk top;
    _Atomic float below; /* top.below of a while ago */
    pthread_mutex_t lock;
};
struct topk_offers {
    uint64_t *key; /* [TOPK_OFFERS] of the caller's */
    size_t n;
    bool bad;
};
size_t topk_shared_cap(size_t k);
void topk_shared_start(struct topk_shared *s, uint64_t *key, uint64_t *room,
                       size_t k);
void topk_shared_close(struct topk_shared *s);
void topk_offer(struct topk_shared *s, struct topk_offers *o, const float *x,
                uint32_t first, size_t n);
void topk_hand_over(struct topk_shared *s, struct topk_offers *o);

/*
 * topk_magnitudes() gives the indices of the k largest |x[i] * by[i]|,
 * ascending, of equals the lower; 'by' may be NULL (1).  k <= n; a NaN counts
 * as largest.  idx [k]; key [2 n] is scratch.
 */
void topk_magnitudes(uint32_t *idx, size_t k, const float *x, const float *by,
                     size_t n, uint64_t *key);

#endif
