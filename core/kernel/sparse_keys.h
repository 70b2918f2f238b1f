/*
 * Keys of top-k, one by one: see struct sparse_ops.  The reference, and what
 * an instruction set has that knows no quicker way.
 */
#ifndef CORE_KERNEL_SPARSE_KEYS_H
#define CORE_KERNEL_SPARSE_KEYS_H

#include "core/kernel/ops.h"

static inline size_t
keys_each(uint64_t *to, const float *x, uint64_t bits, uint32_t from)
{
    size_t n = 0;

    for (; bits; bits &= bits - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(bits);

        to[n++] = topk_key(x[i], from + i);
    }
    return n;
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
