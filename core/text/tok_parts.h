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

/* part_type() is a part's "type"; part_unknown() and part_too_many() are
 * errors; part_sequence() calls 'parse' for each part of a Sequence. */
int part_type(const struct js *js, const char **type, struct err *err);
int part_unknown(const struct js *js, const char *known, struct err *err);
int part_bool(const struct js *js, const char *key, int absent, bool *v,
              struct err *err); /* absent: 0, 1, or -1 for an error */
int part_too_many(const struct js *js, struct err *err);
int part_sequence(struct tok *tok, const struct js *js, const char *key,
                  int (*parse)(struct tok *, const struct js *, struct err *),
                  struct err *err);
int part_str(const struct js *js, const char *key, struct str *s,
             struct err *err);

#endif
