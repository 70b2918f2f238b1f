/* SPDX-License-Identifier: ISC */
/*
 * Values of templates, as Python has them.
 */
#ifndef CORE_TEXT_TEMPLATE_VALUE_H
#define CORE_TEXT_TEMPLATE_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trun;

enum t_kind {
    V_ABSENT, /* an argument that was not given */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_TEXT,
    V_LIST,
    V_TUPLE,
    V_ITER, /* what can be gone through alone: a generator, a dict's items */
    V_DICT,
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_FUNCTION
};

struct tvalue {
    enum t_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct ttext *text; /* V_UNDEFINED: the name of what is not, or NULL */
        struct tlist *list; /* V_LIST to V_NAMESPACE */
        struct tloop *loop;
        const struct tmacro *macro;
        const struct tbound *bound; /* V_FUNCTION */
    };
};

/* A string: UTF-8, which a NUL may be part of.  Never changes, and shares its
 * bytes with those it was cut of. */
struct ttext {
    const char *s;
    const uint32_t *from; /* where each byte is from; NULL: all from 'of' */
    uint32_t of;
    size_t n;
};

/* A list; or a dict, whose keys are each followed by their values. */
struct tlist {
    struct tvalue *v; /* [n] */
    size_t n, cap;
    bool once; /* a generator: can be read once */
};

/* A string as it grows.  Starts as { .r = }. */
struct tbuf {
    struct trun *r;
    char *s;
    uint32_t *from;
    size_t n, cap, from_cap;
};

#define T_NIL  ((struct tvalue){ .kind = V_NONE })
#define T_GONE ((struct tvalue){ .kind = V_ABSENT })
static inline struct tvalue
t_bool(bool b)
{
    return (struct tvalue){ .kind = V_BOOL, .b = b };
}
static inline struct tvalue
t_int(int64_t i)
{
    return (struct tvalue){ .kind = V_INT, .i = i };
}

/* t_text() is a string of bytes that it shares, t_cut() bytes 'from' to 'to' -
 * 1 of one.  t_is() compares one with a word; t_at() is where character i
 * begins, t_char() the length of the one at 'at'.  t_of() is where byte 'at' is
 * from. */
struct tvalue t_text(struct trun *r, const char *s, size_t n, uint32_t of);
struct tvalue t_cut(struct trun *r, const struct ttext *text, size_t from,
                    size_t to);
bool t_is(const struct tvalue *v, const char *word);
size_t t_at(const struct ttext *text, int64_t i);
size_t t_char(const struct ttext *text, size_t at);
uint32_t t_of(const struct ttext *text, size_t at);

/* t_space() is the length of the white space character, as Python has it, that
 * s begins with, or 0. */
size_t t_space(const char *s, size_t n);

/* t_put() appends bytes, t_put_cut() some of a string, t_put_value() str(v),
 * refusing what has Python's spelling.  t_built() is all of it. */
void t_put(struct tbuf *b, const char *s, size_t n, uint32_t of);
void t_put_cut(struct tbuf *b, const struct ttext *text, size_t from,
               size_t to);
void t_put_value(struct tbuf *b, const struct tvalue *v);
struct tvalue t_built(struct tbuf *b);

/* t_list() is a new list, tuple or dict, t_push() appends to it; t_find() is a
 * dict's member, or NULL, t_set() sets one. */
struct tvalue t_list(struct trun *r, enum t_kind kind);
void t_push(struct trun *r, struct tlist *list, struct tvalue v);
struct tvalue *t_find(struct trun *r, const struct tlist *dict,
                      const struct tvalue *key);
void t_set(struct trun *r, struct tlist *dict, struct tvalue key,
           struct tvalue value);

/* bool(v); a == b; a OP b; len(v); of[key], or of.key, or undefined; what a for
 * goes through, in a list that does not change.  t_type(): Python's name of a
 * type.  t_json(): JSON's value, with texts of that origin. */
bool t_true(const struct tvalue *v);
bool t_equal(struct trun *r, const struct tvalue *a, const struct tvalue *b,
             int depth);
bool t_compare(struct trun *r, int op, const struct tvalue *a,
               const struct tvalue *b);
size_t t_length(struct trun *r, const struct tvalue *v);
struct tvalue t_item(struct trun *r, const struct tvalue *of,
                     const struct tvalue *key, bool attribute);
struct tlist t_iterate(struct trun *r, const struct tvalue *v);
const char *t_type(const struct tvalue *v);
struct tvalue t_json(struct trun *r, const json_t *json, uint32_t of,
                     int depth);

#endif
