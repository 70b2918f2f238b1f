/*
 * Chat templates by name: chatml, llama3, mistral.  One user message, an
 * optional system text, and what makes the model answer.
 */
#ifndef CORE_TEXT_CHAT_H
#define CORE_TEXT_CHAT_H

#include "core/text/tok.h"

enum chat { CHAT_CHATML, CHAT_LLAMA3, CHAT_MISTRAL };

/* chat_name() is the name of a template. */
const char *chat_name(int chat);

/*
 * chat_is_same(): is this chat_template of a model, whose language is Jinja,
 * known to give the same prompts as 'chat'?  It is not run: false for any that
 * is not among a few published ones.
 */
bool chat_is_same(enum chat chat, const char *text, size_t nbytes);

/*
 * chat_recognise() infers the template from the special tokens that the
 * tokenizer has; -1 with 'err' set (EX_DATAERR) if it has none of them.
 */
int chat_recognise(const struct tok *tok, struct err *err);

/*
 * chat_encode() appends the ids of the whole prompt.  Both texts are encoded as
 * text (TOK_PLAIN in 'flags'): a special token spelled in them is
 * no special token.  'system' may be NULL.
 */
int chat_encode(const struct tok *tok, enum chat chat, const char *system,
                const char *user, size_t user_nbytes, int flags,
                struct ids *ids, struct err *err);

#endif
