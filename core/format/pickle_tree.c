/* SPDX-License-Identifier: ISC */
/* What a finished tree promises, and finding in it. */
#include <stdlib.h>
#include <string.h>

#include "core/compat.h"
#include "core/format/pth.h"

struct pth_value **
pth_items(const struct pth_value *v, size_t *n)
{
    switch (v->kind) {
    case PTH_TUPLE:
        *n = v->n;
        return v->u.items;
    case PTH_LIST:
    case PTH_SET:
    case PTH_DICT:
        *n = v->u.list->n;
        return v->u.list->items;
    default:
        *n = 0;
        return NULL;
    }
}

int
pickle_key_cmp(const struct pth_value *a, const struct pth_value *b)
{
    if ((a->kind == PTH_STR) != (b->kind == PTH_STR))
        return a->kind == PTH_STR ? -1 : 1;
    if (a->kind != PTH_STR)
        return (a->u.i > b->u.i) - (a->u.i < b->u.i);
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->u.s == b->u.s ? 0 : memcmp(a->u.s, b->u.s, a->n);
}

static struct pth_value **
pair(const struct pth_list *list, uint32_t i)
{
    return list->items + 2 * (size_t)i;
}

/* Of two pairs; equal keys stay in the order of the file. */
static int
by_key(const void *a, const void *b, void *list)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int c = pickle_key_cmp(*pair(list, x), *pair(list, y));

    return c ? c : (x > y) - (x < y);
}

/* The pairs with keys that pth_get() finds, or that may be equal, sorted. */
static void
sort_keys(struct pth_list *list)
{
    list->n_keys = 0;
    for (uint32_t i = 0; i < list->n / 2; i++) {
        const struct pth_value *key = *pair(list, i);

        if (key->kind == PTH_STR
                ? key->n <= PTH_MAX_KEY
                : key->kind == PTH_INT || key->kind == PTH_BOOL)
            list->order[list->n_keys++] = i;
    }
    sort_with(list->order, list->n_keys, sizeof(*list->order), by_key, list);
}

/* Of equal keys Python keeps the first, with the last one's item. */
static int
close_dict(struct pickle *p, struct pth_list *list)
{
    uint32_t n_kept = 0, n_pairs = 0;

    list->closed = true;
    list->order = pickle_alloc(p, list->n / 2, sizeof(*list->order));
    if (!list->order)
        return -1;
    sort_keys(list);
    for (uint32_t i = 0; i < list->n_keys; i++) {
        struct pth_value **second = pair(list, list->order[i]);
        struct pth_value **first =
            n_kept > 0 ? pair(list, list->order[n_kept - 1]) : NULL;

        if (first && pickle_key_cmp(*first, *second) == 0) {
            first[1] = second[1];
            second[0] = NULL; /* to be removed */
        } else {
            list->order[n_kept++] = list->order[i];
        }
    }
    if (n_kept == list->n_keys)
        return 0;
    for (uint32_t i = 0; i < list->n / 2; i++)
        if (*pair(list, i))
            memmove(pair(list, n_pairs++), pair(list, i),
                    2 * sizeof(*list->items));
    list->n = 2 * n_pairs;
    sort_keys(list);
    return 0;
}

/*
 * Walks every path from the root, as later recursion will.  A container within
 * itself is deeper than any limit, and lists that hold the one before
 * twice have more values than any limit.
 */
int
pickle_close(struct pickle *p, const struct pth_value *root)
{
    struct {
        struct pth_value **items;
        size_t n, i;
    } path[PICKLE_MAX_DEPTH] = { 0 };
    size_t depth = 1, n_values = 1;

    for (struct pth_list *list = p->lists; list; list = list->next)
        if (list->dict && !list->closed && close_dict(p, list) < 0)
            return -1;
    path[0].items = pth_items(root, &path[0].n);
    while (depth > 0) {
        size_t top = depth - 1, n;
        struct pth_value **items;

        if (path[top].i == path[top].n) {
            depth--;
            continue;
        }
        items = pth_items(path[top].items[path[top].i++], &n);
        if (++n_values > PICKLE_MAX_VALUES)
            return err_data(p->err, p->path,
                            "%sits tree has more values than %zu", p->where,
                            PICKLE_MAX_VALUES);
        if (n == 0)
            continue;
        if (depth == PICKLE_MAX_DEPTH)
            return err_data(p->err, p->path,
                            "%sa container within itself, or nested deeper "
                            "than %d",
                            p->where, PICKLE_MAX_DEPTH);
        path[depth].items = items;
        path[depth].n = n;
        path[depth++].i = 0;
    }
    return 0;
}

const struct pth_value *
pth_get(const struct pth_value *dict, const char *key)
{
    struct pth_value want = { .kind = PTH_STR, .u.s = key };
    size_t n = strlen(key), lo = 0, hi;

    if (dict->kind != PTH_DICT || n > PTH_MAX_KEY)
        return NULL;
    want.n = (uint32_t)n;
    hi = dict->u.list->n_keys;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        struct pth_value **found = pair(dict->u.list, dict->u.list->order[mid]);
        int c = pickle_key_cmp(&want, *found);

        if (c == 0)
            return found[1];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
