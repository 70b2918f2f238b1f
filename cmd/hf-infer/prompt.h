/* SPDX-License-Identifier: ISC */
/*
 * The prompt: as text or as ids, wherever it comes from.
 */
#ifndef HF_INFER_PROMPT_H
#define HF_INFER_PROMPT_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/hf-infer/run.h"
#include "core/err.h"
#include "core/str.h"
#include "core/text/tok.h"

/* prompt_name() is what a message about the prompt begins with: "-p", "--ids",
 * the file's name, "standard input". */
const char *prompt_name(const struct run *run);

/* prompt_vars() is the prompt of --chat, as messages.h has it: of --messages,
 * or of a text; NULL with 'err' set.  prompt_say() is it of one text, of
 * 'name'.  Owner: the caller. */
json_t *prompt_vars(struct run *run, struct err *err);
json_t *prompt_say(const struct run *run, const char *name,
                   const struct str *text, struct err *err);

/* prompt_ids() appends the prompt's ids, whichever way it came. */
int prompt_ids(struct run *run, struct ids *ids, struct err *err);

/* prompt_bos() puts bos before the ids from 'first' on, if --prepend-bos asks
 * for it and they do not begin with it; else it warns once where an SAE was
 * trained with it.  After the model is open. */
int prompt_bos(struct run *run, struct ids *ids, size_t first, struct err *err);

/* prompt_encode() appends the ids of a text as a prompt; 'name' is the text's,
 * for messages. */
int prompt_encode(struct run *run, const char *name, const struct str *text,
                  struct ids *ids, struct err *err);

/* prompt_is_text(): TU_USAGE if a text from outside begins with a JSON object
 * that has a prompt in it, unless --as-text is given. */
int prompt_is_text(const struct run *run, const char *name,
                   const struct str *text, struct err *err);

/* ids_parse() reads "1,47,387" or "1 47 387\n"; 'name' is for messages. */
int ids_parse(const char *text, size_t nbytes, const char *name,
              struct ids *ids, struct err *err);

/* ids_check(): EX_DATAERR if one of n ids is not below vocab_size. */
int ids_check(const int32_t *ids, size_t n, int64_t vocab_size,
              const char *name, struct err *err);

/* put_ids() appends "1 2 3"; put_json_ids() "[1,2,3]". */
void put_ids(struct str *str, const int32_t *ids, size_t n);
void put_json_ids(struct str *str, const int32_t *ids, size_t n);

#endif
