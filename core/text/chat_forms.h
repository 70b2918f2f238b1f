/* SPDX-License-Identifier: ISC */
/*
 * Chat templates by name: chatml, llama3, mistral, qwen3.  Messages of the
 * system, of users and of the assistant become the ids of a conversation.
 */
#ifndef CORE_TEXT_CHAT_FORMS_H
#define CORE_TEXT_CHAT_FORMS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/str.h"
#include "core/text/tok.h"

/* qwen3 is chatml but for replies, whose reasoning it has between <think> and
 * </think>. */
enum chat_form { CHAT_CHATML, CHAT_LLAMA3, CHAT_MISTRAL, CHAT_QWEN3 };

/* chat_form_name() is the name of a template. */
const char *chat_form_name(int chat);

/*
 * chat_form_is_same(): is this chat_template of a model, whose language is
 * Jinja, known to give the same prompts as 'chat'?  It is not run: false for
 * any that is not among a few published ones.
 */
bool chat_form_is_same(enum chat_form chat, const char *text, size_t nbytes);

/* chat_form_known() is the template of the conversations that a model's
 * chat_template gives; -1: it is not one of those few. */
int chat_form_known(const char *text, size_t nbytes);

/*
 * chat_form_template() appends the model's own chat_template, of
 * DIR/chat_template.jinja or DIR/tokenizer_config.json; nothing without one.
 * 0, or -1 with 'err' set (EX_NOINPUT, EX_IOERR, EX_DATAERR).
 */
int chat_form_template(const char *dir, struct str *text, struct err *err);

/*
 * chat_form_recognise() infers the template from the special tokens that the
 * tokenizer has; -1 with 'err' set (EX_DATAERR) if it has none of them.
 */
int chat_form_recognise(const struct tok *tok, struct err *err);

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };

struct chat_message {
    enum chat_role role;
    const char *text;
    size_t nbytes;
    size_t begin, end; /* of the assistant: ids begin to end - 1, which
                        * chat_form_encode() sets, are what the model says: the
                        * text and the token that ends it */
};

/*
 * chat_form_encode() appends the ids of a whole conversation, and with 'answer'
 * what makes the model reply.  Texts are encoded as text (TOK_PLAIN in
 * 'flags'): a special token spelled in them is no special token.  A reply is
 * encoded apart from what is before it.  -1 with 'err' set (EX_DATAERR),
 * without a name.
 */
int chat_form_encode(const struct tok *tok, enum chat_form chat,
                     struct chat_message *messages, size_t n, bool answer,
                     int flags, struct ids *ids, struct err *err);

#endif
