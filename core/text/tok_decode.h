/* SPDX-License-Identifier: ISC */
/*
 * Ids to text: the chain of decoders.
 */
#ifndef CORE_TEXT_TOK_DECODE_H
#define CORE_TEXT_TOK_DECODE_H

#include <stddef.h>

#include "core/text/tok_split.h"

enum dec_type {
    DEC_BYTE_LEVEL,
    DEC_METASPACE,
    DEC_REPLACE,
    DEC_BYTE_FALLBACK,
    DEC_FUSE,
    DEC_STRIP
};

struct dec_step {
    enum dec_type type;
    struct metaspace metaspace;
    struct str content;     /* DEC_REPLACE; DEC_STRIP: one character */
    struct tok_regex regex; /* DEC_REPLACE */
    size_t start;           /* DEC_STRIP: characters at most */
};

/* dec_parse() reads the file's "decoder" into tok's steps; -1 with 'err'
 * set (EX_DATAERR).  dec_free(): what a step holds. */
int dec_parse(struct tok *tok, const struct js *js, struct err *err);
void dec_free(struct dec_step *step);

#endif
