/* SPDX-License-Identifier: ISC */
/* In which order each epoch of a training run has its items. */
#ifndef CORE_MODEL_TRAIN_ORDER_H
#define CORE_MODEL_TRAIN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/perm.h"

/* 0 .. n - 1 as they are, or with 'shuffle' in the permutation of core/perm for
 * (seed, epoch); starts with these and zeros, ends with train_order_close(). */
struct train_order {
    uint64_t seed;
    bool shuffle;
    struct perm_item *items; /* private; of 'epoch' */
    uint64_t epoch;
};

/* train_order_at() is item i of an epoch of n, always the same n. */
uint64_t train_order_at(struct train_order *order, uint64_t n, uint64_t epoch,
                        uint64_t i);
void train_order_close(struct train_order *order);

#endif
