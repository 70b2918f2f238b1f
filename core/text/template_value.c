/* SPDX-License-Identifier: ISC */
#include "core/text/template_value.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/pyjson.h"
#include "core/text/template_impl.h"
#include "core/text/tok_norm.h"

#define CHUNK ((size_t)65536)

struct tchunk {
    struct tchunk *next;
    max_align_t data[];
};

struct tvalue
t_fail(struct trun *r, const char *fmt, ...)
{
    struct str what = { 0 };
    va_list ap;

    va_start(ap, fmt);
    str_addv(&what, fmt, ap);
    va_end(ap);
    if (!r->failed)
        err_set(r->err, EX_DATAERR, "%s: line %u: %s", r->name, r->line,
                what.s);
    r->failed = true;
    str_free(&what);
    return T_GONE;
}

bool
t_step(struct trun *r)
{
    if (++r->n_steps + r->work / 64 > TEMPLATE_MAX_STEPS)
        t_fail(r, "runs for more than %zu steps", TEMPLATE_MAX_STEPS);
    return !r->failed;
}

void *
t_alloc(struct trun *r, size_t nbytes)
{
    const size_t unit = sizeof(max_align_t);
    struct tchunk *chunk;

    nbytes = (nbytes + unit - 1) / unit * unit;
    if (nbytes > r->left) {
        r->left = larger(nbytes, CHUNK);
        r->nbytes += r->left;
        chunk = xmalloc(sizeof(*chunk) + r->left);
        chunk->next = r->chunks;
        r->chunks = chunk;
        if (r->nbytes > TEMPLATE_MAX_MEMORY)
            t_fail(r, "needs more than %zu bytes of memory",
                   TEMPLATE_MAX_MEMORY);
    }
    r->left -= nbytes;
    return memset((char *)r->chunks->data + r->left, 0, nbytes);
}

void *
t_grow(struct trun *r, void *old, size_t n, size_t more, size_t *cap,
       size_t size)
{
    size_t want = larger(larger(2 * n, n + more), 4);
    void *p;

    if (more <= *cap - n)
        return old;
    if (want >
        (TEMPLATE_MAX_MEMORY - smaller(r->nbytes, TEMPLATE_MAX_MEMORY)) / size)
        t_fail(r, "needs more than %zu bytes of memory", TEMPLATE_MAX_MEMORY);
    if (r->failed)
        return NULL;
    p = t_alloc(r, want * size);
    if (n)
        memcpy(p, old, n * size);
    *cap = want;
    return p;
}

void
t_free(struct trun *r)
{
    for (struct tchunk *next; r->chunks; r->chunks = next) {
        next = r->chunks->next;
        free(r->chunks);
    }
}

struct tvalue
t_text(struct trun *r, const char *s, size_t n, uint32_t of)
{
    struct ttext *text = t_alloc(r, sizeof(*text));

    *text = (struct ttext){ s, NULL, of, n };
    return (struct tvalue){ .kind = V_TEXT, .text = text };
}

struct tvalue
t_cut(struct trun *r, const struct ttext *text, size_t from, size_t to)
{
    struct tvalue v = t_text(r, text->s + from, to - from, text->of);

    v.text->from = text->from ? text->from + from : NULL;
    return v;
}

bool
t_is(const struct tvalue *v, const char *word)
{
    return v->kind == V_TEXT && v->text->n == strlen(word) &&
           !memcmp(v->text->s, word, v->text->n);
}

