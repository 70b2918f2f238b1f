/* SPDX-License-Identifier: ISC */
/* What the token ids of a RUN spell in the model that they are of. */
#ifndef SAE_LOOK_TOKENS_H
#define SAE_LOOK_TOKENS_H

#include <stdint.h>

#include "core/err.h"
#include "core/str.h"
#include "core/text/tok.h"

/* tokens_open() opens the tokenizer of a model's directory; of NULL, and
 * 'needed' false where it has none, *tok is NULL.  0, or -1 with 'err' set.
 * Owner: the caller, tok_close(). */
int tokens_open(struct tok **tok, const char *dir, bool needed,
                struct err *err);

/* tokens_json() appends the spelling of n ids as an array of strings, null for
 * an id that is none; tokens_one() of one id.  tokens_esc() appends an id's own
 * bytes, safe on a line, nothing of an unknown one. */
void tokens_json(struct str *to, const struct tok *tok, const int32_t *ids,
                 size_t n);
void tokens_one(struct str *to, const struct tok *tok, int32_t id);
void tokens_esc(struct str *to, const struct tok *tok, int32_t id);

#endif
