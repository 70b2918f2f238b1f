/* SPDX-License-Identifier: ISC */
#include "core/text/template_sequence.h"

#include <string.h>

#include "core/compat.h"
#include "core/mem.h"
#include "core/text/template_str.h"

/* Is a part of a path a number? */
static bool
is_number(const struct tmpl_text *text, int64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text->n; i++) {
        if (text->s[i] < '0' || text->s[i] > '9' || i == 18)
            return false;
        *number = 10 * *number + (text->s[i] - '0');
    }
    return text->n > 0;
}

/* of.a.b.0, for a path "a.b.0" or a number; 'of' itself for none. */
static int
get_path(struct tmpl_run *run, struct tmpl_value of,
         const struct tmpl_value *path, const struct tmpl_value *unset,
         struct tmpl_value *out)
{
    struct tmpl_value parts = tmpl_list(&run->heap, TMPL_LIST);
    struct tmpl_text dot = { .s = ".", .n = 1, .n_chars = 1 };
    int64_t number;

    *out = of;
    if (path->kind == TMPL_ABSENT || path->kind == TMPL_NONE)
        return 0;
    if (path->kind == TMPL_TEXT)
        tmpl_split(&run->heap, path->text, &dot, SIZE_MAX, false, parts.list);
    else
        tmpl_push(&run->heap, parts.list, *path);
    for (size_t i = 0; i < parts.list->n; i++) {
        struct tmpl_value key = parts.list->v[i];

        if (key.kind == TMPL_TEXT && is_number(key.text, &number))
            key = tmpl_int(number);
        of = *out;
        if (tmpl_item(run, &of, &key, out) < 0)
            return -1;
        if (out->kind == TMPL_UNDEFINED && unset &&
            unset->kind != TMPL_ABSENT && unset->kind != TMPL_NONE)
            *out = *unset;
    }
    return 0;
}

/* A key to sort or compare by: texts in lower case, unless 'cased'. */
static int
get_key(struct tmpl_run *run, const struct tmpl_value *of,
        const struct tmpl_value *path, bool cased, struct tmpl_value *key)
{
    if (get_path(run, *of, path, NULL, key) < 0)
        return -1;
    if (!cased && key->kind == TMPL_TEXT)
        *key = tmpl_in_case(&run->heap, key->text, TMPL_LOWER);
    return 0;
}

struct sort {
    struct tmpl_run *run;
    bool reverse, failed;
};

struct sorted {
    struct tmpl_value key, value;
    size_t i;
};

