/* SPDX-License-Identifier: ISC */
/*
 * A template's text as tokens: Jinja's lexer, with trim_blocks and
 * lstrip_blocks.
 */
#ifndef CORE_TEXT_TEMPLATE_LEX_H
#define CORE_TEXT_TEMPLATE_LEX_H

#include "core/err.h"
#include "core/text/template_value.h"

/* An operator of one character is that character. */
enum {
    TMPL_END = 256, /* of the template */
    TMPL_DATA,      /* text between tags */
    TMPL_PRINT,     /* {{ */
    TMPL_PRINT_END,
    TMPL_BLOCK, /* {% */
    TMPL_BLOCK_END,
    TMPL_NAME,
    TMPL_STRING,
    TMPL_NUMBER,
    TMPL_FLOORDIV, /* // ** == != >= <= */
    TMPL_POW,
    TMPL_EQ,
    TMPL_NE,
    TMPL_GE,
    TMPL_LE
};

struct tmpl_token {
    int type;
    unsigned line;           /* 1, .. */
    struct tmpl_value value; /* text, number, or the token as it is written */
};

/*
 * tmpl_lex() makes the tokens of a text, the last of them TMPL_END.  'name'
 * begins messages.  -1 with 'err' set (EX_DATAERR).
 * Owner: 'heap', of tokens and their bytes.
 */
int tmpl_lex(struct tmpl_heap *heap, const char *name, const char *text,
             size_t nbytes, struct tmpl_token **tokens, struct err *err);

/* tmpl_space() is the length of the white space character, as Python has it,
 * that s begins with, or 0.  tmpl_space_before() that of the one that ends at
 * s + n. */
size_t tmpl_space(const char *s, size_t n);
size_t tmpl_space_before(const char *s, size_t n);

#endif
