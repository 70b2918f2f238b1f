/* SPDX-License-Identifier: ISC */
/*
 * Keys of top-k, one by one: see struct sums_ops.  The reference, and what an
 * instruction set has that knows no quicker way.
 */
#ifndef CORE_KERNEL_KEYS_H
#define CORE_KERNEL_KEYS_H

#include "core/kernel/ops.h"

/* In fours, whose last ones may be none: how many there are is a branch that
 * no predictor knows. */
static inline size_t
keys_each(uint64_t *to, const float *x, uint64_t bits, uint32_t from)
{
    const uint64_t all = bits;
    size_t n = 0;

    while (bits) {
        for (size_t k = 0; k < 4; k++) {
            uint32_t i = (uint32_t)__builtin_ctzll(bits ? bits : all);

            to[n++] = topk_key(x[i], from + i);
            bits &= bits - 1;
        }
    }
    return (size_t)__builtin_popcountll(all);
}

static inline size_t
keys_over(const uint64_t *key, size_t n, uint64_t lo)
{
    size_t n_over = 0;

    for (size_t i = 0; i < n; i++)
        n_over += key[i] > lo;
    return n_over;
}

static inline size_t
keys_between(uint64_t *to, const uint64_t *key, size_t n, uint64_t lo,
             uint64_t hi)
{
    size_t n_kept = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t k = key[i];

        to[n_kept] = k;
        n_kept += k > lo && k < hi;
    }
    return n_kept;
}

#endif