static int
by_key(const void *a, const void *b, void *ctx)
{
    const struct sorted *x = a, *y = b;
    struct sort *sort = ctx;
    bool less = false, more = false;

    if (!sort->failed &&
        (tmpl_step(sort->run) < 0 ||
         tmpl_compare(sort->run, TMPL_OP_LT, &x->key, &y->key, &less) < 0 ||
         tmpl_compare(sort->run, TMPL_OP_LT, &y->key, &x->key, &more) < 0))
        sort->failed = true;
    if (less != more)
        return less != sort->reverse ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

int
tmpl_sort(struct tmpl_run *run, struct tmpl_list *list,
          const struct tmpl_value *keys, bool reverse)
{
    struct sort sort = { .run = run, .reverse = reverse };
    struct sorted *s = tmpl_try(&run->heap, list->n, sizeof(*s));

    if (!s)
        return tmpl_step(run);
    for (size_t i = 0; i < list->n; i++)
        s[i] = (struct sorted){ keys[i], list->v[i], i };
    sort_with(s, list->n, sizeof(*s), by_key, &sort);
    for (size_t i = 0; i < list->n; i++)
        list->v[i] = s[i].value;
    return sort.failed ? -1 : 0;
}

int
tmpl_f_sort(TMPL_CALL)
{
    struct tmpl_value all = tmpl_list(&run->heap, TMPL_LIST), keys = all, key,
                      paths = all;
    struct tmpl_text comma = { .s = ",", .n = 1, .n_chars = 1 };
    struct tmpl_list list;
    bool cased = tmpl_true(&a->v[2]);

    keys.list = tmpl_alloc(&run->heap, sizeof(*keys.list));
    paths.list = tmpl_alloc(&run->heap, sizeof(*paths.list));
    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    if (a->v[3].kind == TMPL_TEXT)
        tmpl_split(&run->heap, a->v[3].text, &comma, SIZE_MAX, false,
                   paths.list);
    else
        tmpl_push(&run->heap, paths.list, a->v[3]);
    for (size_t i = 0; i < list.n; i++) {
        struct tmpl_value tuple = tmpl_list(&run->heap, TMPL_TUPLE);

        for (size_t k = 0; k < paths.list->n; k++) {
            if (get_key(run, &list.v[i], &paths.list->v[k], cased, &key) < 0)
                return -1;
            tmpl_push(&run->heap, tuple.list, key);
        }
        tmpl_push(&run->heap, keys.list, tuple);
        tmpl_push(&run->heap, all.list, list.v[i]);
    }
    *out = all;
    return keys.list->n < all.list->n
               ? tmpl_step(run)
               : tmpl_sort(run, all.list, keys.list->v, tmpl_true(&a->v[1]));
}

int
tmpl_f_dictsort(TMPL_CALL)
{
    struct tmpl_value keys = tmpl_list(&run->heap, TMPL_LIST), key,
                      none = TMPL_NONE_VALUE;
    bool by_value = tmpl_is(&a->v[2], "value");

    if (a->v[2].kind != TMPL_ABSENT && !by_value && !tmpl_is(&a->v[2], "key"))
        return tmpl_fail(run, "You can only sort by either \"key\" or "
                              "\"value\"");
    if (a->v[0].kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, &a->v[0]);
    if (a->v[0].kind != TMPL_DICT)
        return tmpl_fail(run, "'%s' object has no attribute 'items'",
                         tmpl_type(&a->v[0]));
    *out = tmpl_list(&run->heap, TMPL_LIST);
    for (size_t i = 0; i < a->v[0].dict->n; i++) {
        const struct tmpl_pair *p = &a->v[0].dict->pairs[i];

        if (get_key(run, by_value ? &p->value : &p->key, &none,
                    tmpl_true(&a->v[1]), &key) < 0)
            return -1;
        tmpl_push(&run->heap, keys.list, key);
        tmpl_push(&run->heap, out->list,
                  tmpl_pair(&run->heap, p->key, p->value));
    }
    return keys.list->n < out->list->n || run->heap.over
               ? tmpl_step(run)
               : tmpl_sort(run, out->list, keys.list->v, tmpl_true(&a->v[3]));
}

static int
extreme(TMPL_CALL, enum tmpl_op better)
{
    struct tmpl_value best = TMPL_NONE_VALUE, key;
    struct tmpl_list list;

    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    *out = tmpl_undefined_hint(run, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < list.n; i++) {
        bool is = i == 0;

        if (get_key(run, &list.v[i], &a->v[2], tmpl_true(&a->v[1]), &key) < 0 ||
            (i > 0 && tmpl_compare(run, better, &key, &best, &is) < 0))
            return -1;
        if (is) {
            best = key;
            *out = list.v[i];
        }
    }
    return 0;
}

int
tmpl_f_min(TMPL_CALL)
{
    return extreme(run, a, out, TMPL_OP_LT);
}

int
tmpl_f_max(TMPL_CALL)
{
    return extreme(run, a, out, TMPL_OP_GT);
}

int
tmpl_f_unique(TMPL_CALL)
{
    struct tmpl_value seen = tmpl_dict(&run->heap), key;
    struct tmpl_list list;

    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    *out = tmpl_list(&run->heap, TMPL_ITER);
    for (size_t i = 0; i < list.n; i++) {
        if (tmpl_step(run) < 0 ||
            get_key(run, &list.v[i], &a->v[2], tmpl_true(&a->v[1]), &key) < 0)
            return -1;
        if (key.kind == TMPL_LIST || key.kind == TMPL_DICT)
            return tmpl_fail(run, "unhashable type: '%s'", tmpl_type(&key));
        if (tmpl_find(&run->heap, seen.dict, &key))
            continue;
        tmpl_set(&run->heap, seen.dict, key, key);
        tmpl_push(&run->heap, out->list, list.v[i]);
    }
    return 0;
}

int
tmpl_f_sum(TMPL_CALL)
{
    struct tmpl_value v, sum;
    struct tmpl_list list;

    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    *out = a->v[2].kind == TMPL_ABSENT ? tmpl_int(0) : a->v[2];
    if (out->kind == TMPL_TEXT)
        return tmpl_fail(run, "sum() can't sum strings [use ''.join(seq) "
                              "instead]");
    for (size_t i = 0; i < list.n; i++) {
        if (tmpl_step(run) < 0 ||
            get_path(run, list.v[i], &a->v[1], NULL, &v) < 0 ||
            tmpl_binary(run, TMPL_OP_ADD, out, &v, &sum) < 0)
            return -1;
        *out = sum;
    }
    return 0;
}

int
tmpl_f_join(TMPL_CALL)
{
    struct tmpl_builder b = { .heap = &run->heap };
    const struct tmpl_text *between;
    struct tmpl_value v;
    struct tmpl_list list;

    if (tmpl_iterate(run, &a->v[0], &list) < 0 ||
        tmpl_str(run, &a->v[1], &between) < 0)
        return -1;
    for (size_t i = 0; i < list.n; i++) {
        if (i > 0)
            tmpl_put_text(&b, between);
        if (tmpl_step(run) < 0 ||
            get_path(run, list.v[i], &a->v[2], NULL, &v) < 0 ||
            tmpl_put_value(run, &b, &v) < 0)
            return -1;
    }
    *out = tmpl_built(&b);
    return 0;
}

int
tmpl_f_first(TMPL_CALL)
{
    struct tmpl_value *v = &a->v[0];
    struct tmpl_list list;

    if (v->kind == TMPL_ITER && v->list->read < v->list->n) {
        *out = v->list->v[v->list->read++]; /* the rest is still to come */
        return 0;
    }
    if (tmpl_iterate(run, v, &list) < 0)
        return -1;
    *out = list.n > 0 ? list.v[0]
                      : tmpl_undefined_hint(run, "No first item, sequence was "
                                                 "empty.");
    return 0;
}

int
tmpl_f_last(TMPL_CALL)
{
    struct tmpl_list list;

    if (a->v[0].kind == TMPL_ITER)
        return tmpl_fail(run, "'generator' object is not reversible");
    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    *out = list.n > 0 ? list.v[list.n - 1]
                      : tmpl_undefined_hint(run, "No last item, sequence was "
                                                 "empty.");
    return 0;
}

int
tmpl_f_list(TMPL_CALL)
{
    struct tmpl_list list;

    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    *out = tmpl_list(&run->heap, TMPL_LIST);
    for (size_t i = 0; i < list.n; i++)
        tmpl_push(&run->heap, out->list, list.v[i]);
    return 0;
}

int
tmpl_f_items(TMPL_CALL)
{
    *out = tmpl_list(&run->heap, TMPL_ITER);
    if (a->v[0].kind == TMPL_UNDEFINED)
        return 0;
    if (a->v[0].kind != TMPL_DICT)
        return tmpl_fail(run, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < a->v[0].dict->n; i++)
        tmpl_push(&run->heap, out->list,
                  tmpl_pair(&run->heap, a->v[0].dict->pairs[i].key,
                            a->v[0].dict->pairs[i].value));
    return 0;
}

int
tmpl_f_reverse(TMPL_CALL)
{
    struct tmpl_value bounds[3] = { TMPL_NONE_VALUE, TMPL_NONE_VALUE,
                                    tmpl_int(-1) };
    struct tmpl_list list;

    if (a->v[0].kind == TMPL_TEXT)
        return tmpl_slice(run, &a->v[0], bounds, out);
    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    *out = tmpl_list(&run->heap,
                     a->v[0].kind == TMPL_ITER ? TMPL_LIST : TMPL_ITER);
    for (size_t i = list.n; i-- > 0;)
        tmpl_push(&run->heap, out->list, list.v[i]);
    return 0;
}

int
tmpl_f_batch(TMPL_CALL)
{
    struct tmpl_value row = TMPL_NONE_VALUE;
    struct tmpl_list list;
    int64_t n;

    if (tmpl_iterate(run, &a->v[0], &list) < 0 ||
        tmpl_arg_int(run, &a->v[1], 0, &n) < 0)
        return -1;
    if (n < 1)
        return tmpl_fail(run, "batches of fewer than 1 are not supported");
    *out = tmpl_list(&run->heap, TMPL_ITER);
    for (size_t i = 0; i < list.n; i++) {
        if (row.kind == TMPL_NONE || (int64_t)row.list->n == n) {
            row = tmpl_list(&run->heap, TMPL_LIST);
            tmpl_push(&run->heap, out->list, row);
        }
        tmpl_push(&run->heap, row.list, list.v[i]);
    }
    while (row.kind == TMPL_LIST && a->v[2].kind != TMPL_ABSENT &&
           a->v[2].kind != TMPL_NONE && (int64_t)row.list->n < n &&
           !run->heap.over)
        tmpl_push(&run->heap, row.list, a->v[2]);
    return 0;
}

/* The value of a named argument, which is taken, or absent. */
static struct tmpl_value
take(struct tmpl_args *a, const char *name)
{
    struct tmpl_value v = { .kind = TMPL_ABSENT };

    for (size_t i = 0; i < a->n_named; i++)
        if (tmpl_is(&a->named[i].key, name)) {
            v = a->named[i].value;
            a->named[i] = a->named[--a->n_named];
            break;
        }
    return v;
}

/* Calls a filter or test on an item, with the arguments from the one after its
 * name on. */
static int
call_on(struct tmpl_run *run, const char *noun, const struct tmpl_args *a,
        size_t name, struct tmpl_value item, struct tmpl_value *out)
{
    struct tmpl_args args = { .n = a->n - name };
    struct tmpl_value *v =
        tmpl_alloc(&run->heap, (args.n + 1) * sizeof(*v) +
                                   (a->n_named + 1) * sizeof(*args.named));

    args.v = v + 1;
    args.named = (struct tmpl_pair *)(v + args.n + 1);
    memcpy(args.v, a->v + name, args.n * sizeof(*v));
    args.v[0] = item;
    if (a->n_named)
        memcpy(args.named, a->named, a->n_named * sizeof(*args.named));
    args.n_named = a->n_named;
    if (a->v[name].kind != TMPL_TEXT)
        return tmpl_fail(run, "the name of a %s is no text", noun);
    return tmpl_call_named(run, noun, &a->v[name], &args, out);
}

int
tmpl_f_map(TMPL_CALL)
{
    struct tmpl_value path = { .kind = TMPL_ABSENT }, unset = path, v;
    struct tmpl_list list;

    if (a->n == 1) {
        path = take(a, "attribute");
        unset = take(a, "default");
        if (path.kind == TMPL_ABSENT)
            return tmpl_fail(run, "map requires a filter argument");
        if (a->n_named > 0)
            return tmpl_fail(run, "Unexpected keyword argument in map");
    }
    *out = tmpl_list(&run->heap, TMPL_ITER);
    if (!tmpl_true(&a->v[0]))
        return 0;
    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    for (size_t i = 0; i < list.n; i++) {
        if (tmpl_step(run) < 0 ||
            (a->n == 1 ? get_path(run, list.v[i], &path, &unset, &v)
                       : call_on(run, "filter", a, 1, list.v[i], &v)) < 0)
            return -1;
        tmpl_push(&run->heap, out->list, v);
    }
    return 0;
}

/* The items, or those with an attribute, for which a test is 'want'. */
static int
select_items(TMPL_CALL, bool attribute, bool want)
{
    size_t name = attribute ? 2 : 1;
    struct tmpl_value path = { .kind = TMPL_ABSENT }, v, is;
    struct tmpl_list list;

    if (attribute && a->n < 2)
        return tmpl_fail(run, "Missing parameter for attribute name");
    if (attribute)
        path = a->v[1];
    *out = tmpl_list(&run->heap, TMPL_ITER);
    if (!tmpl_true(&a->v[0]))
        return 0;
    if (tmpl_iterate(run, &a->v[0], &list) < 0)
        return -1;
    for (size_t i = 0; i < list.n; i++) {
        if (tmpl_step(run) < 0 ||
            get_path(run, list.v[i], &path, NULL, &v) < 0 ||
            (a->n > name && call_on(run, "test", a, name, v, &is) < 0))
            return -1;
        if (tmpl_true(a->n > name ? &is : &v) == want)
            tmpl_push(&run->heap, out->list, list.v[i]);
    }
    return 0;
}

int
tmpl_f_select(TMPL_CALL)
{
    return select_items(run, a, out, false, true);
}

int
tmpl_f_reject(TMPL_CALL)
{
    return select_items(run, a, out, false, false);
}

int
tmpl_f_selectattr(TMPL_CALL)
{
    return select_items(run, a, out, true, true);
}

int
tmpl_f_rejectattr(TMPL_CALL)
{
    return select_items(run, a, out, true, false);
}
