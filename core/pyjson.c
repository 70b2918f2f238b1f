/* SPDX-License-Identifier: ISC */
#include "core/pyjson.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compat.h"
#include "core/jpull.h"
#include "core/mem.h"

#define MAX_INT_DIGITS 4300 /* Python's own limit since 3.11 */

struct member {
    size_t key, key_n;       /* in 'keys': WTF-8, whose order is code points' */
    size_t value, value_end; /* in 'body' */
    size_t object;           /* the first that does not begin before 'value' */
    const char *key_text, *value_text, *end;
    size_t key_text_n, order;
};

/* An object with members. */
struct object {
    size_t at, end; /* where in 'body' its members' values are */
    size_t next;    /* the first object that is not in this one */
    struct member *members;
    size_t n;
    int depth;
};

/*
 * The text is read once: values are written to 'body' as they come, without
 * the keys and braces of objects.  Then 'body' is copied once to the output,
 * the members of each object in their order.
 */
struct reader {
    struct jpull json;
    const char *name;
    int indent;  /* spaces a level, keys as they come; 0: one line, sorted */
    bool unique; /* a key twice is an error */
    struct str body, keys;
    struct object *objects; /* in the order in which they begin */
    size_t n_objects, cap;
    struct err *err;
};

static int read_value(struct reader *r);

__attribute__((format(printf, 2, 3))) static int
bad(const struct reader *r, const char *fmt, ...)
{
    size_t column, line = jpull_line(&r->json, &column);
    char what[80];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_set(r->err, EX_DATAERR, "%s: line %zu, column %zu: %s", r->name,
                   line, column, what);
}

/* Appends a string in quotes, everything but ' '..'~' escaped: WTF-8, well
 * formed, so that a character's first byte says how many it has. */
static void
put_string(struct str *out, const char *s, size_t nbytes)
{
    const unsigned char *b = (const unsigned char *)s, *end = b + nbytes;

    str_addc(out, '"');
    while (b < end) {
        int n = *b < 0x80 ? 1 : *b < 0xe0 ? 2 : *b < 0xf0 ? 3 : 4;
        uint32_t c = n == 1 ? *b : *b & (0xffu >> (n + 1));

        for (b++; n > 1; n--, b++)
            c = c << 6 | (*b & 0x3f);
        if (c >= ' ' && c <= '~' && c != '"' && c != '\\')
            str_addc(out, (char)c);
        else
            jput_escape(out, c);
    }
    str_addc(out, '"');
}

static void
reader_free(struct reader *r)
{
    for (size_t i = 0; i < r->n_objects; i++)
        free(r->objects[i].members);
    free(r->objects);
    str_free(&r->body);
    str_free(&r->keys);
}

/* Python: int() keeps every digit; "-0" is the integer 0. */
static int
read_number(struct reader *r)
{
    const char *start = r->json.p;
    size_t sign = *start == '-', n;
    bool is_float;
    char *text;

    if (!jpull_number(&r->json, &is_float))
        return -1;
    n = (size_t)(r->json.p - start);
    if (is_float) {
        text = xstrndup(start, n);
        py_float_repr(&r->body, strtod(text, NULL));
        free(text);
        return 0;
    }
    if (n - sign > MAX_INT_DIGITS) {
        r->json.at = start;
        return bad(r, "an integer of %zu digits (expected at most %d)",
                   n - sign, MAX_INT_DIGITS);
    }
    if (n == 2 && sign && start[1] == '0')
        str_addc(&r->body, '0');
    else
        str_add(&r->body, start, n);
    return 0;
}

/* The separator and line break before a member or element at this depth, and
 * after the last. */
static void
put_break(const struct reader *r, struct str *out, const char *separator,
          int depth)
{
    str_adds(out, separator);
    if (r->indent)
        str_addf(out, "\n%*s", depth * r->indent, "");
    else if (*separator == ',')
        str_addc(out, ' ');
}

