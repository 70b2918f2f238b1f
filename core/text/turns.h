/* SPDX-License-Identifier: ISC */
/* What of a rendered conversation the model says: the targets of training. */
#ifndef CORE_TEXT_TURNS_H
#define CORE_TEXT_TURNS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/text/chat.h"
#include "core/text/tok.h"

/*
 * chat_turns() finds the replies in 'whole', which chat_render() has made of
 * 'vars' without a generation prompt: ascending, none empty, for chat_encode().
 * They are the {% generation %} blocks, if the template has some.  Else there
 * is one for each message whose role is "assistant" (or Granite's
 * "assistant_tool_call"):
 *
 *   it begins   where its prompt ends, the messages before it rendered with a
 *               generation prompt.  The text begins with this prompt, or, as
 *               templates render earlier messages differently later on, with
 *               what the prompt has after their last byte at that place;
 *   it ends     with the first special token of the template that is in 'eos'
 *               before the text of another message; else with the first special
 *               one after the message's own last byte, unless it is the one
 *               that began the reply; else with that byte.
 *
 * Ends with free(*turns).  -1 with 'err' set (EX_DATAERR): the message whose
 * prompt the text does not have, or cannot be rendered.
 * Cost: the template runs once more for each reply.
 * Source: trl, whose prompts are rendered prefixes; transformers,
 * return_assistant_tokens_mask.
 */
int chat_turns(const struct chat *chat, const struct tok *tok,
               const int32_t *eos, size_t n_eos, const json_t *vars,
               const struct rendered *whole, struct chat_turn **turns,
               size_t *n, struct err *err);

#endif
