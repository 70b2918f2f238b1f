/* SPDX-License-Identifier: ISC */
#include "cmd/st-inspect/fold.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/str.h"

/* Components that may be folded; a hostile name can have 50 million. */
#define MAX_COMPONENTS 64

/*
 * Names are folded one component at a time, the last one first: those that
 * agree in everything else become one, with the set of numbers in its place.
 * Each step is exact, so a set of names that is not a product (layers of two
 * kinds) gives more rows.
 */
struct item {
    struct fold_row row;
    size_t first; /* place in the selection, of the first one */
    size_t from;  /* the component in question: name[from, to) */
    size_t to;
    uint64_t number; /* its value */
};

/* Finds component 'c' of a name, counted from 0; false if it is not a number as
 * Python prints it, of up to nine digits. */
static bool
find_number(struct item *it, size_t c)
{
    const char *name = it->row.name;
    size_t n = it->row.name_n, i = 0;

    for (; c > 0; c--) {
        const char *dot = memchr(name + i, '.', n - i);

        if (!dot)
            return false;
        i = (size_t)(dot - name) + 1;
    }
    it->from = i;
    it->number = 0;
    for (; i < n && name[i] >= '0' && name[i] <= '9'; i++)
        it->number = it->number * 10 + (uint64_t)(name[i] - '0');
    it->to = i;
    if (i == it->from || i - it->from > 9 || (i < n && name[i] != '.'))
        return false;
    return name[it->from] != '0' || i - it->from == 1;
}

static int
compare_bytes(const char *a, size_t a_n, const char *b, size_t b_n)
{
    return a_n != b_n ? a_n < b_n ? -1 : 1 : memcmp(a, b, a_n);
}

/* Compares all but the number itself: 0 if the two may become one row. */
static int
compare_rest(const struct item *a, const struct item *b)
{
    const struct st_tensor *s = a->row.t->t, *t = b->row.t->t;
    int c = compare_bytes(a->row.name, a->from, b->row.name, b->from);

    if (!c)
        c = compare_bytes(a->row.name + a->to, a->row.name_n - a->to,
                          b->row.name + b->to, b->row.name_n - b->to);
    if (!c)
        c = (int)s->dtype - (int)t->dtype;
    if (!c && s->n_dims != t->n_dims)
        c = s->n_dims < t->n_dims ? -1 : 1;
    if (!c && s->n_dims)
        c = memcmp(s->shape, t->shape, s->n_dims * sizeof(*s->shape));
    return c;
}

static int
by_rest(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    int c = compare_rest(a, b);

    return c ? c : (a->number > b->number) - (a->number < b->number);
}

static int
by_first(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;

    return (a->first > b->first) - (a->first < b->first);
}

static void
free_name(const struct fold_row *r)
{
    if (r->name != r->t->t->name)
        free((char *)(uintptr_t)r->name);
}

/* items[0, n) become items[0]. */
static void
join_items(struct item *items, size_t n)
{
    struct item one = items[0];
    struct str name = { 0 };

    str_add(&name, one.row.name, one.from);
    str_addc(&name, '{');
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n; end++)
            if (items[end].number != items[end - 1].number + 1)
                break;
        str_addf(&name, "%s%llu", i ? "," : "",
                 (unsigned long long)items[i].number);
        if (end - i > 1)
            str_addf(&name, "..%llu",
                     (unsigned long long)items[end - 1].number);
    }
    str_addc(&name, '}');
    str_add(&name, one.row.name + one.to, one.row.name_n - one.to);
    for (size_t i = 0; i < n; i++) {
        one.row.count += i ? items[i].row.count : 0;
        if (items[i].first < one.first) {
            one.first = items[i].first;
            one.row.t = items[i].row.t;
        }
        free_name(&items[i].row);
    }
    one.row.name = name.s;
    one.row.name_n = name.n;
    items[0] = one;
}

/* One step, over component 'c'; returns how many items are left. */
static size_t
fold_component(struct item *items, size_t n, size_t c)
{
    size_t n_numbers = 0, left = 0;

    for (size_t i = 0; i < n; i++) {
        struct item *it = &items[i], swap = *it;

        if (find_number(&swap, c)) {
            *it = items[n_numbers];
            items[n_numbers++] = swap;
        }
    }
    qsort(items, n_numbers, sizeof(*items), by_rest);
    for (size_t i = 0, end; i < n_numbers; i = end) {
        for (end = i + 1; end < n_numbers; end++)
            if (compare_rest(&items[i], &items[end]) != 0)
                break;
        if (end - i > 1)
            join_items(items + i, end - i);
        items[left++] = items[i];
    }
    memmove(items + left, items + n_numbers, (n - n_numbers) * sizeof(*items));
    return left + n - n_numbers;
}

int
fold(struct folded *folded, const struct selection *sel, bool join,
     struct err *err)
{
    struct item *items = mem_try(sel->n, sizeof(*items), sel->dir.path, err);
    size_t n = sel->n, depth = 0;

    *folded = (struct folded){ 0 };
    if (!items)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *t = sel->t[i]->t;
        const char *p = t->name, *end = p + t->name_n;
        size_t c = 1;

        items[i] = (struct item){ .row = { sel->t[i], t->name, t->name_n, 1 },
                                  .first = i };
        for (; join && c < MAX_COMPONENTS; c++, p++)
            if (!(p = memchr(p, '.', (size_t)(end - p))))
                break;
        depth = join && c > depth ? c : depth;
    }
    while (depth-- > 0)
        n = fold_component(items, n, depth);
    if (join)
        qsort(items, n, sizeof(*items), by_first);
    folded->rows = mem_try(n, sizeof(*folded->rows), sel->dir.path, err);
    for (; folded->rows && folded->n < n; folded->n++)
        folded->rows[folded->n] = items[folded->n].row;
    for (size_t i = folded->n; i < n; i++)
        free_name(&items[i].row);
    free(items);
    return folded->rows ? 0 : -1;
}

void
fold_free(struct folded *folded)
{
    for (size_t i = 0; i < folded->n; i++)
        free_name(&folded->rows[i]);
    free(folded->rows);
}
