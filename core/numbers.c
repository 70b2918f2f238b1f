/* SPDX-License-Identifier: ISC */
#include "core/numbers.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

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

/* One item of a list. */
static int
add_range(struct numbers *l, const char *name, const char *item,
          const char *noun, size_t end, struct err *err)
{
    struct index_range r;

    if (range_parse(&r, item) < 0)
        return err_set(err, TU_USAGE,
                       "%s: \"%s\" is not a number or a range (as in "
                       "3,17,100-120)",
                       name, item);
    if (r.last >= end)
        return err_set(err, TU_USAGE, "%s: %s %zu, but there %s %zu (from 0)",
                       name, noun, r.last, end == 1 ? "is" : "are", end);
    l->v = xrealloc(l->v, l->n + (r.last - r.first + 1), sizeof(*l->v));
    for (size_t i = r.first; i <= r.last; i++) {
        unsigned char bit = (unsigned char)(1 << i % 8);

        if (l->has[i / 8] & bit)
            return err_set(err, TU_USAGE, "%s: %s %zu is there twice", name,
                           noun, i);
        l->has[i / 8] |= bit;
        l->v[l->n++] = (uint32_t)i;
    }
    return 0;
}

int
numbers_add(struct numbers *l, const char *name, const char *text,
            const char *noun, size_t end, struct err *err)
{
    char all[32], *list, *next, *item;
    int rc = 0;

    snprintf(all, sizeof(all), "0-%zu", end - 1);
    next = list = xstrdup(text ? text : all);
    if (!l->has)
        l->has = xcalloc(end / 8 + 1, 1);
    while (rc == 0 && (item = strsep(&next, ",")))
        rc = add_range(l, name, item, noun, end, err);
    free(list);
    return rc;
}

static int
ascending(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

void
numbers_sort(struct numbers *l)
{
    if (l->n)
        qsort(l->v, l->n, sizeof(*l->v), ascending);
}

void
numbers_free(struct numbers *l)
{
    free(l->v);
    free(l->has);
    *l = (struct numbers){ 0 };
}
