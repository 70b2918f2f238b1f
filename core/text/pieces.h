/* SPDX-License-Identifier: ISC */
/*
 * A conversation between its messages and its ids: pieces, each a special token
 * or text, and of each whose it is and whether the model is to say it.
 */
#ifndef CORE_TEXT_PIECES_H
#define CORE_TEXT_PIECES_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/str.h"
#include "core/text/tok.h"

struct chat_piece {
    size_t at, nbytes; /* of the text */
    bool special;      /* the name of a special token, which a NUL ends */
    bool scored;       /* the model says it: it counts for the loss */
    size_t message;    /* whose it is */
    size_t ids_end;    /* of its ids, which pieces_encode() sets */
};

struct pieces {
    struct str text;
    struct chat_piece *list;
    size_t n, room;
    size_t message; /* of what is added next */
    bool scored;
};

/* pieces_add() appends a special token, or text, which continues the last piece
 * if that is text that is as much scored. */
void pieces_add(struct pieces *p, const char *s, size_t nbytes, bool special);
void pieces_free(struct pieces *p);

/*
 * pieces_encode() appends the ids of all pieces, each encoded by itself, and as
 * text (TOK_PLAIN in 'flags'): a special token spelled in it is no special
 * token.  -1 with 'err' set (EX_DATAERR): 'by' needs a special token that the
 * tokenizer has not; as tok_encode().
 */
int pieces_encode(struct pieces *p, const struct tok *tok, const char *by,
                  int flags, struct ids *ids, struct err *err);

#endif
