/* SPDX-License-Identifier: ISC */
/*
 * The backward of a block: from the gradient of its output to that of its
 * input, past frozen weights.
 */
#ifndef CORE_MODEL_BLOCK_BACKWARD_H
#define CORE_MODEL_BLOCK_BACKWARD_H

#include <stdbool.h>
#include <stddef.h>

#include "core/model/attention_backward.h"
#include "core/model/block.h"
#include "core/model/linear.h"

/* Gradients of what struct activations has, [rows, ...]. */
struct block_grads {
    float *resid;     /* hidden: of the block's out; becomes that of its x */
    float *output;    /* hidden: of attn_out and mlp_out; not needed where they
                       * are added as they are */
    float *input;     /* hidden: of attn_in and mlp_in */
    float *inner;     /* intermediate; may share memory with what follows */
    float *attended;  /* heads */
    float *q, *k, *v; /* heads, KV heads */
    float *beta, *decay;               /* value heads */
    float *q_low, *kv_low, *kv_normed; /* of MLA; q_low also of q_normed */
    float *sines_back; /* rotary_dim / 2: the chunk's, negative */
    float *low;        /* [rows, lora_rank] */
    float *weights;    /* experts used: of the routing weights */
    struct attention_work attention;

    /* is called for each linear layer that has an adapter, its only one */
    void (*linear)(void *ctx, const struct linear_grads *grads);
    void *ctx;
};

/* What every linear layer of a block leaves for the sums, if it has an adapter.
 */
static inline void
block_grads_add(const struct block_grads *g, const struct linear_grads *part)
{
    if (part->linear->lora)
        g->linear(g->ctx, part);
}

/* block_back_linear() is linear_backward() of one of them, whose adapter's
 * part is added. */
void block_back_linear(struct engine *engine, const struct block_grads *grads,
                       const struct linear *l, const float *x, float *dx,
                       bool add, const float *dy, size_t n_rows);

/*
 * block_backward() goes back through block_run() of the same chunk, all of
 * whose activations are there, but for out, inner and, without mlp_post,
 * mlp_out; it overwrites qkv, q_rotated, out_gate, gate, up and inner, of Gated
 * DeltaNet also q and k, and what has been normalized by NORM_LAYER. Spans are
 * all of their sessions. is_first: the gradient of x is not wanted. In
 * COMPUTE_BF16 the operands of products with weights are rounded; those of
 * attention's if they are in the forward.
 */
void block_backward(struct engine *engine, const struct chunk *chunk,
                    const struct activations *acts,
                    const struct block_grads *grads, size_t layer,
                    bool is_first);

#endif
