/* SPDX-License-Identifier: ISC */
/*
 * Normalizers: Unicode forms, replacements.
 */
#ifndef CORE_TEXT_TOK_NORM_H
#define CORE_TEXT_TOK_NORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/text/tok.h"
#include "core/text/tok_growth.h"
#include "core/text/tok_regex.h"

enum norm_type { NORM_UNICODE, NORM_PREPEND, NORM_REPLACE };

struct norm_step {
    enum norm_type type;
    bool compose, compat;   /* NORM_UNICODE: NFC is compose alone */
    struct str content;     /* NORM_PREPEND, NORM_REPLACE */
    struct tok_regex regex; /* NORM_REPLACE */
};

/* norm_run() makes 'out' the normalized form of s, a piece of what 'growth'
 * counts; 'work' bounds the regexes.  *at_start becomes false if the first
 * character of s is not what 'out' begins with. */
int norm_run(const struct norm_step *steps, size_t n_steps, const char *s,
             size_t n, struct growth *growth, struct regex_work *work,
             struct str *out, bool *at_start, struct err *err);

/* norm_parse() reads the file's "normalizer" into tok's steps; -1 with 'err'
 * set (EX_DATAERR).  norm_free(): what a step holds. */
int norm_parse(struct tok *tok, const struct js *js, struct err *err);
void norm_free(struct norm_step *step);

/* is_white_space(): a code point of Unicode's White_Space. */
bool is_white_space(uint32_t c);

#endif