static int
read_array(struct reader *r)
{
    struct jpull *j = &r->json;
    int depth = j->depth;
    bool empty = true;

    str_addc(&r->body, '[');
    for (; jpull_item(j, ']'); empty = false) {
        put_break(r, &r->body, empty ? "" : ",", depth);
        if (read_value(r) < 0)
            return -1;
    }
    if (!empty)
        put_break(r, &r->body, "", depth - 1);
    str_addc(&r->body, ']');
    return j->expected ? -1 : 0;
}

/* sort_with()'s: the members' keys, equal ones in the text's order. */
static int
by_key(const void *a, const void *b, void *keys)
{
    const struct member *x = a, *y = b;
    size_t n = x->key_n < y->key_n ? x->key_n : y->key_n;
    int c = memcmp((char *)keys + x->key, (char *)keys + y->key, n);

    if (c == 0 && x->key_n != y->key_n)
        c = x->key_n < y->key_n ? -1 : 1;
    return c ? c : x->order < y->order ? -1 : 1;
}

static int
by_order(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    return x->order < y->order ? -1 : x->order > y->order;
}

/*
 * Sorts members into the order in which they are written, each key once: at the
 * place of its first member, with the value of its last.
 */
static int
sort_members(const struct reader *r, struct member *m, size_t *n)
{
    char *keys = r->keys.s;
    size_t k = 0;

    sort_with(m, *n, sizeof(*m), by_key, keys);
    for (size_t i = 0; i < *n; i++) {
        struct str key = { 0 };

        if (!k || m[k - 1].key_n != m[i].key_n ||
            memcmp(keys + m[k - 1].key, keys + m[i].key, m[i].key_n) != 0) {
            m[k++] = m[i];
            continue;
        }
        if (r->unique) {
            put_string(&key, keys + m[i].key, m[i].key_n);
            err_set(r->err, EX_DATAERR, "%s: the key %s appears twice", r->name,
                    key.s);
            str_free(&key);
            return -1;
        }
        m[k - 1].value = m[i].value;
        m[k - 1].value_end = m[i].value_end;
        m[k - 1].object = m[i].object;
    }
    *n = k;
    if (r->indent)
        qsort(m, k, sizeof(*m), by_order);
    return 0;
}

static int
read_object(struct reader *r)
{
    struct jpull *j = &r->json;
    size_t at = r->n_objects++, n = 0, cap = 0;
    struct member *m = NULL;
    struct jspan key;
    struct object *o;

    if (at == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 8;
        r->objects = xrealloc(r->objects, r->cap, sizeof(*r->objects));
    }
    r->objects[at] = (struct object){ .at = r->body.n, .depth = j->depth };
    str_add(&r->keys, "", 0); /* all may be empty: never a null pointer */
    for (; jpull_member(j, &key); n++) {
        if (n == cap) {
            m = xrealloc(m, cap = cap ? 2 * cap : 4, sizeof(*m));
            r->objects[at].members = m;
        }
        m[n] = (struct member){ .order = n,
                                .key = r->keys.n,
                                .key_text = key.s - 1,
                                .key_text_n = key.n + 2,
                                .value = r->body.n,
                                .value_text = j->p,
                                .object = r->n_objects };
        jspan_add(&key, &r->keys);
        m[n].key_n = r->keys.n - m[n].key;
        if (read_value(r) < 0)
            return -1;
        m[n].value_end = r->body.n;
        m[n].end = j->p;
    }
    if (j->expected)
        return -1;
    if (n == 0) {
        r->n_objects--;
        str_adds(&r->body, "{}");
        return 0;
    }
    if (sort_members(r, m, &n) < 0)
        return -1;
    o = &r->objects[at];
    o->members = xrealloc(m, n, sizeof(*m));
    o->n = n;
    o->end = r->body.n;
    o->next = r->n_objects;
    return 0;
}

static int
read_value(struct reader *r)
{
    static const char *const words[] = { "null", "true",      "false",
                                         "NaN",  "-Infinity", "Infinity" };
    struct jpull *j = &r->json;
    char c = jpull_peek(j);

    if (c == '{')
        return jpull_enter(j, c, "a value") ? read_object(r) : -1;
    if (c == '[')
        return jpull_enter(j, c, "a value") ? read_array(r) : -1;
    if (c == '"') {
        struct str s = { 0 };
        struct jspan span;

        if (!jpull_string(j, "a string", &span))
            return -1;
        jspan_add(&span, &s);
        put_string(&r->body, s.s, s.n);
        str_free(&s);
        return 0;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (jpull_word(j, words[i])) {
            str_adds(&r->body, words[i]);
            return 0;
        }
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r);
    jpull_fail(j, j->p, "a JSON value");
    return -1;
}

