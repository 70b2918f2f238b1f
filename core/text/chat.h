/* SPDX-License-Identifier: ISC */
/*
 * A model's chat templates: conversations become text, and the text ids.
 *
 * A model has them in chat_template.jinja, which wins, or in chat_template of
 * tokenizer_config.json, a string or an array of templates with names; more
 * with names may be in additional_chat_templates/NAME.jinja.  The language is
 * core/text/template.h's.
 */
#ifndef CORE_TEXT_CHAT_H
#define CORE_TEXT_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/js.h"
#include "core/text/template.h"
#include "core/text/tok.h"

struct chat;

/*
 * chat_open() reads the templates of a model's directory, and its special
 * tokens: members of tokenizer_config.json, of its extra_special_tokens, else
 * of special_tokens_map.json, whose names end with "_token".  'which' is a FILE
 * (one is there, or it has a '/', or ends with .jinja), or the name of one of
 * the model's templates; NULL is "default", or "tool_use" for conversations
 * with tools, if there is one.
 * -1 with 'err' set: EX_DATAERR (there is no template, or it is wrong, as
 * template_open()), EX_NOINPUT, EX_IOERR.  Owner: the caller, until
 * chat_close(), which takes NULL, too.  Threads may share it.
 */
int chat_open(struct chat **chat, const char *dir, const char *which,
              struct err *err);
void chat_close(struct chat *chat);

/* chat_name() is the template's, for messages: its file; and of one in
 * tokenizer_config.json its name. */
const char *chat_name(const struct chat *chat);

/* chat_digest() is a hash of the templates and of the special tokens. */
const char *chat_digest(const struct chat *chat);

/*
 * chat_vars() makes a template's variables of an object: all its members but
 * 'settings', up to a NULL, which are the caller's, and those in its
 * chat_template_kwargs.  NULL with 'err' set (EX_DATAERR): messages, tools or
 * documents is no array of objects; one name stands in both places.
 */
json_t *chat_vars(const struct js *object, const char *const *settings,
                  struct err *err);

/* chat_text() is a text as JSON: UTF-8, as tok_utf8() makes it of a text of
 * 'name', or NULL with 'err' set as there. */
json_t *chat_text(const char *name, const char *text, size_t nbytes,
                  bool strict_utf8, struct err *err);

/* chat_set_var() adds the argument of --template-var, NAME=VALUE, to variables:
 * VALUE is JSON, if it reads as such, else chat_text().  0,
 * or -1 with 'err' set (TU_USAGE; EX_DATAERR for JSON with a NUL or too deep,
 * and for tools and documents as chat_vars()).
 */
int chat_set_var(json_t *vars, const char *arg, bool strict_utf8,
                 struct err *err);

/*
 * chat_render() renders a conversation: 'vars' is an object with messages and
 * what else the template is to know.  Where vars does not have them, tools and
 * documents are null, add_generation_prompt false, and the special tokens those
 * of the model, as in transformers.  -1 with 'err' set as template_render(), or
 * as chat_open() for a "tool_use" that is wrong.
 * chat_mentions(): does the template that would render them use a variable?
 */
int chat_render(const struct chat *chat, const json_t *vars,
                struct rendered *rendered, struct err *err);
bool chat_mentions(const struct chat *chat, const json_t *vars,
                   const char *variable);

/* What the model says: 'begin' and 'end' are bytes of the text; chat_encode()
 * sets the ids. */
struct chat_turn {
    size_t begin, end;
    size_t first_id, end_id; /* first_id .. end_id - 1 of the list */
};

/*
 * chat_encode() appends the ids of a rendered text, encoded whole and without
 * what the post-processor adds, as apply_chat_template(tokenize=True) does, but
 * cut where a turn begins or ends, so that ids are of one side.  Turns are
 * ascending and do not overlap.  A special token whose first or last byte is of
 * a variable is text: see tok_encode_marked().  -1 with 'err' set (EX_DATAERR).
 */
int chat_encode(const struct tok *tok, const struct rendered *rendered,
                struct chat_turn *turns, size_t n_turns, int flags,
                struct ids *ids, struct err *err);

#endif
