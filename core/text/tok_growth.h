/* SPDX-License-Identifier: ISC */
/*
 * Limits of the tokenizer's tables and texts, and how far the steps of a part
 * may make a text longer.
 */
#ifndef CORE_TEXT_TOK_GROWTH_H
#define CORE_TEXT_TOK_GROWTH_H

#include <stddef.h>
#include <stdint.h>

#include "core/mem.h"

enum {
    TOK_MAX_STEPS = 16, /* of a normalizer, a pre-tokenizer, a decoder */
    TOK_MAX_ID = (1 << 23) - 1, /* bounds the table of tokens by id */
    TOK_MAX_TOKEN = 16384,      /* bytes of a token in the vocabulary */
    TOK_MAX_PIECE = 1024,      /* bytes of an added token or of a replacement */
    TOK_MAX_AROUND = 1024,     /* ids before a text, and after it */
    TOK_MAX_TEXT = 1 << 30,    /* bytes of one text */
    TOK_MAX_GROWTH = 64,       /* of a text by all steps: NFKD needs 11 */
    TOK_MAX_MORE = 1 << 20,    /* and bytes more, for a short text */
    TOK_MAX_GROWN = INT32_MAX, /* bytes of a text: positions fit 32 bits */
};

/*
 * What the steps of one part made of a text: of all its pieces together, each
 * step at most TOK_MAX_GROWTH times its bytes and TOK_MAX_MORE, and 'most'.
 */
struct growth {
    const char *file, *part; /* for messages */
    size_t most;             /* TOK_MAX_GROWN, or SIZE_MAX */
    size_t nbytes;           /* of the text as it came, so far */
    size_t grown[TOK_MAX_STEPS];
};

static inline size_t
growth_most(const struct growth *g)
{
    return smaller(g->nbytes * TOK_MAX_GROWTH + TOK_MAX_MORE, g->most);
}

/* How many bytes a step may still make. */
static inline size_t
growth_room(const struct growth *g, size_t i_step)
{
    return growth_most(g) - g->grown[i_step];
}

/* growth_add() adds the bytes that a step made of a piece; -1 with 'err' set
 * (EX_DATAERR) if those are too many. */
int growth_add(struct growth *g, size_t i_step, size_t nbytes, struct err *err);

#endif
