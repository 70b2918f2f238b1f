#include "core/pyjson.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define MAX_INT_DIGITS 4300 /* Python's own limit since 3.11 */

struct member {
    size_t key, key_n;       /* in 'keys': WTF-8, whose order is code points' */
    size_t value, value_end; /* in 'body' */
    size_t object;           /* the first that does not begin before 'value' */
    size_t key_at, key_end, value_at, end; /* in the text */
    size_t order;
};

/* One with members. */
struct object {
    size_t at, end; /* where in 'body' its members' values lie */
    size_t next;    /* the first object that is not in this one */
    struct member *members;
    size_t n;
    int depth;
};

/*
 * The text is read once: what is no object is written to 'body' as it comes,
 * and of the members of an object their values.  Then all is copied once to
 * where it belongs, the members of each object in their order.
 */
struct reader {
    const char *s;
    size_t i, n;
    const char *name;
    int depth;
    int indent;  /* spaces a level, keys as they come; 0: one line, sorted */
    bool unique; /* a key twice is an error */
    struct str body, keys;
    struct object *objects; /* in the order in which they begin */
    size_t n_objects, cap;
    struct err *err;
};

static int read_value(struct reader *r);

__attribute__((format(printf, 3, 4))) static int
bad(const struct reader *r, size_t at, const char *fmt, ...)
{
    size_t line = 1, start = 0;
    char what[80];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < at && i < r->n; i++)
        if (r->s[i] == '\n') {
            line++;
            start = i + 1;
        }
    return err_set(r->err, EX_DATAERR, "%s: line %zu, column %zu: %s", r->name,
                   line, at - start + 1, what);
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

static void
skip_space(struct reader *r)
{
    while (r->i < r->n && memchr(" \t\n\r", r->s[r->i], 4))
        r->i++;
}

static bool
next_is(const struct reader *r, char c)
{
    return r->i < r->n && r->s[r->i] == c;
}

static bool
is_digit(const struct reader *r, size_t i)
{
    return i < r->n && r->s[i] >= '0' && r->s[i] <= '9';
}

/* A word if it stands here, and its canonical form. */
static bool
read_word(struct reader *r, const char *word)
{
    size_t n = strlen(word);

    if (r->n - r->i < n || memcmp(r->s + r->i, word, n) != 0)
        return false;
    str_adds(&r->body, word);
    r->i += n;
    return true;
}

/* Python: int() keeps every digit; "-0" is the integer 0. */
static int
put_int(struct reader *r, size_t start, size_t end)
{
    size_t sign = r->s[start] == '-';

    if (end - start - sign > MAX_INT_DIGITS)
        return bad(r, start, "an integer of %zu digits (expected at most %d)",
                   end - start - sign, MAX_INT_DIGITS);
    if (end - start == 2 && sign && r->s[start + 1] == '0')
        start++;
    str_add(&r->body, r->s + start, end - start);
    return 0;
}

static void
put_float(struct reader *r, size_t start, size_t end)
{
    char *text = xstrndup(r->s + start, end - start);

    py_float_repr(&r->body, strtod(text, NULL));
    free(text);
}

/* -?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?  What does not belong to the longest
 * match is left for the caller to stumble over, as in Python. */
static int
read_number(struct reader *r)
{
    size_t start = r->i, i = start + (r->s[start] == '-'), e;
    bool is_float = false;

    if (!is_digit(r, i))
        return bad(r, start, "no value begins like this");
    if (r->s[i++] != '0')
        while (is_digit(r, i))
            i++;
    if (i < r->n && r->s[i] == '.' && is_digit(r, i + 1)) {
        is_float = true;
        for (i++; is_digit(r, i); i++)
            ;
    }
    e = i;
    if (e < r->n && (r->s[e] == 'e' || r->s[e] == 'E')) {
        e++;
        if (e < r->n && (r->s[e] == '-' || r->s[e] == '+'))
            e++;
        if (is_digit(r, e)) {
            is_float = true;
            for (i = e; is_digit(r, i); i++)
                ;
        }
    }
    r->i = i;
    if (!is_float)
        return put_int(r, start, i);
    put_float(r, start, i);
    return 0;
}

