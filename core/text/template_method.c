/* SPDX-License-Identifier: ISC */
/* The methods of strings, lists, tuples, dicts and loop in templates. */
#include <string.h>

#include "core/mem.h"
#include "core/text/template_call.h"
#include "core/text/template_str.h"

/* str.split() and rsplit(): text, sep, maxsplit. */
static int
split(TMPL_CALL, bool right)
{
    const struct tmpl_text *separator;
    int64_t max;

    if (tmpl_arg_text(run, &a->v[1], &separator) < 0 ||
        tmpl_arg_int(run, &a->v[2], -1, &max) < 0)
        return -1;
    if (separator && separator->n == 0)
        return tmpl_fail(run, "empty separator");
    *out = tmpl_list(&run->heap, TMPL_LIST);
    tmpl_split(&run->heap, a->v[0].text, separator,
               max < 0 ? SIZE_MAX : (size_t)max, right, out->list);
    return 0;
}

static int
m_split(TMPL_CALL)
{
    return split(run, a, out, false);
}

static int
m_rsplit(TMPL_CALL)
{
    return split(run, a, out, true);
}

static int
m_splitlines(TMPL_CALL)
{
    *out = tmpl_list(&run->heap, TMPL_LIST);
    tmpl_splitlines(&run->heap, a->v[0].text, tmpl_true(&a->v[1]), out->list);
    return 0;
}

static int
partition(TMPL_CALL, bool last)
{
    const struct tmpl_text *text = a->v[0].text, *separator;
    struct tmpl_value empty = tmpl_text(&run->heap, "", 0, 0), part[3];
    size_t at;

    if (tmpl_arg_text(run, &a->v[1], &separator) < 0)
        return -1;
    if (!separator || separator->n == 0)
        return tmpl_fail(run, "empty separator");
    at = tmpl_search(&run->heap, text, separator, 0, last);
    part[0] = part[1] = part[2] = empty;
    if (at == SIZE_MAX) {
        part[last ? 2 : 0] = a->v[0];
    } else {
        part[0] = tmpl_cut(&run->heap, text, 0, at);
        part[1] = a->v[1];
        part[2] = tmpl_cut(&run->heap, text, at + separator->n, text->n);
    }
    *out = tmpl_list(&run->heap, TMPL_TUPLE);
    for (int i = 0; i < 3; i++)
        tmpl_push(&run->heap, out->list, part[i]);
    return 0;
}

static int
m_partition(TMPL_CALL)
{
    return partition(run, a, out, false);
}

static int
m_rpartition(TMPL_CALL)
{
    return partition(run, a, out, true);
}

static int
strip(TMPL_CALL, bool left, bool right)
{
    const struct tmpl_text *chars;

    if (tmpl_arg_text(run, &a->v[1], &chars) < 0)
        return -1;
    *out = tmpl_strip(&run->heap, a->v[0].text, chars, left, right);
    return 0;
}

static int
m_strip(TMPL_CALL)
{
    return strip(run, a, out, true, true);
}

static int
m_lstrip(TMPL_CALL)
{
    return strip(run, a, out, true, false);
}

static int
m_rstrip(TMPL_CALL)
{
    return strip(run, a, out, false, true);
}

/* Bytes 'from' to 'to' of the string that arguments 'start' and 'end' select:
 * false if they leave nothing, not even an empty string. */
static int
window(struct tmpl_run *run, const struct tmpl_args *a, size_t *from,
       size_t *to)
{
    const struct tmpl_text *text = a->v[0].text;
    int64_t n = (int64_t)text->n_chars, at[2];

    for (int i = 0; i < 2; i++) {
        if (tmpl_arg_int(run, &a->v[2 + i], i ? n : 0, &at[i]) < 0)
            return -1;
        if (at[i] < 0)
            at[i] = at[i] < -n ? 0 : at[i] + n;
    }
    *from = tmpl_byte_at(text, (size_t)at[0]);
    *to = tmpl_byte_at(text, (size_t)at[1]);
    return at[0] <= n && at[0] <= at[1];
}

static bool
ends_with(const struct tmpl_text *text, size_t from, size_t to,
          const struct tmpl_text *what, bool end)
{
    return what->n <= to - from &&
           !memcmp(text->s + (end ? to - what->n : from), what->s, what->n);
}

