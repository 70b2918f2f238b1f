/* SPDX-License-Identifier: ISC */
/*
 * Permutations of 0 .. n - 1 that are a pure function of (seed, epoch, n): the
 * same on every machine, made whole or in parts.
 *
 * Element i has the words w(i, 0), w(i, 1), ..., where w(i, t) is word i of
 *     numpy.random.Philox(key=[seed, epoch], counter=[0, t, 0, 0])
 * and the permutation is the elements in the order of these words: by w(i, 0),
 * among equals by w(i, 1), and so on.  Independent and uniform words give every
 * one of the n! orders the same chance exactly: nothing is drawn from a range,
 * no two elements stay equal.  In numpy, but for equal first words (n^2 / 2^65
 * of all permutations have any):
 *     numpy.argsort(numpy.random.Philox(key=[seed, epoch]).random_raw(n))
 *
 * w(i, 0) is called the key.  As it is known without any other element's, the
 * elements can be split into ranges of keys first, and each range be ordered
 * where there is room for it: however it is split, the order is the same.
 */
#ifndef CORE_PERM_H
#define CORE_PERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/par.h"

struct perm {
    uint64_t seed, epoch;
};

/* perm_word() is w(i, t); perm_keys() are w(first .. first + n - 1, 0). */
uint64_t perm_word(const struct perm *perm, uint64_t i, uint64_t t);
void perm_keys(const struct perm *perm, uint64_t first, size_t n,
               uint64_t *keys);

/* An element and its key; 'at' is for the caller: where it is. */
struct perm_item {
    uint64_t key, at;
};

/* Which element is at 'at'; a NULL 'element' below: element 'at' is. */
typedef uint64_t perm_element_fn(const void *ctx, uint64_t at);

/* perm_before(): does a come before b?  Never for the same element. */
bool perm_before(const struct perm *perm, const struct perm_item *a,
                 const struct perm_item *b, perm_element_fn *element,
                 const void *ctx);

/* perm_sort() brings any of the elements, each once, into their order.  In
 * place; 'par' may be NULL; a radix sort that counts on keys being uniform. */
void perm_sort(const struct perm *perm, struct perm_item *items, size_t n,
               perm_element_fn *element, const void *ctx, struct par *par);

/*
 * perm_below() is draw number i of a whole number in [0, m), each with the
 * same chance exactly; m >= 1.  With x(t) word i of
 *     numpy.random.Philox(key=[seed, epoch], counter=[0, t, 1, 0])
 * it is x(t) m / 2^64, rounded down, for the first t = 0, 1, ... where x(t) m
 * mod 2^64 is not below 2^64 mod m (Lemire, ACM TOMACS 2019).
 */
uint64_t perm_below(const struct perm *perm, uint64_t i, uint64_t m);

#endif
