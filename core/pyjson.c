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
    size_t key, key_n;     /* in 'keys': WTF-8, whose order is code points' */
    size_t at, value, end; /* in 'out': its key, its value, to its end */
    const char *key_text, *value_text, *text_end;
    size_t key_text_n, order;
};

/* The text is read once, and written as it comes; members that are not in order
 * are moved at the end of their object. */
struct reader {
    struct jpull json;
    const char *name;
    int indent;  /* spaces a level, keys as they come; 0: one line, sorted */
    bool unique; /* a key twice is an error */
    struct str *out, keys;
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
        py_float_repr(r->out, strtod(text, NULL));
        free(text);
        return 0;
    }
    if (n - sign > MAX_INT_DIGITS) {
        r->json.at = start;
        return bad(r, "an integer of %zu digits (expected at most %d)",
                   n - sign, MAX_INT_DIGITS);
    }
    if (n == 2 && sign && start[1] == '0')
        str_addc(r->out, '0');
    else
        str_add(r->out, start, n);
    return 0;
}

/* The separator and line break before a member or element at this depth, and
 * after the last. */
static void
put_break(const struct reader *r, const char *separator, int depth)
{
    str_adds(r->out, separator);
    if (r->indent)
        str_addf(r->out, "\n%*s", depth * r->indent, "");
    else if (*separator == ',')
        str_addc(r->out, ' ');
}

static int
read_array(struct reader *r)
{
    struct jpull *j = &r->json;
    int depth = j->depth;
    bool empty = true;

    str_addc(r->out, '[');
    for (; jpull_item(j, ']'); empty = false) {
        put_break(r, empty ? "" : ",", depth);
        if (read_value(r) < 0)
            return -1;
    }
    if (!empty)
        put_break(r, "", depth - 1);
    str_addc(r->out, ']');
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
        m[k - 1].at = m[i].at;
        m[k - 1].end = m[i].end;
    }
    *n = k;
    if (r->indent && k)
        qsort(m, k, sizeof(*m), by_order);
    return 0;
}

/* The members of an object; *m is the caller's to free, after an error, too. */
static int
read_members(struct reader *r, struct member **members, size_t *n)
{
    struct jpull *j = &r->json;
    int depth = j->depth;
    size_t cap = 0;
    struct jspan key;

    *members = NULL;
    str_add(&r->keys, "", 0); /* all may be empty: never a null pointer */
    for (*n = 0; jpull_member(j, &key); ++*n) {
        struct member *m;

        if (*n == cap)
            *members = xgrow(*members, *n, &cap, sizeof(*m));
        m = &(*members)[*n];
        put_break(r, *n ? "," : "{", depth);
        *m = (struct member){ .order = *n,
                              .key = r->keys.n,
                              .key_text = key.s - 1,
                              .key_text_n = key.n + 2,
                              .at = r->out->n,
                              .value_text = j->p };
        jspan_add(&key, &r->keys);
        m->key_n = r->keys.n - m->key;
        put_string(r->out, r->keys.s + m->key, m->key_n);
        str_adds(r->out, ": ");
        m->value = r->out->n;
        if (read_value(r) < 0)
            return -1;
        m->end = r->out->n;
        m->text_end = j->p;
    }
    return j->expected ? -1 : 0;
}

static int
read_object(struct reader *r)
{
    size_t n, k, keys_n = r->keys.n, start = r->out->n, all;
    int depth = r->json.depth, rc;
    struct member *m;
    bool moved;
    char *was;

    rc = read_members(r, &m, &n);
    k = n;
    if (rc == 0)
        rc = sort_members(r, m, &k);
    moved = k < n;
    for (size_t i = 0; rc == 0 && i < k; i++)
        moved = moved || m[i].order != i;
    if (rc == 0 && moved) {
        all = r->out->n - start;
        was = xmalloc(all);
        memcpy(was, r->out->s + start, all);
        r->out->n = start;
        for (size_t i = 0; i < k; i++) {
            put_break(r, i ? "," : "{", depth);
            str_add(r->out, was + m[i].at - start, m[i].end - m[i].at);
        }
        free(was);
    }
    if (n == 0)
        str_addc(r->out, '{');
    else
        put_break(r, "", depth - 1);
    str_addc(r->out, '}');
    r->keys.n = keys_n;
    free(m);
    return rc;
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
        put_string(r->out, s.s, s.n);
        str_free(&s);
        return 0;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (jpull_word(j, words[i])) {
            str_adds(r->out, words[i]);
            return 0;
        }
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r);
    jpull_fail(j, j->p, "a JSON value");
    return -1;
}

/* Does the document that was read with 'rc' end here? */
static int
check_end(struct reader *r, int rc)
{
    struct jpull *j = &r->json;

    if (rc == 0 && jpull_done(j))
        return 0;
    if (j->too_deep)
        return bad(r, "nested %d levels deep (expected at most %d)",
                   PYJSON_DEPTH + 1, PYJSON_DEPTH);
    return j->expected ? bad(r, "expected %s", j->expected) : -1;
}

int
pyjson_indent(struct str *out, const char *text, size_t nbytes, int indent,
              const char *name, struct err *err)
{
    struct reader r = { .json = jpull_start(text, nbytes, PYJSON_DEPTH),
                        .name = name,
                        .indent = indent,
                        .out = out,
                        .err = err };
    int rc;

    r.json.python = true;
    rc = check_end(&r, read_value(&r));
    str_free(&r.keys);
    return rc;
}

int
pyjson_members(const char *text, size_t nbytes, const char *name,
               int (*each)(void *ctx, const struct pyjson_member *m,
                           struct err *err),
               void *ctx, struct err *err)
{
    struct str out = { 0 };
    struct reader r = { .json = jpull_start(text, nbytes, PYJSON_DEPTH),
                        .name = name,
                        .unique = true,
                        .out = &out,
                        .err = err };
    struct member *m = NULL;
    size_t n = 0;
    int rc = -1;

    r.json.python = true;
    if (nbytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return err_data(err, name,
                        "begins with a byte order mark (expected '{')");
    jpull_peek(&r.json);
    if (jpull_enter(&r.json, '{', "an object"))
        rc = read_members(&r, &m, &n);
    rc = check_end(&r, rc);
    if (rc == 0)
        rc = sort_members(&r, m, &n);
    if (rc == 0 && n)
        qsort(m, n, sizeof(*m), by_order);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *key = xstrndup(r.keys.s + m[i].key, m[i].key_n);
        char *value = xstrndup(out.s + m[i].value, m[i].end - m[i].value);

        rc = each(
            ctx,
            &(struct pyjson_member){
                .key = key,
                .key_nbytes = m[i].key_n,
                .value = value,
                .key_text = m[i].key_text,
                .key_text_nbytes = m[i].key_text_n,
                .value_text = m[i].value_text,
                .value_text_nbytes = (size_t)(m[i].text_end - m[i].value_text),
            },
            err);
        free(key);
        free(value);
    }
    free(m);
    str_free(&r.keys);
    str_free(&out);
    return rc;
}
