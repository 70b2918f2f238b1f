/* SPDX-License-Identifier: ISC */
/*
 * Values of templates: Python's None, bool, int, float, str, list, tuple, dict
 * and what iterates, in memory that goes as a whole.
 */
#ifndef CORE_TEXT_TEMPLATE_VALUE_H
#define CORE_TEXT_TEMPLATE_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/str.h"
#include "core/text/template.h"

/* Memory of a template, or of one rendering.  Starts as { 0 }. */
struct tmpl_heap {
    struct tmpl_chunk *chunks;
    size_t left;      /* of the first chunk */
    size_t nbytes;    /* of all */
    size_t work;      /* bytes moved or compared */
    const char *over; /* which bound was met: what was to be added is left out,
                       * and the next step of the rendering fails */
};

#define TMPL_OVER_MEMORY "needs more than 1 GiB of memory"
#define TMPL_OVER_TEXT   "makes a text of more than 256 MiB"
#define TMPL_OVER_VALUE  "a value is nested more than 200 levels deep"

/* tmpl_alloc() gives zeroed memory for what is small; tmpl_try() for what may
 * be large: NULL, and 'over', beyond the bound.  tmpl_heap_free() frees all. */
void *tmpl_alloc(struct tmpl_heap *heap, size_t nbytes);
void *tmpl_try(struct tmpl_heap *heap, size_t n, size_t size);
void tmpl_heap_free(struct tmpl_heap *heap);

/* Where the bytes of a text are from. */
struct tmpl_origin {
    const struct rendered_run *runs;
    size_t n;
};

/* A string.  Never changes, and shares its bytes with those it was cut of. */
struct tmpl_text {
    const char *s; /* UTF-8, which a NUL may be part of */
    size_t n;
    size_t n_chars; /* code points */
    uint32_t of;    /* where all its bytes are from, if 'origin' is NULL */
    bool markup;    /* Markup, of |safe and |escape */
    size_t at;      /* its first byte among those that 'origin' counts */
    const struct tmpl_origin *origin;
};

enum tmpl_kind {
    TMPL_ABSENT, /* an argument that was not given */
    TMPL_UNDEFINED,
    TMPL_NONE,
    TMPL_BOOL,
    TMPL_INT,
    TMPL_FLOAT,
    TMPL_TEXT,
    TMPL_LIST,
    TMPL_TUPLE,
    TMPL_RANGE,
    TMPL_VIEW, /* of a dict: keys(), values(), items() */
    TMPL_ITER, /* a generator: can be read once */
    TMPL_DICT,
    TMPL_NAMESPACE,
    TMPL_LOOP,
    TMPL_MACRO,
    TMPL_FUNCTION, /* of template_call.h, also bound to the value it is of */
};

struct tmpl_value {
    enum tmpl_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const struct tmpl_text *text;
        struct tmpl_list *list; /* TMPL_LIST to TMPL_ITER */
        struct tmpl_dict *dict; /* TMPL_DICT, TMPL_NAMESPACE */
        struct tmpl_loop *loop;
        const struct tmpl_macro *macro;
        const struct tmpl_bound *function;
        const struct tmpl_missing *missing; /* TMPL_UNDEFINED */
    };
};

struct tmpl_list {
    struct tmpl_value *v; /* [n] */
    size_t n, cap;
    size_t read; /* of a generator */
};

struct tmpl_dict {
    struct tmpl_pair {
        struct tmpl_value key, value;
    } * pairs; /* in the order of insertion */
    size_t n, cap;
};

/* Why a value is undefined, for the message if it is used. */
struct tmpl_missing {
    const char *hint;       /* all of it, or NULL: */
    const char *of;         /* the type of what has no such member, or */
    struct tmpl_value name; /* NULL: there is no variable of that name */
};

#define TMPL_NONE_VALUE ((struct tmpl_value){ .kind = TMPL_NONE })

static inline struct tmpl_value
tmpl_bool(bool b)
{
    return (struct tmpl_value){ .kind = TMPL_BOOL, .b = b };
}

