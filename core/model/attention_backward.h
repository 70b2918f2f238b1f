/* SPDX-License-Identifier: ISC */
/*
 * The backward of attention_run(): of whole sequences, whose queries, keys and
 * values are all there.
 */
#ifndef CORE_MODEL_ATTENTION_BACKWARD_H
#define CORE_MODEL_ATTENTION_BACKWARD_H

#include <stddef.h>

#include "core/model/attention.h"
#include "core/par.h"

/* Its workspace, allocated by mem_arrays(): what products read, in blocks of
 * KV_BLOCK rows of one sequence, and what a thread has; bytes as
 * attention_sizes() says. */
struct attention_work {
    float *delta;           /* [rows, n_heads] sum of dout * out */
    unsigned char *queries; /* [blocks, n_heads, sizes.queries] */
    unsigned char *keys;    /* [blocks, n_kv_heads, sizes.keys] */
    unsigned char *tiles;   /* [threads, sizes.tile] */
};
struct attention_sizes {
    size_t queries, keys, tile; /* multiples of 64 */
};
struct attention_sizes attention_sizes(size_t head_dim, size_t v_head_dim,
                                       bool bf16);

struct attention_grads {
    const float *k, *v;  /* [rows, n_kv_heads, head_dim or v_head_dim], of the
                          * cache */
    const float *dout;   /* [rows, n_heads, v_head_dim] of out */
    float *scaled;       /* a->q: becomes q scale */
    float *dq, *dk, *dv; /* as q, k and v; overwritten */
    struct attention_work work;
};

/*
 * attention_backward(): 'a' is the forward's call, its out and lse filled; a
 * span is all of its session, which nothing was left out of.
 *   P = exp(S - lse), S = q k^T scale, capped;  dv = P^T dout
 *   dS = P (dout v^T - delta), times 1 - (S / softcap)^2 where it is capped;
 *   dq = dS k scale, dk = dS^T q scale
 * P is computed anew in blocks.  Sums go over keys, or over a KV head's query
 * heads and their queries, in ascending order.  In bf16 the operands of all
 * five products are rounded, those of S as the forward's.  A sink is in lse
 * alone.
 */
void attention_backward(struct par *par, const struct attention *a,
                        const struct attention_grads *g);

#endif
