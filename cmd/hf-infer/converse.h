/* SPDX-License-Identifier: ISC */
/*
 * --chat on a terminal: a conversation.  Each turn renders all messages by the
 * template, so that an answer is the one that --messages would get for them;
 * what the new ids begin with as the last ones did is in the cache already.
 */
#ifndef HF_INFER_CONVERSE_H
#define HF_INFER_CONVERSE_H

#include "cmd/hf-infer/run.h"

/* run_converse() is what run_generate() does if run->converses.  -1 with 'err'
 * set: the model or its tokenizer could not be opened. */
int run_converse(struct run *run, struct err *err);

#endif
