/* SPDX-License-Identifier: ISC */
/* Examples for moe-sft tune: lines of JSON as tokens and labels. */
#ifndef MOE_SFT_TUNE_DATA_H
#define MOE_SFT_TUNE_DATA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/hash.h"
#include "core/model/config.h"
#include "core/text/chat.h"
#include "core/text/tok.h"

/* How texts become tokens; starts with the first four. */
struct tune_text {
    const char *dir; /* the model's */
    const struct config *config;
    const char *template; /* as chat_open()'s 'which' */
    const json_t *vars;   /* of the template, where a line does not have them */
    struct chat *chat;    /* NULL: no line so far had messages */
    struct tok *tok;      /* NULL: no line so far had text */
    int32_t eos;          /* -1: the model has none */
    int said;             /* of tok_warn_added() */
};
void tune_text_close(struct tune_text *text);

/*
 * The examples of a file, whose line is one of
 *   {"messages": [{"role": "user", "content": "text"}, ..], "tools": [..], ..}
 *   {"prompt": "text", "completion": "text"}     {"text": "text"}
 *   {"ids": [1, 2], "labels": [-100, 2]}
 * More members of messages and next to them are the template's variables, those
 * of other forms are ignored.  Labels are LM_NO_LABEL where a token is not
 * predicted, as an example's first never is.
 */
struct tune_example {
    size_t first, n; /* tokens in the arrays below */
    size_t line;     /* of the file, 1, .. */
};
struct tune_data {
    struct tune_example *examples; /* [n] */
    size_t n, cap;
    struct ids ids, labels; /* of all, one after another */
    size_t n_targets;
    size_t n_truncated, n_dropped; /* examples; those dropped, too, were cut */
    size_t longest;                /* tokens */
    char digest[HASH_MAX_HEX];
};

/*
 * tune_data_open() reads a file, or standard input for "-".  Examples of more
 * than 'ctx' tokens are cut; those that have no target left are dropped.
 * -1 with 'err' set: EX_DATAERR names the line that is wrong, or has more
 * tokens than the model has positions.
 * Source: trl, SFTTrainer._prepare_dataset(); contract: man/moe-sft-tune.1.
 */
int tune_data_open(struct tune_data *data, const char *path,
                   struct tune_text *text, size_t ctx, struct err *err);
void tune_data_close(struct tune_data *data); /* a zeroed struct is fine */

#endif