static inline struct tmpl_value
tmpl_int(int64_t i)
{
    return (struct tmpl_value){ .kind = TMPL_INT, .i = i };
}

static inline struct tmpl_value
tmpl_float(double f)
{
    return (struct tmpl_value){ .kind = TMPL_FLOAT, .f = f };
}

/* tmpl_text() is a string of bytes that it shares, tmpl_cut() bytes 'from' to
 * 'to' - 1 of one. */
struct tmpl_value tmpl_text(struct tmpl_heap *heap, const char *s, size_t n,
                            uint32_t of);
struct tmpl_value tmpl_cut(struct tmpl_heap *heap, const struct tmpl_text *text,
                           size_t from, size_t to);

/* tmpl_is() compares a string with a word. */
bool tmpl_is(const struct tmpl_value *v, const char *word);

/* A string as it grows.  Starts as { .heap = }. */
struct tmpl_builder {
    struct tmpl_heap *heap;
    char *s;
    size_t n, cap;
    struct rendered_run *runs;
    size_t n_runs, cap_runs;
    bool markup; /* it becomes a Markup */
};

/* tmpl_put() appends bytes of one origin, tmpl_put_cut() bytes of a string with
 * theirs.  tmpl_built() is what was put, whole. */
void tmpl_put(struct tmpl_builder *b, const char *s, size_t n, uint32_t of);
void tmpl_put_cut(struct tmpl_builder *b, const struct tmpl_text *text,
                  size_t from, size_t to);
void tmpl_put_text(struct tmpl_builder *b, const struct tmpl_text *text);
struct tmpl_value tmpl_built(struct tmpl_builder *b);

/* tmpl_origin_at() is where byte i of a string is from. */
uint32_t tmpl_origin_at(const struct tmpl_text *text, size_t i);

/* tmpl_byte_at() is the byte where code point i begins, or the string ends. */
size_t tmpl_byte_at(const struct tmpl_text *text, size_t i);

/* tmpl_list() is a new, empty list of that kind; tmpl_push() appends to one. */
struct tmpl_value tmpl_list(struct tmpl_heap *heap, enum tmpl_kind kind);
void tmpl_push(struct tmpl_heap *heap, struct tmpl_list *list,
               struct tmpl_value v);
/* tmpl_pair() is a tuple of two. */
struct tmpl_value tmpl_pair(struct tmpl_heap *heap, struct tmpl_value a,
                            struct tmpl_value b);

/* tmpl_find() is a member of a dict, or NULL; tmpl_set() sets one. */
struct tmpl_value tmpl_dict(struct tmpl_heap *heap);
struct tmpl_value *tmpl_find(struct tmpl_heap *heap, struct tmpl_dict *dict,
                             const struct tmpl_value *key);
void tmpl_set(struct tmpl_heap *heap, struct tmpl_dict *dict,
              struct tmpl_value key, struct tmpl_value value);

/* tmpl_true() is Python's bool(), tmpl_equal() its ==: nothing that nests
 * deeper than TEMPLATE_MAX_NESTED is equal, which sets 'over'. */
bool tmpl_true(const struct tmpl_value *v);
bool tmpl_equal(struct tmpl_heap *heap, const struct tmpl_value *a,
                const struct tmpl_value *b);

/* tmpl_number() is an int, float or bool as a float: false if it is none. */
bool tmpl_number(const struct tmpl_value *v, double *f);
static inline bool
tmpl_is_int(const struct tmpl_value *v) /* bool is one, too */
{
    return v->kind == TMPL_INT || v->kind == TMPL_BOOL;
}
static inline int64_t
tmpl_as_int(const struct tmpl_value *v)
{
    return v->kind == TMPL_BOOL ? v->b : v->i;
}

/* tmpl_type() is Python's name of a value's type. */
const char *tmpl_type(const struct tmpl_value *v);

/* tmpl_json() is JSON as a value, whose texts are 'of'. */
struct tmpl_value tmpl_json(struct tmpl_heap *heap, const json_t *json,
                            uint32_t of, int depth);

#endif
