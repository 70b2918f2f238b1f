/* SPDX-License-Identifier: ISC */
/*
 * Outputs of one matrix that has the weights of q, k and v, in the order that
 * enum fused says, or of q and its gates, head by head.
 */
#ifndef CORE_MODEL_QKV_H
#define CORE_MODEL_QKV_H

#include <stdbool.h>
#include <stddef.h>

#include "core/model/config.h"
#include "core/par.h"

/* Rows of all [n_rows, heads + 2 KV heads, head_dim], and of each; or of q and
 * gates [n_rows, 2 heads, head_dim], without k and v. */
struct qkv {
    size_t n_rows;
    float *fused, *q, *k, *v;
    float *gates; /* or NULL */
};

/* qkv_move() makes the others of the fused ones; 'join': the other way round.
 */
void qkv_move(struct par *par, const struct config *c, const struct qkv *rows,
              bool join);

#endif