/* Four hex digits at r->s[i], or -1. */
static long
hex4(const struct reader *r, size_t i)
{
    long v = 0;

    if (r->n - r->i < 4 || i + 4 > r->n)
        return -1;
    for (size_t k = i; k < i + 4; k++) {
        char c = r->s[k];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;

        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* \uXXXX, r->i behind the u: a pair of surrogates is one code point. */
static int
read_unicode_escape(struct reader *r, uint32_t *c)
{
    long hi = hex4(r, r->i), lo;

    if (hi < 0)
        return bad(r, r->i, "\\u needs four hex digits");
    r->i += 4;
    *c = (uint32_t)hi;
    if (hi < 0xd800 || hi > 0xdbff || r->n - r->i < 6 || r->s[r->i] != '\\' ||
        r->s[r->i + 1] != 'u')
        return 0;
    lo = hex4(r, r->i + 2);
    if (lo >= 0xdc00 && lo <= 0xdfff) {
        r->i += 6;
        *c = 0x10000 + (((uint32_t)hi & 0x3ff) << 10) + ((uint32_t)lo & 0x3ff);
    }
    return 0;
}

static int
read_escape(struct reader *r, uint32_t *c)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *p;

    if (r->i >= r->n)
        return bad(r, r->i, "the text ends in a string");
    if (r->s[r->i] == 'u') {
        r->i++;
        return read_unicode_escape(r, c);
    }
    p = r->s[r->i] ? strchr(from, r->s[r->i]) : NULL;
    if (!p)
        return bad(r, r->i, "no such escape");
    *c = (unsigned char)to[p - from];
    r->i++;
    return 0;
}

/* Appends a string as WTF-8: UTF-8 that may hold lone surrogates. */
static int
read_string(struct reader *r, struct str *wtf8)
{
    size_t start = r->i++;
    char utf8[4];
    uint32_t c;

    for (;;) {
        if (r->i >= r->n)
            return bad(r, start, "the string does not end");
        if (r->s[r->i] == '"')
            break;
        if (r->s[r->i] == '\\') {
            r->i++;
            if (read_escape(r, &c) < 0)
                return -1;
        } else {
            int n = utf8_next(r->s + r->i, r->n - r->i, &c);

            if (n == 0)
                return bad(r, r->i, "not UTF-8");
            if (c < 0x20)
                return bad(r, r->i, "a control character in a string");
            r->i += (size_t)n;
        }
        str_add(wtf8, utf8, (size_t)utf8_put(utf8, c));
    }
    r->i++;
    return 0;
}

/* What stands before a member or element at this depth, and behind the last. */
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
    bool empty;

    r->i++;
    str_addc(&r->body, '[');
    skip_space(r);
    empty = next_is(r, ']');
    if (!empty)
        put_break(r, &r->body, "", r->depth);
    while (!next_is(r, ']')) {
        if (read_value(r) < 0)
            return -1;
        skip_space(r);
        if (next_is(r, ']'))
            break;
        if (!next_is(r, ','))
            return bad(r, r->i, "',' or ']' is missing");
        r->i++;
        skip_space(r);
        if (next_is(r, ']'))
            return bad(r, r->i, "a comma before ']'");
        put_break(r, &r->body, ",", r->depth);
    }
    r->i++;
    if (!empty)
        put_break(r, &r->body, "", r->depth - 1);
    str_addc(&r->body, ']');
    return 0;
}

/* qsort has no context: the keys' bytes are reached through this. */
static _Thread_local const char *sort_keys;

static int
by_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    size_t n = x->key_n < y->key_n ? x->key_n : y->key_n;
    int c = n ? memcmp(sort_keys + x->key, sort_keys + y->key, n) : 0;

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

static bool
same_key(const struct member *a, const struct member *b, const char *keys)
{
    return a->key_n == b->key_n &&
           !memcmp(keys + a->key, keys + b->key, a->key_n);
}

