/*
 * A pull reader for the JSON of a safetensors header: strict UTF-8, strict
 * grammar, exact 64-bit integers, strings unescaped in place.  Not
 * jansson: that holds integers of 63 bits, refuses NUL in names and takes ten
 * times the header's size in memory.
 */
#ifndef CORE_FORMAT_ST_JSON_H
#define CORE_FORMAT_ST_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define ST_JSON_ROOM    8 /* bytes of zeros behind the text: they stop scans */
#define ST_JSON_NESTING 128

/* A place in the text, and what messages about it need to know. */
struct st_json {
    const char *file;
    struct err *err;
    const char *text;   /* its first byte is byte 8 of the file */
    char *p;            /* what comes next */
    const char *end;    /* ST_JSON_ROOM zeros follow */
    const char *tensor; /* the one being read, or NULL */
    size_t tensor_n;    /* bytes of its name */
    int depth;          /* objects and arrays around 'p' */
};

/*
 * Each returns -1 with EX_DATAERR in j->err where the text is not what it
 * expects ('expected' goes into the message), and stands behind what it read
 * otherwise.
 */

/* st_json_string() reads a string; it is NUL-terminated and may hold NULs. */
int st_json_string(struct st_json *j, const char *expected, char **s,
                   size_t *nbytes);

/* st_json_u64() reads an integer: 1.0, 1e0, -0, "1" and 2^64 are refused. */
int st_json_u64(struct st_json *j, const char *what, uint64_t *v);

/* st_json_skip() checks any value and forgets it. */
int st_json_skip(struct st_json *j);

/*
 * st_json_enter() goes into the object or array that opens with 'c'; then
 * each st_json_next_member() or st_json_next_item() goes to the next value: 1,
 * or 0 behind the closing bracket, which is 'close' for items.
 */
int st_json_enter(struct st_json *j, char c, const char *expected);
int st_json_next_item(struct st_json *j, bool first, char close);
int st_json_next_member(struct st_json *j, bool first, char **key,
                        size_t *nbytes);

void st_json_space(struct st_json *j); /* skips white space */

/* st_json_err() sets "FILE: tensor "NAME": WHAT" (EX_DATAERR), returns -1. */
int st_json_err(struct st_json *j, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* WHAT is "byte N is 'x' (expected EXPECTED)", of the byte at 'at'. */
int st_json_bad(struct st_json *j, const char *at, const char *expected);

/* WHAT is "NAME is TOKEN (expected EXPECTED)", of what stands at j->p. */
int st_json_bad_token(struct st_json *j, const char *name,
                      const char *expected);

/* st_name_shown() is how many bytes of a name a message shows. */
int st_name_shown(const char *name, size_t nbytes);

#endif
