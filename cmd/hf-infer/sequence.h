/* SPDX-License-Identifier: ISC */
/*
 * A prompt and what is generated after it: one, or one of many at once.
 */
#ifndef HF_INFER_SEQUENCE_H
#define HF_INFER_SEQUENCE_H

#include "cmd/hf-infer/run.h"

struct sequence {
    const struct run *run;
    const struct session *session; /* NULL: the run's */
    const char *where; /* what an error about the prompt begins with */
    struct sampler sampler;
    const char *asked_by; /* "-n", or what asks for 'asked' tokens */
    int64_t asked;        /* -1: as many as usual */
    struct ids ids;       /* the prompt, then what is generated */
    size_t n_prompt;
    int64_t max_tokens;
    bool to_context; /* max_tokens is what is left of the context */
    struct stop stop;
    struct tok_stream *stream; /* NULL without a tokenizer */
    struct str text;           /* what is certain of it */
    int64_t n_best;            /* -1: no logprobs; else alternatives, each */
    struct str logprobs;       /* JSON objects of the tokens generated */
    const char *finish_reason; /* NULL until it ends */
};

/* sequence_init() gives a sequence of a zeroed struct the run's settings. */
void sequence_init(struct sequence *seq, const struct run *run,
                   const char *where);

/*
 * sequence_plan() decides how many tokens -n and the context allow after the
 * prompt in seq->ids, and begins.  -1 with 'err' set (EX_DATAERR).
 */
int sequence_plan(struct sequence *seq, struct err *err);

/* sequence_positions() is how many tokens the model reads of it at most: all
 * but the last one. */
size_t sequence_positions(const struct sequence *seq);

/*
 * sequence_next() selects a token by its logits [vocab_size], which it
 * overwrites, and adds its text to seq->text.  Once finish_reason is set
 * the text is complete.
 * Threads: several, each with a sequence and a sample of its own.
 * -1 with 'err' set: logits that are not finite, or tok_stream_add()'s
 * (EX_DATAERR).
 */
int sequence_next(struct sequence *seq, struct sample *sample, float *logits,
                  struct err *err);

/* sequence_end() ends the text before it is complete: seq->text gets what the
 * tokenizer or a stop string held back. */
int sequence_end(struct sequence *seq, const char *reason, struct err *err);
void sequence_free(struct sequence *seq);

/* sequence_put_logprobs() appends the member "logprobs" after others, if it was
 * asked for. */
void sequence_put_logprobs(const struct sequence *seq, struct str *line);

/* What run_generate() does of many prompts, or on a terminal without one. */
int run_batch(struct run *run, struct err *err);
int run_converse(struct run *run, struct err *err);

#endif