/* str.startswith() and endswith(): of a text, or of one of a tuple. */
static int
begins(TMPL_CALL, bool end)
{
    const struct tmpl_text *text = a->v[0].text;
    struct tmpl_list one = { .v = &a->v[1], .n = 1 }, *list = &one;
    size_t from, to;
    int inside = window(run, a, &from, &to);

    if (inside < 0)
        return -1;
    if (a->v[1].kind == TMPL_TUPLE)
        list = a->v[1].list;
    *out = tmpl_bool(false);
    for (size_t i = 0; i < list->n; i++) {
        if (list->v[i].kind != TMPL_TEXT)
            return tmpl_fail(run,
                             "%swith first arg must be str or a tuple of str, "
                             "not %s",
                             end ? "ends" : "starts", tmpl_type(&list->v[i]));
        out->b |= inside && ends_with(text, from, to, list->v[i].text, end);
        run->heap.work += list->v[i].text->n;
    }
    return 0;
}

static int
m_startswith(TMPL_CALL)
{
    return begins(run, a, out, false);
}

static int
m_endswith(TMPL_CALL)
{
    return begins(run, a, out, true);
}

/* str.find(), rfind(), index(), rindex(), count(): text, sub, start, end. */
static int
find(TMPL_CALL, bool last, bool must, bool count)
{
    const struct tmpl_text *text = a->v[0].text, *what, *part;
    size_t from, to, at = SIZE_MAX;
    int inside = window(run, a, &from, &to);

    if (inside < 0 || tmpl_arg_text(run, &a->v[1], &what) < 0)
        return -1;
    if (!what)
        return tmpl_fail(run, "must be str, not NoneType");
    part = tmpl_cut(&run->heap, text, inside ? from : 0, inside ? to : 0).text;
    if (count) {
        *out =
            tmpl_int(inside ? (int64_t)tmpl_count(&run->heap, part, what) : 0);
        return 0;
    }
    if (inside)
        at = tmpl_search(&run->heap, part, what, 0, last);
    if (at == SIZE_MAX && must)
        return tmpl_fail(run, "substring not found");
    *out = tmpl_int(-1);
    if (at != SIZE_MAX)
        *out = tmpl_int(
            (int64_t)tmpl_cut(&run->heap, text, 0, from + at).text->n_chars);
    return 0;
}

static int
m_find(TMPL_CALL)
{
    return find(run, a, out, false, false, false);
}

static int
m_rfind(TMPL_CALL)
{
    return find(run, a, out, true, false, false);
}

static int
m_index(TMPL_CALL)
{
    return find(run, a, out, false, true, false);
}

static int
m_rindex(TMPL_CALL)
{
    return find(run, a, out, true, true, false);
}

static int
m_count(TMPL_CALL)
{
    return find(run, a, out, false, false, true);
}

static int
m_replace(TMPL_CALL)
{
    const struct tmpl_text *text = a->v[0].text, *old, *new;
    int64_t max;

    if (tmpl_arg_text(run, &a->v[1], &old) < 0 ||
        tmpl_arg_text(run, &a->v[2], &new) < 0 ||
        tmpl_arg_int(run, &a->v[3], -1, &max) < 0)
        return -1;
    if (!old || !new)
        return tmpl_fail(run, "replace() argument must be str, not NoneType");
    if (text->markup) {
        old = tmpl_escape(&run->heap, old).text;
        new = tmpl_escape(&run->heap, new).text;
    }
    *out = tmpl_replace(&run->heap, text, old, new, (size_t)max);
    return 0;
}

static int
m_join(TMPL_CALL)
{
    struct tmpl_builder b = { .heap = &run->heap };
    struct tmpl_list list;

    if (tmpl_iterate(run, &a->v[1], &list) < 0)
        return -1;
    b.markup = a->v[0].text->markup;
    for (size_t i = 0; i < list.n; i++) {
        struct tmpl_value v = list.v[i];

        if (v.kind != TMPL_TEXT)
            return tmpl_fail(
                run, "sequence item %zu: expected str instance, %s found", i,
                tmpl_type(&v));
        if (i > 0)
            tmpl_put_text(&b, a->v[0].text);
        if (b.markup)
            v = tmpl_escape(&run->heap, v.text);
        tmpl_put_text(&b, v.text);
    }
    *out = tmpl_built(&b);
    return 0;
}

