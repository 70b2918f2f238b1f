/*
 * Regular expressions that come with files, and are bounded: PCRE2 is included
 * here alone.
 *
 * A pattern is bounded when it is compiled: its bytes, what they compile to,
 * the nesting of its groups, how many of them capture, how far it looks back,
 * how many characters the ranges have in which case is ignored.
 *
 * Searching is counted in steps: an item of the pattern that is tried, and a
 * character that it goes over, is one; so is each further character that an
 * item like x{9} may go over and still fail, and each 32 bytes of the item's
 * own text.  All searches of one text together take at most REGEX_STEPS plus
 * REGEX_STEPS_PER_BYTE for each of its bytes, and for backtracking
 * REGEX_HEAP_PER_BYTE bytes of memory for each plus REGEX_HEAP, at most
 * REGEX_MAX_HEAP.
 *
 * Counting costs time.  With REGEX_LONG a search first tries a copy of the
 * pattern that does not count (by PCRE2's JIT, where that is safe), over
 * REGEX_WINDOW bytes at a time and with REGEX_TRIES backtracks from each
 * character.  That bounds it, too, and suffices where matches are short.  What
 * it cannot tell is counted, and so is a pattern of which one try may take
 * long. A try costs what the pattern compiles to, once more for each
 * repetition; a quick search is one step and the square of that cost, in KiB.
 * Both give the same matches.
 */
#ifndef CORE_REGEX_H
#define CORE_REGEX_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

enum {
    REGEX_MAX_PATTERN = 16384,  /* bytes */
    REGEX_MAX_CODE = 131072,    /* bytes that it compiles to */
    REGEX_MAX_NEST = 100,       /* groups in groups */
    REGEX_MAX_GROUPS = 100,     /* that capture: each step copies them */
    REGEX_MAX_BACK = 255,       /* characters of a lookbehind */
    REGEX_MAX_FOLDED = 1 << 22, /* characters of ranges, where (?i) is: each is
                                   looked up when a pattern is compiled */
    REGEX_STEPS = 1 << 20,
    REGEX_STEPS_PER_BYTE = 256,
    REGEX_HEAP = 1 << 20, /* bytes */
    REGEX_HEAP_PER_BYTE = 512,
    REGEX_MAX_HEAP = 64 << 20,
    REGEX_WINDOW = 128, /* bytes */
    REGEX_TRIES = 16
};

enum {
    REGEX_UNICODE = 1, /* \d, \w and the like are by Unicode's properties */
    REGEX_LINES = 2,   /* ^ and $ are those of lines, not of the text */
    REGEX_LONG = 4     /* for texts of many matches: see above */
};

struct regex;

/*
 * regex_compile() makes *re of 'n' bytes in PCRE2's syntax; "\n" alone ends a
 * line.  \C, \E, \Q, \X and what begins with "(*" are refused.  'where' begins
 * each message, here and in regex_find().  -1 with 'err' set, and *re NULL:
 * EX_DATAERR (no pattern, or out of bounds), EX_SOFTWARE (no memory).
 * Owner: the caller, until regex_free(); any number of threads may share it.
 */
int regex_compile(struct regex **re, const char *pattern, size_t n, int flags,
                  const char *where, struct err *err);
size_t regex_nbytes(const struct regex *re);   /* of memory, roughly */
size_t regex_n_folded(const struct regex *re); /* of REGEX_MAX_FOLDED */
void regex_free(struct regex *re);             /* NULL is fine */

/* The searches of one text, or of texts that have one bound together; starts
 * as { 0 } and ends with regex_work_free(). */
struct regex_work {
    uint64_t nbytes; /* of text: the caller adds them */
    uint64_t steps;  /* taken, of those that are counted */
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
