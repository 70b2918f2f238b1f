/* SPDX-License-Identifier: ISC */
/*
 * Regular expressions that come with files, and are bounded: PCRE2 is included
 * here alone.
 *
 * A pattern is bounded when it is compiled: its bytes, what they compile to,
 * the nesting of its groups, how many of them capture, how far it looks back.
 * Ranges in which case is ignored take most time, 0.3 ms a byte.
 *
 * A search is bounded by PCRE2's own limits: from each character it tries at
 * most REGEX_MATCHES plus REGEX_MATCHES_PER_BYTE for each byte of text steps
 * that backtracking could come to, with REGEX_HEAP plus REGEX_HEAP_PER_BYTE
 * bytes of memory for each, at most REGEX_MAX_HEAP.  All searches of one text
 * together take at most REGEX_SECONDS, and a second more for each
 * REGEX_BYTES_PER_SECOND: the clock is looked at between the matches, and after
 * each 128 characters at which none began.
 */
#ifndef CORE_REGEX_H
#define CORE_REGEX_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "core/err.h"

enum {
    REGEX_MAX_PATTERN = 16384, /* bytes */
    REGEX_MAX_CODE = 131072,   /* bytes that it compiles to */
    REGEX_MAX_NEST = 100,      /* groups in groups */
    REGEX_MAX_GROUPS = 100,    /* that capture: each step copies them */
    REGEX_MAX_BACK = 255,      /* characters of a lookbehind */
    REGEX_MATCHES = 1 << 20,
    REGEX_MATCHES_PER_BYTE = 16,
    REGEX_SECONDS = 1,
    REGEX_BYTES_PER_SECOND = 50000, /* PCRE2 without a JIT: 10 MB a second */
    REGEX_HEAP = 1 << 20,           /* bytes */
    REGEX_HEAP_PER_BYTE = 512,
    REGEX_MAX_HEAP = 64 << 20
};

enum {
    REGEX_UNICODE = 1, /* \d, \w and the like are by Unicode's properties */
    REGEX_LINES = 2,   /* ^ and $ are those of lines, not of the text */
    REGEX_LONG = 4     /* for texts of many matches: by PCRE2's JIT, where it is
                          bounded, too */
};

struct regex;

/*
 * regex_compile() makes *re of 'n' bytes in PCRE2's syntax; "\n" alone ends a
 * line.  \C is refused.  'where' begins each message, here and in
 * regex_find().  -1 with 'err' set, and *re NULL: EX_DATAERR (no pattern, or
 * out of bounds), EX_SOFTWARE (no memory).
 * Owner: the caller, until regex_free(); any number of threads may share it.
 */
int regex_compile(struct regex **re, const char *pattern, size_t n, int flags,
                  const char *where, struct err *err);
size_t regex_nbytes(const struct regex *re); /* of memory, roughly */
void regex_free(struct regex *re);           /* NULL is fine */

/* The searches of one text, or of texts that have one bound together; starts
 * as { 0 } and ends with regex_work_free(). */
struct regex_work {
    uint64_t nbytes; /* of text: the caller adds them */
    double seconds;  /* that searches took */
    double ran;      /* the thread's seconds when one was added */
    struct regex_state *state;
};

void regex_work_free(struct regex_work *work);

/*
 * regex_find(): the first match that begins in s[pos..n], all of it valid UTF-8
 * and pos between characters.  1: it is [*a, *b); 0: there is none; -1 with
 * 'err' set: EX_DATAERR (a bound is exceeded, or \K makes it end before it
 * begins), EX_SOFTWARE.
 */
int regex_find(const struct regex *re, struct regex_work *work, const char *s,
               size_t n, size_t pos, size_t *a, size_t *b, struct err *err);

#endif
