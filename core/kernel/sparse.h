/*
 * Weighted sums of a few rows of a table, and which rows: what a layer that
 * runs on a lookup table does instead of a product.
 */
#ifndef CORE_KERNEL_SPARSE_H
#define CORE_KERNEL_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

/*
 * sparse_sum() computes y[c] += sum over i of v[i] * w[idx[i]][c].
 *   w    BF16, F16 or F32 ('w_dtype'), little-endian, rows 'ldw' elements
 *        apart, at any address
 *   idx  [n] rows of w, in the order of the sum
 *   v    [n] f32
 *   y    [cols] f32; must not overlap v
 * Each y[c] is one f32 accumulator, i ascending (FMA, where the instruction
 * set has it): its bits depend on nothing but its own numbers.  Runs in the
 * calling thread.  Cannot fail.
 */
struct sparse {
    float *y;
    const void *w;
    const uint32_t *idx;
    const float *v;
    size_t ldw, cols, n;
    enum dtype w_dtype;
};

void sparse_sum(const struct sparse *s);

/*
 * The k largest of many numbers that are over 0, of equals those with lower
 * indices; exact, however the numbers come.  Numbers at or under what is
 * surely not among them are passed over by a compare; the others are kept
 * until there are 4 k, then a selection leaves k.
 */
struct sparse_ops;
struct topk {
    const struct sparse_ops *ops;
    uint64_t *key;  /* [topk_cap(k)] of the caller's */
    uint64_t *room; /* as many: scratch, which others may use in between */
    size_t k, n;
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
 * topk_magnitudes() gives the indices of the k largest |x[i] * by[i]|,
 * ascending, of equals the lower; 'by' may be NULL (1).  k <= n; a NaN counts
 * as largest.  idx [k]; key [2 n] is scratch.
 */
void topk_magnitudes(uint32_t *idx, size_t k, const float *x, const float *by,
                     size_t n, uint64_t *key);

#endif
