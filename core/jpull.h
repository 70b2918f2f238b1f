/* SPDX-License-Identifier: ISC */
/*
 * A pull reader for JSON that must not become a tree: headers of safetensors,
 * vocabularies, texts that are hashed.  Strict UTF-8 and strict grammar, exact
 * integers of 64 bits, nothing allocated.  Other JSON goes through jansson
 * (core/js.h), which holds integers of 63 bits, refuses NUL in names and takes
 * ten times the text in memory.
 */
#ifndef CORE_JPULL_H
#define CORE_JPULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/str.h"

/*
 * A place in a text.  The first failure stays: 'expected' is then set, and
 * 'p' is no longer of use.  What it was may become a message, "byte 9 is 't'
 * (expected a name in quotes)".
 */
struct jpull {
    const char *text, *end;
    const char *p;        /* what comes next */
    int depth, max_depth; /* objects and arrays around 'p'; more is an error */
    bool first;           /* 'p' is at the first item of an object or array */
    bool python;          /* NaN, Infinity and lone surrogates are allowed */
    const char *expected; /* NULL: nothing failed */
    const char *at;       /* where; 'end' if the text is too short */
    bool too_deep;        /* that was a bracket beyond max_depth */
};

/* A string in the text, without its quotes. */
struct jspan {
    const char *s;
    size_t n;
    bool escaped; /* it has backslashes */
};

/* jpull_start() is a reader at the start of a text. */
struct jpull jpull_start(const char *text, size_t nbytes, int max_depth);

/* jpull_fail() sets 'expected', unless something failed before; false. */
bool jpull_fail(struct jpull *j, const char *at, const char *expected);

/* jpull_line() is the line and column of a failure, from 1. */
size_t jpull_line(const struct jpull *j, size_t *column);

/* jpull_peek() skips white space and is what comes next, or '\0'. */
char jpull_peek(struct jpull *j);

/* jpull_word() skips a word such as "null"; false if it does not come next,
 * which is no failure. */
bool jpull_word(struct jpull *j, const char *word);

/* The next value, which starts at 'p' and must be of that kind; false where
 * it is not, and the failure expects 'expected'. */
bool jpull_string(struct jpull *j, const char *expected, struct jspan *s);
bool jpull_number(struct jpull *j, bool *is_float); /* its grammar alone */
bool jpull_u64(struct jpull *j, uint64_t *v);       /* not 1.0, 1e0, -0, 2^64 */
bool jpull_skip(struct jpull *j);                   /* any value */

/*
 * jpull_enter() goes into the object or array that opens with 'open'; then
 * each jpull_member() or jpull_item() goes to its next value: true, or false
 * after the closing bracket ('close' for items), and at a failure.
 */
bool jpull_enter(struct jpull *j, char open, const char *expected);
bool jpull_item(struct jpull *j, char close);
bool jpull_member(struct jpull *j, struct jspan *key);

/* jpull_done(): did all go well, and do only spaces follow? */
bool jpull_done(struct jpull *j);

/* jspan_decode() writes what a string means to 'to', which has room for s->n
 * bytes and may be s->s; the number of bytes.  UTF-8, but for lone surrogates,
 * which are three bytes each. */
size_t jspan_decode(const struct jspan *s, char *to);
void jspan_add(const struct jspan *s, struct str *to); /* appends that */

/* jspan_is(): does a string mean 'word', of at most 16 letters? */
bool jspan_means(const struct jspan *s, const char *word, size_t nbytes);

static inline bool
jspan_is(const struct jspan *s, const char *word)
{
    size_t n = strlen(word);

    if (s->escaped)
        return jspan_means(s, word, n);
    return s->n == n && memcmp(s->s, word, n) == 0;
}

/* jput_escape() appends a code point as \n, \", .. or as \uXXXX: a pair of
 * surrogates beyond 16 bits. */
void jput_escape(struct str *out, uint32_t code_point);

#endif
