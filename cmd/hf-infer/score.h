/* SPDX-License-Identifier: ISC */
/*
 * How likely a model takes a text to be: --nll, --ppl, and those that score a
 * text several times.
 */
#ifndef HF_INFER_SCORE_H
#define HF_INFER_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/hf-infer/prompt.h"
#include "cmd/hf-infer/run.h"
#include "core/tty.h"

/* A text that is scored. */
struct nll {
    struct run *run;
    const char *where;  /* the text, in messages */
    const int32_t *ids; /* [n_ids] the text, up to a window's end */
    size_t n_ids;
    size_t rows;         /* positions whose logits are asked for in one call */
    float *logits;       /* [rows, vocab_size] */
    const int32_t *next; /* [rows] what they are about: the token after each */
    double *of_row;      /* [rows] nats */
    double sum, part;    /* nats of all tokens, and since part was set to 0 */
    size_t n, n_fed;     /* tokens in sum; all that were run */
    bool silent;         /* no line for each token */
    double *kept;        /* [window] gets each token's nats; or NULL */
    size_t n_kept;
    /* is called for each window instead of score_tokens(): its tokens are
     * begin .. end - 1, of which the first 'seen' were in one before; NULL */
    int (*window)(struct nll *nll, size_t begin, size_t end, size_t seen,
                  struct err *err);
    void *ctx;       /* of 'window' */
    struct ids text; /* of the prompt */
    struct progress progress;
};

/*
 * A text that is scored several times.  score_open() reads the prompt and opens
 * the model and an engine; score_again() sets nll->sum and nll->n;
 * score_close() takes NULL, too.
 */
struct nll *score_open(struct run *run, const char *option, struct err *err);
int score_again(struct nll *nll, struct err *err);
void score_close(struct nll *nll);

/*
 * score_tokens() feeds tokens begin .. end - 1 of the text and scores the token
 * after each that has one, from token 'first' on.  Rows are scored by any
 * thread, and summed in their order.  score_window() is how long windows are.
 */
int score_tokens(struct nll *nll, size_t begin, size_t end, size_t first,
                 struct err *err);
size_t score_window(const struct run *run);

/* score_each() is --ablate-each: it scores the text as it is, and again without
 * each latent, and prints the table. */
int score_each(struct nll *nll, struct err *err);

#endif