static void put_object(const struct reader *r, struct str *out,
                       const struct object *o);

/* Copies at..end of 'body'; 'object' is the first that begins there, or after
 * it. */
static void
put_span(const struct reader *r, struct str *out, size_t at, size_t end,
         size_t object)
{
    while (object < r->n_objects && r->objects[object].at < end) {
        const struct object *o = &r->objects[object];

        str_add(out, r->body.s + at, o->at - at);
        put_object(r, out, o);
        at = o->end;
        object = o->next;
    }
    str_add(out, r->body.s + at, end - at);
}

static void
put_object(const struct reader *r, struct str *out, const struct object *o)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct member *m = &o->members[i];

        put_break(r, out, i ? "," : "{", o->depth);
        put_string(out, r->keys.s + m->key, m->key_n);
        str_adds(out, ": ");
        put_span(r, out, m->value, m->value_end, m->object);
    }
    put_break(r, out, "", o->depth - 1);
    str_addc(out, '}');
}

static int
read_document(struct reader *r)
{
    struct jpull *j = &r->json;

    if (read_value(r) == 0 && jpull_done(j))
        return 0;
    if (j->too_deep)
        return bad(r, "nested %d levels deep (expected at most %d)",
                   PYJSON_DEPTH + 1, PYJSON_DEPTH);
    return j->expected ? bad(r, "expected %s", j->expected) : -1;
}

static struct reader
reader_start(const char *text, size_t nbytes, const char *name, struct err *err)
{
    struct reader r = { .json = jpull_start(text, nbytes, PYJSON_DEPTH),
                        .name = name,
                        .err = err };

    r.json.python = true;
    return r;
}

int
pyjson_indent(struct str *out, const char *text, size_t nbytes, int indent,
              const char *name, struct err *err)
{
    struct reader r = reader_start(text, nbytes, name, err);
    int rc;

    r.indent = indent;
    rc = read_document(&r);
    if (rc == 0)
        put_span(&r, out, 0, r.body.n, 0);
    reader_free(&r);
    return rc;
}

int
pyjson_dumps(struct str *out, const char *text, size_t nbytes, const char *name,
             struct err *err)
{
    return pyjson_indent(out, text, nbytes, 0, name, err);
}

int
pyjson_members(const char *text, size_t nbytes, const char *name,
               int (*each)(void *ctx, const struct pyjson_member *m,
                           struct err *err),
               void *ctx, struct err *err)
{
    struct reader r = reader_start(text, nbytes, name, err);
    struct object *o;
    int rc;

    r.unique = true;
    if (nbytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return err_set(err, EX_DATAERR,
                       "%s: begins with a byte order mark (expected '{')",
                       name);
    if (jpull_peek(&r.json) != '{')
        jpull_fail(&r.json, r.json.p, "an object");
    rc = read_document(&r);
    o = r.objects; /* the first is the document; not there if it is empty */
    if (rc == 0 && r.n_objects)
        qsort(o->members, o->n, sizeof(*o->members), by_order);
    for (size_t i = 0; rc == 0 && r.n_objects && i < o->n; i++) {
        const struct member *m = &o->members[i];
        char *key = xstrndup(r.keys.s + m->key, m->key_n);
        struct str value = { 0 };

        put_span(&r, &value, m->value, m->value_end, m->object);
        rc = each(ctx,
                  &(struct pyjson_member){
                      .key = key,
                      .key_nbytes = m->key_n,
                      .value = value.s,
                      .key_text = m->key_text,
                      .key_text_nbytes = m->key_text_n,
                      .value_text = m->value_text,
                      .value_text_nbytes = (size_t)(m->end - m->value_text),
                  },
                  err);
        free(key);
        str_free(&value);
    }
    reader_free(&r);
    return rc;
}
