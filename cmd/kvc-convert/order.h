/*
 * Which MLPs a file has, and in which order: names are
 * PREFIX.LAYER.SLOT.weight.
 */
#ifndef KVC_CONVERT_ORDER_H
#define KVC_CONVERT_ORDER_H

#include <stddef.h>

#include "core/format/kvc.h"

#define MAX_PREFIXES 16

#define DEFAULT_PREFIXES "compress_tk,compress_tv,compress_ik,compress_iv"
#define DEFAULT_SLOTS    "0,3,6"

struct order {
    char *prefixes[MAX_PREFIXES];
    size_t n_prefixes;
    char *slots[KVC_SLOTS];
};

/* The list is "a,b": -1 with 'err' set (TU_USAGE). */
int order_prefixes(struct order *order, const char *list, struct err *err);
int order_slots(struct order *order, const char *list, struct err *err);
void order_free(struct order *order);

#endif
