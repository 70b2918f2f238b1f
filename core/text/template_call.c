/* SPDX-License-Identifier: ISC */
/* What templates call by a name: filters, tests, functions, methods. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/mem.h"
#include "core/opt_value.h"
#include "core/text/template_impl.h"

#define MAX_RANGE  100000       /* of Jinja's sandbox */
#define LAST_EPOCH 253402300799 /* 9999-12-31T23:59:59Z */

enum { LEFT = 1, RIGHT = 2 };

static struct tvalue
iter(struct trun *r, bool once)
{
    struct tvalue v = t_list(r, V_ITER);

    v.list->once = once;
    return v;
}

static struct tvalue
pair(struct trun *r, const struct tvalue *two)
{
    struct tvalue v = t_list(r, V_TUPLE);

    t_push(r, v.list, two[0]);
    t_push(r, v.list, two[1]);
    return v;
}

/* of.a, for an attribute "a" or a number; 'of' itself for none. */
static struct tvalue
get_attribute(struct trun *r, const struct tvalue *of,
              const struct tvalue *name)
{
    if (name->kind == V_TEXT && name->text->n > 0 &&
        (memchr(name->text->s, '.', name->text->n) ||
         (name->text->s[0] >= '0' && name->text->s[0] <= '9')))
        return t_fail(r, "such an attribute is not supported here");
    return name->kind == V_TEXT || name->kind == V_INT
               ? t_item(r, of, name, false)
               : *of;
}

/* A dict's items, keys or values: of how = 3, 1, 2; or a generator of items. */
CALL(items)
{
    struct tvalue v = iter(r, a->how == 4);

    if (a->v[0].kind == V_UNDEFINED && a->how == 4)
        return v;
    if (a->v[0].kind != V_DICT)
        return t_fail(r, "a %s has no items", t_type(&a->v[0]));
    for (size_t i = 0; i < a->v[0].list->n; i += 2)
        t_push(r, v.list,
               a->how >= 3 ? pair(r, &a->v[0].list->v[i])
                           : a->v[0].list->v[i + (a->how == 2)]);
    return v;
}

/* A dict's items, sorted by their keys, texts by their lower case.  Dicts of
 * templates are short. */
CALL(dictsort)
{
    struct tvalue keys = t_list(r, V_LIST), all, key, item;

    a->how = 3;
    all = items(r, a);
    if (r->failed)
        return all;
    all.kind = V_LIST;
    for (size_t i = 0, k; i < all.list->n; i++) {
        item = all.list->v[i];
        key = item.list->v[0];
        if (key.kind == V_TEXT)
            key = t_lower(r, key.text);
        t_push(r, keys.list, key);
        for (k = i; k > 0 && t_step(r) &&
                    t_compare(r, '<', &key, &keys.list->v[k - 1]);
             k--) {
            keys.list->v[k] = keys.list->v[k - 1];
            all.list->v[k] = all.list->v[k - 1];
        }
        if (r->failed)
            break;
        keys.list->v[k] = key;
        all.list->v[k] = item;
    }
    return all;
}

CALL(get) /* dict, key, default */
{
    const struct tvalue *v = t_find(r, a->v[0].list, &a->v[1]);

    return v ? *v : a->v[2].kind == V_ABSENT ? T_NIL : a->v[2];
}

CALL(length) /* value */
{
    return t_int((int64_t)t_length(r, &a->v[0]));
}

CALL(end_of) /* value: first or last */
{
    struct tlist list;

    if (a->how == RIGHT && a->v[0].kind == V_ITER && a->v[0].list->once)
        return t_fail(r, "a generator has no last item");
    list = t_iterate(r, &a->v[0]);
    if (list.n == 0)
        return (struct tvalue){ .kind = V_UNDEFINED };
    return list.v[a->how == LEFT ? 0 : list.n - 1];
}

CALL(to_list) /* value */
{
    struct tlist list = t_iterate(r, &a->v[0]);
    struct tvalue v = t_list(r, V_LIST);

    for (size_t i = 0; i < list.n; i++)
        t_push(r, v.list, list.v[i]);
    return v;
}

CALL(join) /* value, d, attribute */
{
    struct tlist list = t_iterate(r, &a->v[0]);
    struct tbuf b = { .r = r };

    for (size_t i = 0; i < list.n && t_step(r); i++) {
        struct tvalue v = get_attribute(r, &list.v[i], &a->v[2]);

        if (i > 0)
            t_put_value(&b, &a->v[1]);
        if (a->how && v.kind != V_TEXT)
            return t_fail(r, "join of a %s is not supported", t_type(&v));
        t_put_value(&b, &v);
    }
    return t_built(&b);
}

