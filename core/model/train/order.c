/* SPDX-License-Identifier: ISC */
#include "core/model/train/order.h"

#include <stdlib.h>

#include "core/mem.h"

uint64_t
train_order_at(struct train_order *o, uint64_t n, uint64_t epoch, uint64_t i)
{
    struct perm perm = { o->seed, epoch };

    if (!o->shuffle)
        return i;
    if (!o->items || o->epoch != epoch) {
        o->items = xrealloc(o->items, (size_t)n, sizeof(*o->items));
        for (uint64_t k = 0; k < n; k++)
            o->items[k] = (struct perm_item){ perm_word(&perm, k, 0), k };
        perm_sort(&perm, o->items, (size_t)n, NULL, NULL, NULL);
        o->epoch = epoch;
    }
    return o->items[i].at;
}

void
train_order_close(struct train_order *o)
{
    free(o->items);
    *o = (struct train_order){ 0 };
}