/* str.removeprefix() and removesuffix() */
static int
remove_end(TMPL_CALL, bool end)
{
    const struct tmpl_text *text = a->v[0].text, *what;

    if (tmpl_arg_text(run, &a->v[1], &what) < 0)
        return -1;
    if (!what)
        return tmpl_fail(run, "argument must be str, not NoneType");
    *out = a->v[0];
    if (ends_with(text, 0, text->n, what, end))
        *out = tmpl_cut(&run->heap, text, end ? 0 : what->n,
                        text->n - (end ? what->n : 0));
    return 0;
}

static int
m_removeprefix(TMPL_CALL)
{
    return remove_end(run, a, out, false);
}

static int
m_removesuffix(TMPL_CALL)
{
    return remove_end(run, a, out, true);
}

#define METHOD_CASE(name, how)                              \
    static int m_##name(TMPL_CALL)                          \
    {                                                       \
        *out = tmpl_in_case(&run->heap, a->v[0].text, how); \
        return 0;                                           \
    }

METHOD_CASE(upper, TMPL_UPPER)
METHOD_CASE(lower, TMPL_LOWER)
METHOD_CASE(capitalize, TMPL_CAPITALIZE)
METHOD_CASE(title, TMPL_TITLE)

#define METHOD_ARE(name, kind)                              \
    static int m_##name(TMPL_CALL)                          \
    {                                                       \
        (void)run;                                          \
        *out = tmpl_bool(tmpl_all_are(a->v[0].text, kind)); \
        return 0;                                           \
    }

METHOD_ARE(isalnum, 'n')
METHOD_ARE(isalpha, 'a')
METHOD_ARE(isdigit, 'd')
METHOD_ARE(islower, 'l')
METHOD_ARE(isspace, 's')
METHOD_ARE(isupper, 'u')

const struct tmpl_callable tmpl_methods_of_text[] = {
    { "capitalize", "self", m_capitalize },
    { "count", "self sub start? end?", m_count },
    { "endswith", "self suffix start? end?", m_endswith },
    { "find", "self sub start? end?", m_find },
    { "index", "self sub start? end?", m_index },
    { "isalnum", "self", m_isalnum },
    { "isalpha", "self", m_isalpha },
    { "isdecimal", "self", m_isdigit },
    { "isdigit", "self", m_isdigit },
    { "islower", "self", m_islower },
    { "isnumeric", "self", m_isdigit },
    { "isspace", "self", m_isspace },
    { "isupper", "self", m_isupper },
    { "join", "self iterable", m_join },
    { "lower", "self", m_lower },
    { "lstrip", "self chars?", m_lstrip },
    { "partition", "self sep", m_partition },
    { "removeprefix", "self prefix", m_removeprefix },
    { "removesuffix", "self suffix", m_removesuffix },
    { "replace", "self old new count?", m_replace },
    { "rfind", "self sub start? end?", m_rfind },
    { "rindex", "self sub start? end?", m_rindex },
    { "rpartition", "self sep", m_rpartition },
    { "rsplit", "self sep? maxsplit?", m_rsplit },
    { "rstrip", "self chars?", m_rstrip },
    { "split", "self sep? maxsplit?", m_split },
    { "splitlines", "self keepends?", m_splitlines },
    { "startswith", "self prefix start? end?", m_startswith },
    { "strip", "self chars?", m_strip },
    { "title", "self", m_title },
    { "upper", "self", m_upper },
    { NULL, NULL, NULL },
};

static int
m_list_count(TMPL_CALL)
{
    int64_t n = 0;

    for (size_t i = 0; i < a->v[0].list->n; i++)
        n += tmpl_equal(&run->heap, &a->v[0].list->v[i], &a->v[1]);
    *out = tmpl_int(n);
    return 0;
}

