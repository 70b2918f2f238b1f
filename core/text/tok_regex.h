/* SPDX-License-Identifier: ISC */
/*
 * Regular expressions of Oniguruma's kind, as the reference has them, by PCRE2.
 */
#ifndef CORE_TEXT_TOK_REGEX_H
#define CORE_TEXT_TOK_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/js.h"
#include "core/regex.h"

struct tok_regex {
    struct regex *re; /* NULL: none, or literal text */
    struct str literal;
    bool is_literal;
    char *where; /* "tokenizer.json: pre_tokenizer.pattern" */
};

/* tok_regex_parse() takes {"Regex": ..} or {"String": ..}; -1 with 'err' set
 * (EX_DATAERR) at what PCRE2 cannot say. */
int tok_regex_parse(struct tok_regex *regex, const struct js *pattern,
                    struct err *err);
void tok_regex_free(struct tok_regex *regex);

/* Matches of one regex in one text, in the reference's order; begins as
 * tok_regex_start() has it. */
struct tok_regex_iter {
    const struct tok_regex *regex;
    struct regex_work *work; /* of all the text that is bounded together */
    const char *s;
    size_t n, pos;
    size_t last_end; /* of the last match; SIZE_MAX before it */
};

static inline struct tok_regex_iter
tok_regex_start(const struct tok_regex *regex, struct regex_work *work,
                const char *s, size_t n)
{
    return (struct tok_regex_iter){ regex, work, s, n, 0, SIZE_MAX };
}

/* tok_regex_next() is 1: a match at [a, b); 0: no more; -1 with 'err' set. */
int tok_regex_next(struct tok_regex_iter *iter, size_t *a, size_t *b,
                   struct err *err);

#endif
