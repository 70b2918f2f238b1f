/*
 * What core/regex.c must know of a pattern and PCRE2 does not say.
 */
#ifndef CORE_REGEX_TEXT_H
#define CORE_REGEX_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct regex_text {
    const char *refused; /* \Q, \E or "(*": without a meaning to Python and to
                            Oniguruma, and misleading here; \X: takes a text's
                            length squared, uncounted; or NULL */
    bool has_start;      /* \G is there: where a search began */
    size_t
        repeat; /* the largest number of an interval, in brackets and comments
                   too: so many characters an item may take, and yet fail */
    size_t n_folded; /* characters in ranges, if case is ignored anywhere:
                        compiling goes over each */
    /* PCRE2's JIT counts all of its backtracking.  It does not where it comes
     * back to the alternatives of a group that is not repeated. */
    bool jit_counts;
};

/* regex_text_read() sets all of it.  Where it cannot tell, it is on the safe
 * side: a pattern is slower, or has fewer steps. */
void regex_text_read(struct regex_text *text, const char *pattern, size_t n);

#endif
