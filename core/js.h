/* SPDX-License-Identifier: ISC */
/*
 * JSON through jansson, with the file and the path in every message:
 * "config.json: rope_scaling.factor is "x" (expected a number)".
 * The safetensors header does not go through here: see core/format/st.h.
 */
#ifndef CORE_JS_H
#define CORE_JS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/str.h"

/* Bytes of a text, at most.  jansson uses up to 80 bytes of memory for each,
 * at worst with "[{},{},{}]". */
#define JS_MAX_BYTES ((size_t)128 << 20)

/* A value and where it came from; cheap to copy, lives as long as its root. */
struct js {
    const json_t *v;  /* NULL: absent */
    const char *file; /* for messages */
    char path[160];   /* "rope_scaling.factor"; "" is the root */
};

/*
 * js_load() reads a whole JSON file, which must be regular: a FIFO
 * would block (duplicate keys are an error; NaN and Infinity, which Python
 * writes, are strings, and where one of these is, or an integer beyond 64 bits,
 * integers of 19 digits or more are reals).  NULL with 'err' set: EX_NOINPUT,
 * EX_IOERR, EX_DATAERR (with line and column).  Nested at most JS_DEPTH deep:
 * written again in lines, a value may take JS_DEPTH times the indentation.
 * Owner: the caller, until json_decref().
 */
#define JS_DEPTH 64
json_t *js_load(const char *path, struct err *err);
json_t *js_parse(const char *text, size_t nbytes, const char *name,
                 struct err *err);

/* js_parse_nuls() is js_parse() for texts: NULs in strings are as good as
 * others. */
json_t *js_parse_nuls(const char *text, size_t nbytes, const char *name,
                      struct err *err);

/* js_line() reads line 'number', 1, .., of a file of JSON objects: as
 * js_load(), but NULs in strings are as good as others, and NaN and Infinity
 * are objects, that js_bad() names.  NULL with 'err' set (EX_DATAERR). */
json_t *js_line(const char *line, size_t nbytes, const char *name,
                size_t number, struct err *err);

/* js_finite(): is none of these objects in a value of such a line?  0, or -1
 * with 'err' set as js_bad(). */
int js_finite(const struct js *js, struct err *err);

/* js_mark(): bytes of the byte order mark that a text begins with, 3 or 0. */
size_t js_mark(const char *text, size_t nbytes);

/* js_check(): has the text no NUL, and does it nest at most JS_DEPTH deep?  0,
 * or -1 with 'err' set (EX_DATAERR).  'line': its first in its file, 1, .. */
int js_check(const char *text, size_t nbytes, const char *name, size_t line,
             struct err *err);

struct js js_root(const json_t *v, const char *file);
struct js js_get(const struct js *obj, const char *key); /* v NULL if absent */
struct js js_at(const struct js *array, size_t i);
bool js_is(const struct js *js, json_type type);
bool js_absent(const struct js *js); /* not there, or null */

/* The value as a type, or -1 with EX_DATAERR naming path, found, expected.
 * 'nbytes' NULL: a string with a NUL in it is none. */
int js_str(const struct js *js, const char **s, size_t *nbytes,
           struct err *err);
int js_i64(const struct js *js, int64_t min, int64_t max, int64_t *v,
           struct err *err);
int js_whole(const struct js *js, int64_t min, int64_t max, int64_t *v,
             struct err *err); /* js_i64(), or a real such as 64.0 */
int js_f64(const struct js *js, double *v, struct err *err); /* int or real */
int js_bool(const struct js *js, bool *v, struct err *err);

/* js_bool_or() is js_bool() of a member, or 'unset' if js_absent(). */
int js_bool_or(const struct js *obj, const char *key, bool unset, bool *v,
               struct err *err);

/* js_bad(): EX_DATAERR "FILE: PATH is FOUND (expected WHAT)". */
int js_bad(const struct js *js, const char *expected, struct err *err);

/*
 * js_unknown() goes through the members of an object, from *at NULL on, for a
 * reader that names what it ignores: the name of the next one that is not in
 * 'known', up to a NULL, and asks for something, as null, false, and an empty
 * string, array or object do not; or NULL.
 */
const char *js_unknown(const struct js *object, const char *const *known,
                       void **at);

/* js_put_str() appends a quoted JSON string: UTF-8 as it is, but controls and
 * what utf8_deceives() escaped, and what is not UTF-8 as U+FFFD. */
void js_put_str(struct str *str, const char *s, size_t nbytes);

/* js_put_json() appends JSON that was parsed before, of the same value, with
 * DEL and what utf8_deceives() escaped, and spaces for carriage returns. */
void js_put_json(struct str *str, const char *json, size_t nbytes);

/* js_put_f64() appends the fewest digits that read back as v, as Python does,
 * but whole numbers under 10^15 without ".0"; NaN and infinities, which JSON
 * does not have, become null. */
void js_put_f64(struct str *str, double v);

/* js_addf() appends JSON by a printf format of integers and of %s, js_put_str()
 * of a string or null for NULL, and %g, js_put_f64(). */
void js_addf(struct str *str, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
