/* SPDX-License-Identifier: ISC */
/*
 * Attention of a chunk's queries over the KV cache.
 */
#ifndef CORE_MODEL_ATTENTION_H
#define CORE_MODEL_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>

#include "core/model/block.h"
#include "core/model/config.h"
#include "core/par.h"

/* One call of attention: the spans' queries, whose keys and values are in the
 * cache already. */
struct attention {
    size_t n_heads, n_kv_heads, head_dim, v_head_dim;
    float scale;   /* of scores: q k^T scale */
    float softcap; /* they become cap tanh(score / cap); 0: none; not 'bf16' */
    size_t window; /* 0: none */
    const float *sinks; /* [n_heads] a logit of each head's softmax that has no
                         * value; NULL: none */
    bool both_ways; /* a span's queries see all keys up to its last one: it has
                     * the whole sequence */
    size_t layer;
    const struct span *spans;
    size_t n_spans;
    const float *q; /* [rows, n_heads, head_dim], rotated */
    float *out;     /* [rows, n_heads, v_head_dim] */
    float *lse;     /* [rows, n_heads] log of the sum of exp of a query's scores
                     * and sink, which a backward needs; NULL: not wanted */
    bool bf16; /* of prompts and training: queries, keys, weights and values are
                * rounded for their products; sums and softmax are f32 */
    float *scratch; /* [threads, attention_scratch()], 64-byte aligned */
};

/* attention_takes_bf16(): is 'bf16' faster on this CPU, and has it room?  Not
 * where scores are capped, which it cannot do.  It decides for prompts and for
 * training, whose losses must agree. */
bool attention_takes_bf16(const struct config *config);

/* attention_scratch() is the number of floats each thread needs. */
size_t attention_scratch(const struct config *config, bool bf16);

/* attention_run() is softmax attention, causal or both ways.  Each query is
 * summed in an order fixed by its position alone. */
void attention_run(struct par *par, const struct attention *a);

#endif