CALL(join_method) /* s, iterable */
{
    struct tvalue v[] = { a->v[1], a->v[0], T_GONE };
    struct targs b = { .v = v, .n = 3, .how = 1 };

    return join(r, &b);
}

/* map, select, reject, selectattr and rejectattr: a value, a name of a filter
 * or test or, for the last two, a path and a test, and its arguments. */
enum { MAP, SELECT, REJECT, SELECT_BY, REJECT_BY };

CALL(map)
{
    struct tvalue out = iter(r, true), key, path = T_GONE;
    size_t name = a->how >= SELECT_BY ? 2 : 1;
    struct tlist list, args = { 0 };

    key = t_text(r, "attribute", 9, 0);
    if (a->how == MAP && a->named.n == 2 && a->n == 1 &&
        t_equal(r, &a->named.v[0], &key, 0))
        path = a->named.v[1];
    else if (a->how == MAP && a->n < 2)
        return t_fail(r, "map needs a filter's name, or attribute=");
    if (a->how >= SELECT_BY)
        path = a->n > 1 ? a->v[1]
                        : t_fail(r, "the name of an attribute is missing");
    if (!t_true(&a->v[0]))
        return out;
    list = t_iterate(r, &a->v[0]);
    for (size_t i = 0; i < list.n && t_step(r); i++) {
        struct tvalue v = get_attribute(r, &list.v[i], &path);

        args.n = 0;
        t_push(r, &args, v);
        for (size_t k = name + 1; k < a->n; k++)
            t_push(r, &args, a->v[k]);
        if (a->n > name)
            v = t_call_named(r, a->how == MAP ? 'f' : 't', &a->v[name],
                             &(struct targs){ .v = args.v, .n = args.n });
        if (a->how == MAP)
            t_push(r, out.list, v);
        else if (t_true(&v) == (a->how % 2 == SELECT % 2))
            t_push(r, out.list, list.v[i]);
    }
    return out;
}

CALL(set_default) /* value, default_value, boolean */
{
    bool use =
        a->v[0].kind == V_UNDEFINED || (t_true(&a->v[2]) && !t_true(&a->v[0]));

    if (!use)
        return a->v[0];
    return a->v[1].kind == V_ABSENT ? t_text(r, "", 0, 0) : a->v[1];
}

CALL(to_int) /* value, default */
{
    const struct tvalue *v = &a->v[0];
    double f = v->kind == V_FLOAT ? v->f : NAN;
    struct str s = { 0 };
    char *end;

    if (v->kind == V_INT || v->kind == V_BOOL)
        return t_int(v->kind == V_BOOL ? v->b : v->i);
    if (v->kind == V_UNDEFINED)
        return t_item(r, v, v, false); /* fails */
    if (v->kind == V_TEXT) {
        str_add(&s, v->text->s, v->text->n);
        f = strtod(s.s, &end);
        end += strspn(end, " \t\n\r\f\v");
        if (end < s.s + s.n || strpbrk(s.s, "xXpPnN("))
            f = NAN;
        str_free(&s);
    }
    if (fabs(f) < 9e15)
        return t_int((int64_t)f);
    if (isfinite(f))
        return t_fail(r, "int of a number over 9e15 is not supported");
    return a->v[1].kind == V_ABSENT ? t_int(0) : a->v[1];
}

CALL(is_kind) /* value: 'how' has a bit for each kind that is */
{
    (void)r;
    return t_bool(a->how >> a->v[0].kind & 1);
}

CALL(is_bool) /* value: true or false */
{
    (void)r;
    return t_bool(a->v[0].kind == V_BOOL && a->v[0].b == a->how);
}

CALL(compares) /* value, other: 'how' is an operator */
{
    return t_bool(t_compare(r, a->how, &a->v[0], &a->v[1]));
}

CALL(raise_exception) /* s */
{
    return t_fail(r, "raise_exception: %.*s",
                  (int)smaller(a->v[0].text->n, sizeof(r->err->what)),
                  a->v[0].text->s);
}

