/* SPDX-License-Identifier: ISC */
/*
 * Outputs of one matrix that has the weights of q, k and v: enum fused says in
 * which order.
 */
#ifndef CORE_MODEL_QKV_H
#define CORE_MODEL_QKV_H

#include <stdbool.h>
#include <stddef.h>

#include "core/model/config.h"
#include "core/par.h"

/* Rows of all [n_rows, heads + 2 KV heads, head_dim], and of each. */
struct qkv {
    float *fused, *q, *k, *v;
    size_t n_rows;
};

/* qkv_split() makes q, k and v of the fused ones, qkv_join() the other way
 * round. */
void qkv_split(struct par *par, const struct config *c, const struct qkv *rows);
void qkv_join(struct par *par, const struct config *c, const struct qkv *rows);

/* qkv_split_gates() makes q and gates of rows of heads of both, in 'fused';
 * 'join': the other way round. */
void qkv_split_gates(struct par *par, const struct config *c,
                     const struct qkv *rows, float *gates, bool join);

#endif
