/*
 * The backward of attention_run(): of whole sequences, whose queries, keys and
 * values are all there.
 */
#ifndef CORE_MODEL_ATTENTION_BACKWARD_H
#define CORE_MODEL_ATTENTION_BACKWARD_H

#include <stddef.h>

#include "core/model/attention.h"
#include "core/par.h"

/*
 * Its workspace, allocated by mem_arrays(): the operands of products
 * transposed, in blocks of KV_BLOCK rows of one sequence.
 */
struct attention_work {
    float *q, *dout; /* [blocks, n_heads, head_dim, KV_BLOCK] */
    float *v;        /* [blocks, n_kv_heads, head_dim, KV_BLOCK] */
    float *delta;    /* [rows, n_heads] sum of dout * out */
    float *tiles;    /* [threads, ATTENTION_TILES] */
};

#define ATTENTION_TILES (2 * KV_BLOCK * KV_BLOCK)

struct attention_grads {
    const float *k, *v;  /* [rows, n_kv_heads, head_dim], of the cache */
    const float *dout;   /* [rows, n_heads, head_dim] of out */
    float *scaled;       /* a->q: becomes q / sqrt(head_dim) */
    float *dq, *dk, *dv; /* as q, k and v; overwritten */
    struct attention_work work;
};

/*
 * attention_backward(): 'a' is the forward's call, its out and lse filled; a
 * span is all of its session, which nothing was left out of.
 *   P = exp(S - lse), S = q k^T / sqrt(head_dim);  dv = P^T dout
 *   dS = P (dout v^T - delta);  dq = dS k / sqrt(head_dim), dk = dS^T q
 * P is computed anew in blocks.  Sums go over keys, or over a KV head's query
 * heads and their queries, in ascending order.
 */
void attention_backward(struct par *par, const struct attention *a,
                        const struct attention_grads *g);

#endif
