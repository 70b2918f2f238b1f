/* SPDX-License-Identifier: ISC */
/*
 * Pre-tokenizers: a text cut into words.
 */
#ifndef CORE_TEXT_TOK_SPLIT_H
#define CORE_TEXT_TOK_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/text/tok.h"
#include "core/text/tok_regex.h"

enum split_type {
    SPLIT_BYTE_LEVEL,
    SPLIT_MAP_BYTES,
    SPLIT_PATTERN,
    SPLIT_METASPACE
};
enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_PREVIOUS,
    SPLIT_NEXT,
    SPLIT_CONTIGUOUS
};
enum prepend { PREPEND_ALWAYS, PREPEND_NEVER, PREPEND_FIRST };

struct metaspace {
    char replacement[5];
    size_t n;
    enum prepend prepend;
    bool split;
};

struct split_step {
    enum split_type type;
    struct tok_regex regex; /* where it is cut: SPLIT_PATTERN, or, if any,
                             * SPLIT_BYTE_LEVEL and SPLIT_METASPACE */
    enum split_behavior behavior;
    bool invert;
    bool add_prefix_space;
    struct metaspace metaspace;
};

struct encoder;

/* split_run() calls word_encode() for each word of a piece, in order. */
int split_run(struct encoder *enc, size_t i_step, const char *s, size_t n,
              bool first);

/* split_parse() reads the file's "pre_tokenizer" into tok's steps,
 * metaspace_parse() one step or decoder; -1 with 'err' set (EX_DATAERR).
 * split_free(): what a step holds. */
int split_parse(struct tok *tok, const struct js *js, struct err *err);
int metaspace_parse(struct metaspace *meta, const struct js *js,
                    struct err *err);
void split_free(struct split_step *step);

#endif