static int
m_list_index(TMPL_CALL)
{
    for (size_t i = 0; i < a->v[0].list->n; i++)
        if (tmpl_equal(&run->heap, &a->v[0].list->v[i], &a->v[1])) {
            *out = tmpl_int((int64_t)i);
            return 0;
        }
    return tmpl_fail(run, "the value is not in the %s", tmpl_type(&a->v[0]));
}

/* The one method that changes a list, which Jinja 3.1's sandbox leaves. */
static int
m_list_pop(TMPL_CALL)
{
    struct tmpl_list *list = a->v[0].list;
    int64_t i;

    if (tmpl_arg_int(run, &a->v[1], -1, &i) < 0)
        return -1;
    if (list->n == 0)
        return tmpl_fail(run, "pop from empty list");
    i += i < 0 ? (int64_t)list->n : 0;
    if (i < 0 || (size_t)i >= list->n)
        return tmpl_fail(run, "pop index out of range");
    *out = list->v[i];
    list->n--;
    memmove(list->v + i, list->v + i + 1,
            (list->n - (size_t)i) * sizeof(*list->v));
    return 0;
}

/* A method without a function is one that the sandbox refuses. */
const struct tmpl_callable tmpl_methods_of_list[] = {
    { "append", NULL, NULL }, { "count", "self value", m_list_count },
    { "extend", NULL, NULL }, { "index", "self value", m_list_index },
    { "insert", NULL, NULL }, { "pop", "self index?", m_list_pop },
    { "remove", NULL, NULL }, { "reverse", NULL, NULL },
    { "sort", NULL, NULL },   { NULL, NULL, NULL },
};

const struct tmpl_callable tmpl_methods_of_tuple[] = {
    { "count", "self value", m_list_count },
    { "index", "self value", m_list_index },
    { NULL, NULL, NULL },
};

static int
m_get(TMPL_CALL)
{
    const struct tmpl_value *v = tmpl_find(&run->heap, a->v[0].dict, &a->v[1]);

    *out = v ? *v : a->v[2].kind == TMPL_ABSENT ? TMPL_NONE_VALUE : a->v[2];
    return 0;
}

static int
view(TMPL_CALL, bool keys, bool values)
{
    const struct tmpl_dict *dict = a->v[0].dict;

    *out = tmpl_list(&run->heap, TMPL_VIEW);
    for (size_t i = 0; i < dict->n; i++)
        tmpl_push(&run->heap, out->list,
                  keys && values ? tmpl_pair(&run->heap, dict->pairs[i].key,
                                             dict->pairs[i].value)
                  : keys         ? dict->pairs[i].key
                                 : dict->pairs[i].value);
    return 0;
}

static int
m_items(TMPL_CALL)
{
    return view(run, a, out, true, true);
}

static int
m_keys(TMPL_CALL)
{
    return view(run, a, out, true, false);
}

static int
m_values(TMPL_CALL)
{
    return view(run, a, out, false, true);
}

static int
m_copy(TMPL_CALL)
{
    const struct tmpl_dict *dict = a->v[0].dict;

    *out = tmpl_dict(&run->heap);
    for (size_t i = 0; i < dict->n; i++)
        tmpl_set(&run->heap, out->dict, dict->pairs[i].key,
                 dict->pairs[i].value);
    return 0;
}

const struct tmpl_callable tmpl_methods_of_dict[] = {
    { "clear", NULL, NULL },
    { "copy", "self", m_copy },
    { "get", "self key default?", m_get },
    { "items", "self", m_items },
    { "keys", "self", m_keys },
    { "pop", NULL, NULL },
    { "popitem", NULL, NULL },
    { "setdefault", NULL, NULL },
    { "update", NULL, NULL },
    { "values", "self", m_values },
    { NULL, NULL, NULL },
};

static int
m_cycle(TMPL_CALL)
{
    struct tmpl_value name = tmpl_text(&run->heap, "index0", 6, 0), i;

    if (a->n < 2)
        return tmpl_fail(run, "no items for cycling given");
    if (tmpl_loop_attribute(run, a->v[0].loop, &name, &i) < 0)
        return -1;
    *out = a->v[1 + (size_t)i.i % (a->n - 1)];
    return 0;
}

const struct tmpl_callable tmpl_methods_of_loop[] = {
    { "cycle", "...", m_cycle },
    { NULL, NULL, NULL },
};