CALL(strftime_now) /* format; SOURCE_DATE_EPOCH is now, if it is set */
{
    /* compilers want to see the format */
    size_t (*volatile const make)(char *, size_t, const char *,
                                  const struct tm *) = strftime;
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    uint64_t seconds = (uint64_t)time(NULL);
    struct str format = { 0 };
    char buf[4096];
    struct tm tm;
    time_t t;
    size_t n;

    if (a->v[0].kind != V_TEXT)
        return t_fail(r, "strftime_now of a %s", t_type(&a->v[0]));
    if (epoch && opt_u64("SOURCE_DATE_EPOCH", epoch, 0, LAST_EPOCH, &seconds,
                         r->err) < 0) {
        r->failed = true;
        return T_GONE;
    }
    t = (time_t)seconds;
    tzset();
    localtime_r(&t, &tm);
    str_add(&format, a->v[0].text->s, a->v[0].text->n);
    str_addc(&format, '.'); /* no text at all would be an error */
    n = make(buf, sizeof(buf), format.s, &tm);
    str_free(&format);
    if (n == 0 || utf8_valid(buf, n) < n)
        return t_fail(r, "strftime_now: this format is not supported");
    return t_text(r, memcpy(t_alloc(r, n), buf, n), n - 1, 0);
}

CALL(range) /* start, stop, step */
{
    struct tvalue v = t_list(r, V_LIST);
    int64_t at[3] = { 0, 0, 1 };

    for (int i = 0; i < 3; i++) {
        if (a->v[i].kind != V_ABSENT && a->v[i].kind != V_INT)
            return t_fail(r, "range of a %s", t_type(&a->v[i]));
        at[i] = a->v[i].kind == V_INT ? a->v[i].i : at[i];
    }
    if (a->v[1].kind == V_ABSENT) {
        at[1] = at[0];
        at[0] = 0;
    }
    if (at[2] == 0)
        return t_fail(r, "range with a step of 0");
    while ((at[2] > 0 ? at[0] < at[1] : at[0] > at[1]) && !r->failed) {
        t_push(r, v.list, t_int(at[0]));
        if (v.list->n > MAX_RANGE)
            t_fail(r, "range of more than %d numbers", MAX_RANGE);
        if (__builtin_add_overflow(at[0], at[2], &at[0]))
            break;
    }
    return v;
}

CALL(dict) /* of a dict, and of names; 'how' is its kind */
{
    struct tvalue v = t_list(r, (enum t_kind)a->how);
    struct tlist *from[] = { NULL, &a->named };

    if (a->n > 1 || (a->n == 1 && a->v[0].kind != V_DICT))
        return t_fail(r, "dict and namespace of this are not supported");
    from[0] = a->n == 1 ? a->v[0].list : &(struct tlist){ 0 };
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < from[k]->n; i += 2)
            t_set(r, v.list, from[k]->v[i], from[k]->v[i + 1]);
    return v;
}

#define BIT(kind)      (1 << (kind))
#define BITS(from, to) ((2 << (to)) - (1 << (from)))

static const struct tcallable callables[] = {
    { "f", "count length", "value", length, 0 },
    { "f", "d default", "value default_value? boolean?", set_default, 0 },
    { "f", "dictsort", "value", dictsort, 0 },
    { "f", "first", "value", end_of, LEFT },
    { "f", "int", "value default?", to_int, 0 },
    { "f", "items", "value", items, 4 },
    { "f", "join", "value d? attribute?", join, 0 },
    { "f", "last", "value", end_of, RIGHT },
    { "f", "list", "value", to_list, 0 },
    { "f", "map", "...", map, MAP },
    { "f", "reject", "...", map, REJECT },
    { "f", "rejectattr", "...", map, REJECT_BY },
    { "f", "select", "...", map, SELECT },
    { "f", "selectattr", "...", map, SELECT_BY },
    { "f", "tojson", "value ensure_ascii? indent? separators?", t_tojson, 0 },
    { "t", "!= ne", "value other", compares, T_NE },
    { "t", "< lt lessthan", "value other", compares, '<' },
    { "t", "<= le", "value other", compares, T_LE },
    { "t", "== eq equalto", "value other", compares, T_EQ },
    { "t", "> gt greaterthan", "value other", compares, '>' },
    { "t", ">= ge", "value other", compares, T_GE },
    { "t", "boolean", "value", is_kind, BIT(V_BOOL) },
    { "t", "callable", "value", is_kind, BITS(V_MACRO, V_FUNCTION) },
    { "t", "defined", "value", is_kind, ~BIT(V_UNDEFINED) },
    { "t", "false", "value", is_bool, false },
    { "t", "float", "value", is_kind, BIT(V_FLOAT) },
    { "t", "in", "value seq", compares, T_IN },
    { "t", "integer", "value", is_kind, BIT(V_INT) },
    { "t", "iterable", "value", is_kind,
      BIT(V_UNDEFINED) | BITS(V_TEXT, V_DICT) | BIT(V_LOOP) },
    { "t", "mapping", "value", is_kind, BIT(V_DICT) },
    { "t", "none", "value", is_kind, BIT(V_NONE) },
    { "t", "number", "value", is_kind, BITS(V_BOOL, V_FLOAT) },
    { "t", "sequence", "value", is_kind,
      BIT(V_UNDEFINED) | BITS(V_TEXT, V_TUPLE) | BIT(V_DICT) },
    { "t", "string", "value", is_kind, BIT(V_TEXT) },
    { "t", "true", "value", is_bool, true },
    { "t", "undefined", "value", is_kind, BIT(V_UNDEFINED) },
    { "g", "dict", "...", dict, V_DICT },
    { "g", "namespace", "...", dict, V_NAMESPACE },
    { "g", "raise_exception", "s", raise_exception, 0 },
    { "g", "range", "start stop? step?", range, 0 },
    { "g", "strftime_now", "format", strftime_now, 0 },
    { "s", "join", "s iterable", join_method, 0 },
    { "d", "get", "value KEY DEFAULT?", get, 0 },
    { "d", "items", "value", items, 3 },
    { "d", "keys", "value", items, 1 },
    { "d", "values", "value", items, 2 },
    { 0 },
};