static bool
begins_char(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* How many characters a string has. */
static size_t
t_chars(struct trun *r, const struct ttext *text)
{
    size_t n = 0;

    r->work += text->n;
    for (size_t i = 0; i < text->n; i++)
        n += begins_char(text->s[i]);
    return n;
}

size_t
t_char(const struct ttext *text, size_t at)
{
    size_t k = 1;

    while (at + k < text->n && !begins_char(text->s[at + k]))
        k++;
    return k;
}

size_t
t_at(const struct ttext *text, int64_t i)
{
    size_t at = 0;

    for (; i > 0 && at < text->n; i--)
        at += t_char(text, at);
    return at;
}

uint32_t
t_of(const struct ttext *text, size_t at)
{
    return text->from ? text->from[at] : text->of;
}

size_t
t_space(const char *s, size_t n)
{
    uint32_t c;
    int length = n ? utf8_next(s, n, &c) : 0;
    bool space = length > 0 && (is_white_space(c) || (c >= 0x1c && c <= 0x1f));

    return space ? (size_t)length : 0;
}

void
t_put_cut(struct tbuf *b, const struct ttext *text, size_t from, size_t to)
{
    size_t n = to - from;
    char *s = t_grow(b->r, b->s, b->n, n, &b->cap, 1);
    uint32_t *origin =
        t_grow(b->r, b->from, b->n, n, &b->from_cap, sizeof(*origin));

    if (n > TEMPLATE_MAX_TEXT - b->n)
        t_fail(b->r, "makes a text of more than %zu bytes", TEMPLATE_MAX_TEXT);
    if (b->r->failed || n == 0)
        return;
    b->s = s;
    b->from = origin;
    memcpy(s + b->n, text->s + from, n);
    for (size_t i = from; i < to; i++)
        origin[b->n++] = t_of(text, i);
    b->r->work += n;
}

void
t_put(struct tbuf *b, const char *s, size_t n, uint32_t of)
{
    t_put_cut(b, &(struct ttext){ s, NULL, of, n }, 0, n);
}

void
t_put_value(struct tbuf *b, const struct tvalue *v)
{
    struct str s = { 0 };

    if (v->kind == V_TEXT)
        t_put_cut(b, v->text, 0, v->text->n);
    else if (v->kind == V_NONE)
        str_adds(&s, "None");
    else if (v->kind == V_BOOL)
        str_adds(&s, v->b ? "True" : "False");
    else if (v->kind == V_INT)
        str_addf(&s, "%lld", (long long)v->i);
    else if (v->kind == V_FLOAT)
        py_float_repr(&s, v->f);
    else if (v->kind > V_UNDEFINED)
        t_fail(b->r,
               "a %s as text has Python's spelling, which is not supported "
               "(tojson and join are)",
               t_type(v));
    t_put(b, s.s, s.n, 0);
    str_free(&s);
}

struct tvalue
t_built(struct tbuf *b)
{
    struct tvalue v = t_text(b->r, b->n ? b->s : "", b->n, 0);

    v.text->from = b->from;
    return v;
}

struct tvalue
t_list(struct trun *r, enum t_kind kind)
{
    struct tlist *list = t_alloc(r, sizeof(*list));

    return (struct tvalue){ .kind = kind, .list = list };
}

void
t_push(struct trun *r, struct tlist *list, struct tvalue v)
{
    struct tvalue *p = t_grow(r, list->v, list->n, 1, &list->cap, sizeof(*p));

    r->work += sizeof(v);
    if (p) {
        list->v = p;
        list->v[list->n++] = v;
    }
}

struct tvalue *
t_find(struct trun *r, const struct tlist *dict, const struct tvalue *key)
{
    if (key->kind == V_LIST || key->kind == V_DICT)
        t_fail(r, "unhashable type: '%s'", t_type(key));
    for (size_t i = 0; i + 1 < dict->n; i += 2)
        if (t_equal(r, &dict->v[i], key, 0))
            return &dict->v[i + 1];
    return NULL;
}

void
t_set(struct trun *r, struct tlist *dict, struct tvalue key,
      struct tvalue value)
{
    struct tvalue *old = t_find(r, dict, &key);

    if (old) {
        *old = value;
    } else {
        t_push(r, dict, key);
        t_push(r, dict, value);
    }
}

static bool
number(const struct tvalue *v, double *f)
{
    *f = v->kind == V_BOOL    ? v->b
         : v->kind == V_INT   ? (double)v->i
         : v->kind == V_FLOAT ? v->f
                              : 0;
    return v->kind >= V_BOOL && v->kind <= V_FLOAT;
}

bool
t_true(const struct tvalue *v)
{
    double f;

    if (number(v, &f))
        return f != 0;
    if (v->kind == V_TEXT)
        return v->text->n > 0;
    if (v->kind >= V_LIST && v->kind <= V_DICT)
        return v->list->n > 0 || v->list->once;
    return v->kind > V_NONE;
}

bool
t_equal(struct trun *r, const struct tvalue *a, const struct tvalue *b,
        int depth)
{
    size_t step = a->kind == V_DICT ? 2 : 1;
    const struct tvalue *other;
    double x, y;

    if (depth > TEMPLATE_MAX_NESTED)
        t_fail(r, "a value is nested more than %d levels deep",
               TEMPLATE_MAX_NESTED);
    if (!t_step(r))
        return false;
    if (a->kind == V_INT && b->kind == V_INT)
        return a->i == b->i;
    if (number(a, &x) && number(b, &y))
        return x == y;
    if (a->kind != b->kind)
        return false;
    if (a->kind == V_TEXT) {
        r->work += a->text->n;
        return a->text->n == b->text->n &&
               !memcmp(a->text->s, b->text->s, a->text->n);
    }
    if (a->kind < V_LIST || a->kind > V_DICT)
        return a->kind <= V_NONE || a->list == b->list;
    if (a->list->n != b->list->n)
        return false;
    for (size_t i = step - 1; i < a->list->n; i += step) {
        other =
            step == 2 ? t_find(r, b->list, &a->list->v[i - 1]) : &b->list->v[i];
        if (!other || !t_equal(r, &a->list->v[i], other, depth + 1))
            return false;
    }
    return true;
}

/* a < b, for two numbers or texts. */
static bool
less(struct trun *r, const struct tvalue *a, const struct tvalue *b)
{
    double x, y;
    size_t n;
    int sign;

    if (a->kind == V_INT && b->kind == V_INT)
        return a->i < b->i;
    if (number(a, &x) && number(b, &y))
        return x < y;
    if (a->kind == V_TEXT && b->kind == V_TEXT) {
        n = smaller(a->text->n, b->text->n); /* UTF-8 sorts by code points */
        r->work += n;
        sign = memcmp(a->text->s, b->text->s, n);
        return sign ? sign < 0 : a->text->n < b->text->n;
    }
    return t_fail(r, "a %s and a %s have no order", t_type(a), t_type(b)).b;
}

static bool
contains(struct trun *r, const struct tvalue *in, const struct tvalue *what)
{
    if (in->kind == V_TEXT && what->kind == V_TEXT) {
        r->work += in->text->n;
        return memmem(in->text->s, in->text->n, what->text->s, what->text->n);
    }
    if (in->kind == V_DICT)
        return t_find(r, in->list, what);
    if (in->kind == V_UNDEFINED)
        return false;
    if (in->kind < V_LIST || in->kind > V_ITER)
        return t_fail(r, "a %s in a %s is not supported", t_type(what),
                      t_type(in))
            .b;
    for (size_t i = 0; i < in->list->n; i++)
        if (t_equal(r, &in->list->v[i], what, 0))
            return true;
    return false;
}

bool
t_compare(struct trun *r, int op, const struct tvalue *a,
          const struct tvalue *b)
{
    switch (op) {
    case T_EQ:
    case T_NE:
        return t_equal(r, a, b, 0) == (op == T_EQ);
    case T_IN:
    case T_NOT_IN:
        return contains(r, b, a) == (op == T_IN);
    case '<':
        return less(r, a, b);
    case '>':
        return less(r, b, a);
    default:
        return (op == T_LE ? less(r, a, b) : less(r, b, a)) ||
               t_equal(r, a, b, 0);
    }
}

size_t
t_length(struct trun *r, const struct tvalue *v)
{
    if (v->kind == V_UNDEFINED)
        return 0;
    if (v->kind == V_TEXT)
        return t_chars(r, v->text);
    if (v->kind >= V_LIST && v->kind <= V_DICT && !v->list->once)
        return v->list->n / (v->kind == V_DICT ? 2 : 1);
    t_fail(r, "a %s has no length", t_type(v));
    return 0;
}

/* The method of a value, or absent. */
static struct tvalue
method(struct trun *r, const struct tvalue *of, const struct tvalue *name)
{
    char type = of->kind == V_TEXT ? 's' : of->kind == V_DICT ? 'd' : '-';
    struct tbound *bound = t_alloc(r, sizeof(*bound));

    *bound = (struct tbound){ t_lookup(type, name), *of };
    return bound->row ? (struct tvalue){ .kind = V_FUNCTION, .bound = bound }
                      : T_GONE;
}

struct tvalue
t_item(struct trun *r, const struct tvalue *of, const struct tvalue *key,
       bool attribute)
{
    struct tvalue v = T_GONE;
    const struct tvalue *found = NULL;
    int64_t i = key->kind == V_BOOL ? key->b : key->i, n;
    size_t at;

    if (of->kind == V_UNDEFINED)
        return t_fail(r, "'%.*s' is undefined",
                      of->text ? (int)smaller(of->text->n, 200) : 5,
                      of->text ? of->text->s : "value");
    if (attribute)
        v = method(r, of, key);
    if (v.kind != V_ABSENT)
        return v;
    if (of->kind == V_DICT || of->kind == V_NAMESPACE) {
        found = t_find(r, of->list, key);
        v = found ? *found : v;
    } else if (of->kind == V_LOOP) {
        v = t_loop_item(of->loop, key);
    } else if ((key->kind == V_INT || key->kind == V_BOOL) &&
               of->kind >= V_TEXT && of->kind <= V_TUPLE) {
        n = (int64_t)t_length(r, of);
        i += i < 0 ? n : 0;
        if (i >= 0 && i < n && of->kind == V_TEXT) {
            at = t_at(of->text, i);
            v = t_cut(r, of->text, at, at + t_char(of->text, at));
        } else if (i >= 0 && i < n) {
            v = of->list->v[i];
        }
    }
    if (v.kind == V_ABSENT && key->kind == V_TEXT && !attribute)
        v = method(r, of, key);
    if (v.kind == V_ABSENT)
        v = (struct tvalue){ .kind = V_UNDEFINED,
                             .text = key->kind == V_TEXT ? key->text : NULL };
    return v;
}

struct tlist
t_iterate(struct trun *r, const struct tvalue *v)
{
    struct tlist list = { 0 };

    if (v->kind >= V_LIST && v->kind <= V_ITER) {
        list = *v->list;
        v->list->n = list.once ? 0 : list.n;
    } else if (v->kind == V_DICT) {
        for (size_t i = 0; i < v->list->n; i += 2)
            t_push(r, &list, v->list->v[i]);
    } else if (v->kind == V_TEXT) {
        for (size_t at = 0, k; at < v->text->n && !r->failed; at += k) {
            k = t_char(v->text, at);
            t_push(r, &list, t_cut(r, v->text, at, at + k));
        }
    } else if (v->kind != V_UNDEFINED) {
        t_fail(r, "a %s has nothing to go through", t_type(v));
    }
    return list;
}

const char *
t_type(const struct tvalue *v)
{
    static const char *const names[] = {
        "Undefined", "Undefined", "NoneType",    "bool",  "int",
        "float",     "str",       "list",        "tuple", "generator",
        "dict",      "Namespace", "LoopContext", "Macro", "function"
    };

    return names[v->kind];
}

struct tvalue
t_json(struct trun *r, const json_t *json, uint32_t of, int depth)
{
    struct tvalue v = T_NIL;
    const char *key;
    json_t *each, *object;
    double real;

    memcpy(&object, &json, sizeof(object)); /* jansson takes no const one */
    if (depth > TEMPLATE_MAX_NESTED)
        return t_fail(r, "a variable is nested more than %d levels deep",
                      TEMPLATE_MAX_NESTED);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        v = t_list(r, V_DICT);
        json_object_foreach(object, key, each)
        {
            t_push(r, v.list, t_text(r, key, strlen(key), of));
            t_push(r, v.list, t_json(r, each, of, depth + 1));
        }
        return v;
    case JSON_ARRAY:
        v = t_list(r, V_LIST);
        for (size_t i = 0; i < json_array_size(json) && !r->failed; i++)
            t_push(r, v.list,
                   t_json(r, json_array_get(json, i), of, depth + 1));
        return v;
    case JSON_STRING:
        return t_text(r, json_string_value(json), json_string_length(json), of);
    case JSON_INTEGER:
        return t_int(json_integer_value(json));
    case JSON_REAL:
        real = json_real_value(json);
        if (real >= 1e18 || real <= -1e18) /* core/js.h: it may be an integer */
            return t_fail(r, "a variable has a number of more than 64 bits, "
                             "which is not supported");
        return (struct tvalue){ .kind = V_FLOAT, .f = real };
    case JSON_NULL:
        return v;
    default:
        return t_bool(json_is_true(json));
    }
}