/* After sorting: an error if a key is there twice. */
static int
check_unique(const struct reader *r, const struct member *m, size_t n)
{
    const char *keys = r->keys.s;

    for (size_t i = 1; r->unique && i < n; i++)
        if (same_key(&m[i - 1], &m[i], keys)) {
            struct str key = { 0 };

            py_str_put(&key, keys + m[i].key, m[i].key_n);
            err_set(r->err, EX_DATAERR, "%s: the key %s is there twice",
                    r->name, key.s);
            str_free(&key);
            return -1;
        }
    return 0;
}

/* One member a key, at the place of the first with the value of the last. */
static size_t
merge_equal(struct member *m, size_t n, const char *keys)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        if (k && same_key(&m[k - 1], &m[i], keys)) {
            m[k - 1].value = m[i].value;
            m[k - 1].value_end = m[i].value_end;
            m[k - 1].object = m[i].object;
        } else {
            m[k++] = m[i];
        }
    }
    return k;
}

/* In the order in which they are written, each key once. */
static int
sort_members(const struct reader *r, struct member *m, size_t *n)
{
    sort_keys = r->keys.s;
    qsort(m, *n, sizeof(*m), by_key);
    if (check_unique(r, m, *n) < 0)
        return -1;
    *n = merge_equal(m, *n, r->keys.s);
    if (r->indent)
        qsort(m, *n, sizeof(*m), by_order);
    return 0;
}

static int
read_member(struct reader *r, struct member *m)
{
    if (!next_is(r, '"'))
        return bad(r, r->i, "a member's name in double quotes is missing");
    m->key = r->keys.n;
    m->key_at = r->i;
    if (read_string(r, &r->keys) < 0)
        return -1;
    m->key_n = r->keys.n - m->key;
    m->key_end = r->i;
    skip_space(r);
    if (!next_is(r, ':'))
        return bad(r, r->i, "':' is missing");
    r->i++;
    skip_space(r);
    m->value = r->body.n;
    m->object = r->n_objects;
    m->value_at = r->i;
    if (read_value(r) < 0)
        return -1;
    m->value_end = r->body.n;
    m->end = r->i;
    return 0;
}

/* The members between the braces, all of which the caller frees; r->i stands
 * behind the first brace. */
static int
read_members(struct reader *r, struct member **members, size_t *n)
{
    size_t cap = 0;

    str_add(&r->keys, "", 0); /* all may be empty: never a null pointer */
    skip_space(r);
    while (!next_is(r, '}')) {
        if (*n == cap)
            *members =
                xrealloc(*members, cap = cap ? 2 * cap : 4, sizeof(**members));
        (*members)[*n].order = *n;
        if (read_member(r, &(*members)[*n]) < 0)
            return -1;
        ++*n;
        skip_space(r);
        if (next_is(r, '}'))
            break;
        if (!next_is(r, ','))
            return bad(r, r->i, "',' or '}' is missing");
        r->i++;
        skip_space(r);
        if (next_is(r, '}'))
            return bad(r, r->i, "a comma before '}'");
    }
    r->i++;
    return 0;
}

/* An object's place in the list, which is known when it begins. */
static size_t
new_object(struct reader *r)
{
    if (r->n_objects == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 8;
        r->objects = xrealloc(r->objects, r->cap, sizeof(*r->objects));
    }
    r->objects[r->n_objects] =
        (struct object){ .at = r->body.n, .depth = r->depth };
    return r->n_objects++;
}

static int
read_object(struct reader *r)
{
    size_t at = new_object(r), n = 0;
    struct member *m = NULL;
    int rc;

    r->i++;
    rc = read_members(r, &m, &n);
    r->objects[at].members = m;
    if (rc < 0)
        return -1;
    if (n == 0) {
        r->n_objects--;
        str_adds(&r->body, "{}");
        return 0;
    }
    if (sort_members(r, m, &n) < 0)
        return -1;
    r->objects[at].members = xrealloc(m, n, sizeof(*m));
    r->objects[at].n = n;
    r->objects[at].end = r->body.n;
    r->objects[at].next = r->n_objects;
    return 0;
}

static int
read_string_value(struct reader *r)
{
    struct str s = { 0 };
    int rc = read_string(r, &s);

    if (rc == 0)
        py_str_put(&r->body, s.s, s.n);
    str_free(&s);
    return rc;
}