/* Is it one of the words? */
static bool
is_among(const struct tvalue *v, const char *words)
{
    for (size_t k; *words; words += k + (words[k] == ' ')) {
        k = strcspn(words, " ");
        if (v->kind == V_TEXT && v->text->n == k &&
            !memcmp(v->text->s, words, k))
            return true;
    }
    return false;
}

const struct tcallable *
t_lookup(char type, const struct tvalue *name)
{
    static const struct tcallable *const tables[] = { callables, t_strings };

    for (int i = 0; i < 2; i++)
        for (const struct tcallable *row = tables[i]; row->name; row++)
            if (strchr(row->types, type) && is_among(name, row->name))
                return row;
    return NULL;
}

/* Puts arguments in the order of the parameters, and calls. */
static struct tvalue
call_row(struct trun *r, const struct tcallable *row, struct targs *a)
{
    struct tvalue v[6] = { 0 };
    struct targs bound = { .v = v, .how = row->how };
    struct tbuf s = { .r = r };
    const char *at = row->params;
    size_t used = 0, k;

    a->how = row->how;
    if (r->failed)
        return T_GONE;
    if (!strcmp(at, "..."))
        return row->call(r, a);
    for (; *at; at += k + strspn(at + k, "? "), bound.n++) {
        struct tvalue name = t_text(r, at, k = strcspn(at, "? "), 0);
        const struct tvalue *given =
            bound.n < a->n ? &a->v[bound.n] : t_find(r, &a->named, &name);

        used += bound.n >= a->n && given;
        if (given)
            v[bound.n] = *given;
        else if (at[k] != '?')
            return t_fail(r, "%s needs its argument %.*s", row->name, (int)k,
                          at);
    }
    if (a->n > bound.n || used < a->named.n / 2)
        return t_fail(r, "%s with such an argument is not supported",
                      row->name);
    for (k = 0; k < bound.n; k++) /* each may be read to its end */
        r->work += v[k].kind == V_TEXT ? v[k].text->n : 0;
    if (!strncmp(row->params, "s", strcspn(row->params, " ?")) &&
        v[0].kind != V_TEXT) {
        t_put_value(&s, &v[0]);
        v[0] = t_built(&s);
    }
    return r->failed ? T_GONE : row->call(r, &bound);
}

struct tvalue
t_call(struct trun *r, const struct tvalue *what, struct targs *a)
{
    if (what->kind == V_MACRO)
        return t_call_macro(r, what->macro, a);
    if (what->kind == V_FUNCTION)
        return call_row(r, what->bound->row, a);
    if (what->kind == V_UNDEFINED)
        return t_item(r, what, what, false); /* fails */
    return t_fail(r, "a %s is not callable", t_type(what));
}

struct tvalue
t_call_named(struct trun *r, char type, const struct tvalue *name,
             struct targs *a)
{
    const struct tcallable *row = t_lookup(type, name);

    if (row)
        return call_row(r, row, a);
    if (name->kind != V_TEXT)
        return t_fail(r, "the name of a filter or test is missing");
    return t_fail(r, "%s \"%.*s\" is not supported",
                  type == 'f' ? "filter" : "test",
                  (int)smaller(name->text->n, 100), name->text->s);
}
