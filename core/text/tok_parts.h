/* SPDX-License-Identifier: ISC */
/*
 * The parts of tokenizer.json that add tokens, and what the parsers of all
 * parts share: each is -1 with 'err' set (EX_DATAERR) at what is not supported.
 */
#ifndef CORE_TEXT_TOK_PARTS_H
#define CORE_TEXT_TOK_PARTS_H

#include <stdbool.h>

#include "core/js.h"
#include "core/text/tok.h"

/* added_parse() reads "added_tokens", post_parse() "post_processor". */
int added_parse(struct tok *tok, const struct js *list, struct err *err);
int post_parse(struct tok *tok, const struct js *js, struct err *err);

/*
 * part_step() reads a part's "type".  Of a Sequence it calls 'parse' for each
 * part in 'sequence' and returns 0; else it counts one more step in *n_steps,
 * which may be NULL, and returns 1.
 * part_unknown(), part_too_many(): errors.
 */
int part_step(struct tok *tok, const struct js *js, const char *sequence,
              int (*parse)(struct tok *, const struct js *, struct err *),
              size_t *n_steps, const char **type, struct err *err);
int part_unknown(const struct js *js, const char *known, struct err *err);
int part_too_many(const struct js *js, struct err *err);

/* Members: 'absent' is 0, 1, or -1 for an error. */
int part_bool(const struct js *js, const char *key, int absent, bool *v,
              struct err *err);
int part_str(const struct js *js, const char *key, struct str *s,
             struct err *err);

#endif