static int
read_value(struct reader *r)
{
    static const char *const words[] = { "null", "true",      "false",
                                         "NaN",  "-Infinity", "Infinity" };
    int rc;

    if (r->i >= r->n)
        return bad(r, r->i, "a value is missing");
    if (r->s[r->i] == '"')
        return read_string_value(r);
    if (r->s[r->i] == '{' || r->s[r->i] == '[') {
        if (r->depth == PYJSON_DEPTH)
            return bad(r, r->i, "nested %d levels deep (expected at most %d)",
                       PYJSON_DEPTH + 1, PYJSON_DEPTH);
        r->depth++;
        rc = r->s[r->i] == '{' ? read_object(r) : read_array(r);
        r->depth--;
        return rc;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (read_word(r, words[i]))
            return 0;
    return read_number(r);
}

static void put_object(const struct reader *r, struct str *out,
                       const struct object *o);

/* What stands at at..end of 'body', 'object' being the first in it or behind.
 */
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
        py_str_put(out, r->keys.s + m->key, m->key_n);
        str_adds(out, ": ");
        put_span(r, out, m->value, m->value_end, m->object);
    }
    put_break(r, out, "", o->depth - 1);
    str_addc(out, '}');
}

static int
rewrite(struct reader *r, struct str *out)
{
    int rc;

    skip_space(r);
    rc = read_value(r);
    if (rc == 0) {
        skip_space(r);
        if (r->i != r->n)
            rc = bad(r, r->i, "something follows the value");
    }
    if (rc == 0)
        put_span(r, out, 0, r->body.n, 0);
    reader_free(r);
    return rc;
}

int
pyjson_dumps(struct str *out, const char *text, size_t nbytes, const char *name,
             struct err *err)
{
    struct reader r = { .s = text, .n = nbytes, .name = name, .err = err };

    return rewrite(&r, out);
}

int
pyjson_indent(struct str *out, const char *text, size_t nbytes, int indent,
              const char *name, struct err *err)
{
    struct reader r = {
        .s = text, .n = nbytes, .name = name, .indent = indent, .err = err
    };

    return rewrite(&r, out);
}

/* The members in the text's order, each to 'each'. */
static int
hand_out(const struct reader *r, struct member *m, size_t n,
         int (*each)(void *ctx, const struct pyjson_member *m, struct err *err),
         void *ctx)
{
    int rc = n ? sort_members(r, m, &n) : 0; /* m may be NULL */

    if (rc == 0 && n)
        qsort(m, n, sizeof(*m), by_order);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *key = xstrndup(r->keys.s + m[i].key, m[i].key_n);
        struct str value = { 0 };

        put_span(r, &value, m[i].value, m[i].value_end, m[i].object);
        rc = each(ctx,
                  &(struct pyjson_member){
                      .key = key,
                      .key_nbytes = m[i].key_n,
                      .value = value.s,
                      .key_text = r->s + m[i].key_at,
                      .key_text_nbytes = m[i].key_end - m[i].key_at,
                      .value_text = r->s + m[i].value_at,
                      .value_text_nbytes = m[i].end - m[i].value_at,
                  },
                  r->err);
        free(key);
        str_free(&value);
    }
    return rc;
}

int
pyjson_members(const char *text, size_t nbytes, const char *name,
               int (*each)(void *ctx, const struct pyjson_member *m,
                           struct err *err),
               void *ctx, struct err *err)
{
    struct reader r = { .s = text,
                        .n = nbytes,
                        .name = name,
                        .depth = 1,
                        .unique = true,
                        .err = err };
    struct member *members = NULL;
    size_t n = 0;
    int rc;

    if (nbytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return err_set(err, EX_DATAERR,
                       "%s: begins with a byte order mark (expected '{')",
                       name);
    skip_space(&r);
    if (!next_is(&r, '{'))
        return bad(&r, r.i, "an object is missing");
    r.i++;
    rc = read_members(&r, &members, &n);
    if (rc == 0) {
        skip_space(&r);
        if (r.i != r.n)
            rc = bad(&r, r.i, "something follows the object");
    }
    if (rc == 0)
        rc = hand_out(&r, members, n, each, ctx);
    free(members);
    reader_free(&r);
    return rc;
}
