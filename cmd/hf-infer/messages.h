/* SPDX-License-Identifier: ISC */
/*
 * --chat: conversations, and the text and the ids that the model's chat
 * template makes of them.
 */
#ifndef HF_INFER_MESSAGES_H
#define HF_INFER_MESSAGES_H

#include <jansson.h>
#include <stddef.h>

#include "cmd/hf-infer/run.h"
#include "core/err.h"
#include "core/text/chat.h"

/* messages_check_json(): EX_DATAERR if a text, which was parsed before, has NaN
 * or Infinity, which js_parse() and js_line() replace. */
int messages_check_json(const char *text, size_t nbytes, const char *name,
                        struct err *err);

/* messages_read() reads --messages FILE.json: a list of messages, or an object
 * with messages and other variables of the template, as chat_vars().  NULL with
 * 'err' set (EX_DATAERR, EX_NOINPUT, EX_IOERR).  Owner: the caller. */
json_t *messages_read(const struct run *run, struct err *err);

/* messages_check() reads --template-var; -1 with 'err' set (TU_USAGE).
 * messages_open() opens the templates; -1 with 'err' set as chat_open(). */
int messages_check(struct run *run, struct err *err);
int messages_open(struct run *run, struct err *err);

/*
 * messages_render() renders a conversation, after adding to 'vars' what
 * --system and --template-var say, and add_generation_prompt where it is not
 * said.  It warns once of each variable that the template does not use.
 * messages_ids() appends the ids of that.  The templates, and for ids the
 * tokenizer, are open. -1 with 'err' set (EX_DATAERR); 'where', unless NULL,
 * begins its message.
 */
int messages_render(struct run *run, const char *where, json_t *vars,
                    struct rendered *rendered, struct err *err);
int messages_ids(struct run *run, const char *where, json_t *vars,
                 struct ids *ids, struct err *err);

#endif
