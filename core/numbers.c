/* SPDX-License-Identifier: ISC */
#include "core/numbers.h"

#include <stdbool.h>

int
range_parse(struct index_range *range, const char *s)
{
    size_t *to = &range->first;
    bool digits = false;

    *range = (struct index_range){ 0 };
    for (size_t i = 0; s[i]; i++) {
        if (s[i] == '-' && digits && to == &range->first) {
            to = &range->last;
            digits = false;
        } else if (s[i] < '0' || s[i] > '9' ||
                   __builtin_mul_overflow(*to, 10u, to) ||
                   __builtin_add_overflow(*to, (size_t)(s[i] - '0'), to)) {
            return -1;
        } else {
            digits = true;
        }
    }
    if (to == &range->first)
        range->last = range->first;
    return digits && range->first <= range->last ? 0 : -1;
}
