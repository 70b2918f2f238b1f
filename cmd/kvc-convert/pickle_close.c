#include "cmd/kvc-convert/pickle_close.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/kvc-convert/pth.h"

/* Items of a container; 0 for all else. */
static struct pth_value **
children(const struct pth_value *v, size_t *n)
{
    if (v->kind == PK_TUPLE) {
        *n = v->n;
        return v->u.items;
    }
    *n = v->kind == PK_LIST || v->kind == PK_SET || v->kind == PK_DICT
             ? v->u.list->n
             : 0;
    return *n ? v->u.list->items : NULL;
}

static int
bad(struct pickle *p, const char *what, size_t n)
{
    return err_set(p->err, EX_DATAERR, "%s: %s%s %zu", p->path, p->where, what,
                   n);
}

/*
 * Walks every way from the root, as whoever recurses later will.  A container
 * within itself is deeper than any limit, and lists that hold the one before
 * twice have more values than any limit.
 */
static int
walk(struct pickle *p, const struct pth_value *root)
{
    struct {
        struct pth_value **items;
        size_t n, i;
    } way[PTH_MAX_DEPTH];
    size_t depth = 1, n_values = 1;

    way[0].items = children(root, &way[0].n);
    way[0].i = 0;
    while (depth > 0) {
        size_t top = depth - 1, n = 0;
        struct pth_value **items;

        if (way[top].i == way[top].n) {
            depth--;
            continue;
        }
        items = children(way[top].items[way[top].i++], &n);
        if (++n_values > PTH_MAX_VALUES)
            return bad(p, "its tree has more values than", PTH_MAX_VALUES);
        if (n == 0)
            continue;
        if (depth == PTH_MAX_DEPTH)
            return bad(p, "a container within itself, or nested deeper than",
                       PTH_MAX_DEPTH);
        way[depth].items = items;
        way[depth].n = n;
        way[depth++].i = 0;
    }
    return 0;
}

/* Short strings come first, then integers, of which True is one. */
static int
key_cmp(const struct pth_value *a, const struct pth_value *b)
{
    if ((a->kind == PK_STR) != (b->kind == PK_STR))
        return a->kind == PK_STR ? -1 : 1;
    if (a->kind != PK_STR)
        return (a->u.i > b->u.i) - (a->u.i < b->u.i);
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->u.s == b->u.s ? 0 : memcmp(a->u.s, b->u.s, a->n);
}

static struct pth_value **
pair(const struct pickle_list *list, uint32_t i)
{
    return list->items + 2 * (size_t)i;
}

/* Of two pairs; equal keys stay in the order of the file. */
static int
by_key(const void *a, const void *b, void *list)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int c = key_cmp(*pair(list, x), *pair(list, y));

    return c ? c : (x > y) - (x < y);
}

/*
 * Of equal keys Python keeps the first, with the last one's item.  A pair that
 * goes is marked by a NULL.  Returns how many are left.
 */
static uint32_t
drop_equal(struct pickle_list *list, uint32_t *order, uint32_t n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct pth_value **second = pair(list, order[i]);
        struct pth_value **first =
            kept > 0 ? pair(list, order[kept - 1]) : NULL;

        if (first && key_cmp(*first, *second) == 0) {
            first[1] = second[1];
            second[0] = NULL;
        } else {
            order[kept++] = order[i];
        }
    }
    return kept;
}

/* Closes up the pairs that are left. */
static void
squeeze(struct pickle_list *list)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < list->n / 2; i++) {
        if (!*pair(list, i))
            continue;
        memmove(pair(list, n), pair(list, i), 2 * sizeof(*list->items));
        n++;
    }
    list->n = 2 * n;
}

static bool
is_key(const struct pth_value *v)
{
    return v->kind == PK_STR ? v->n <= PICKLE_MAX_KEY
                             : v->kind == PK_INT || v->kind == PK_BOOL;
}

/* The pairs with keys of these kinds, sorted. */
static uint32_t
sort_keys(struct pickle_list *list)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < list->n / 2; i++)
        if (is_key(*pair(list, i)))
            list->order[n++] = i;
    qsort_r(list->order, n, sizeof(*list->order), by_key, list);
    return n;
}

static int
close_dict(struct pickle *p, struct pickle_list *list)
{
    uint32_t n;

    list->closed = true;
    list->order = pickle_alloc(p, list->n / 2, sizeof(*list->order));
    if (!list->order)
        return -1;
    n = sort_keys(list);
    list->n_keys = drop_equal(list, list->order, n);
    if (list->n_keys < n) {
        squeeze(list);
        sort_keys(list);
    }
    return 0;
}

int
pickle_close(struct pickle *p, const struct pth_value *root)
{
    for (struct pickle_list *list = p->lists; list; list = list->next)
        if (list->dict && !list->closed && close_dict(p, list) < 0)
            return -1;
    return walk(p, root);
}

const struct pth_value *
pickle_find(const struct pickle_list *dict, const struct pth_value *key)
{
    size_t lo = 0, hi = dict->n_keys;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        struct pth_value **found = pair(dict, dict->order[mid]);
        int c = key_cmp(key, *found);

        if (c == 0)
            return found[1];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
