/* SPDX-License-Identifier: ISC */
/*
 * Gated DeltaNet, which mixes a layer's tokens by a state of fixed size in
 * place of keys and values.
 * Source: "Gated Delta Networks" (arXiv 2412.06464); Hugging Face's
 * modeling_qwen3_next.py and modeling_qwen3_5.py, whose recurrent form this is.
 */
#ifndef CORE_MODEL_GDN_H
#define CORE_MODEL_GDN_H

#include <stddef.h>

#include "core/model/linear.h"
#include "core/model/norm.h"

struct activations;
struct block_grads;
struct chunk;
struct config;
struct engine;

struct gdn {
    struct linear qkvz, ba;   /* of each key head its q, k, values and gates;
                               * its b and a; or: */
    struct linear qkv, z;     /* all q, all k, all values; gates */
    struct linear b, a;       /* of value heads */
    const float *conv;        /* [kernel, channels]: of q, k and values */
    const float *rate, *bias; /* [value heads]: -exp(A_log), dt_bias */
    struct norm norm;         /* of a value head */
    struct linear out;
};

/* The widths of what it computes of a token; 0 in models without. */
struct gdn_sizes {
    size_t channels, values, heads; /* value heads */
    size_t fused;                   /* as in_proj_qkvz has it; 0: not */
    size_t state;   /* of a layer: the last kernel - 1 tokens' channels, the
                     * oldest first; then [heads, v_dim, k_dim] */
    size_t scratch; /* of a thread, where a backward follows */
};
struct gdn_sizes gdn_sizes(const struct config *config);

/*
 * gdn_run() takes a chunk's rows from a->attn_in to a->gated, the input of
 * out_proj [rows, values], and their sequences' states on:
 *   q, k, v = silu(conv(x)), the convolution being causal, channel by channel
 *   q, k of length 1, q / sqrt(k_dim); value head h has those of key head
 *       h / (value heads / key heads)
 *   S = e^g S;  S += beta (v - S k) k^T;  o = S q
 *       beta = sigmoid(b), g = -exp(A_log) softplus(a + dt_bias)
 *   rmsnorm(o) * silu(z), head by head
 * All in f32, whatever the engine's class: each number is summed in an order
 * fixed by its position alone.
 * Where a backward follows spans are all of their sessions, which need no
 * state, and S is left in a->states [rows / GDN_BLOCK, value heads, v_dim,
 * k_dim] as it is before a span's tokens GDN_BLOCK, 2 GDN_BLOCK, ..
 */
#define GDN_BLOCK 32
void gdn_run(struct engine *engine, const struct chunk *chunk,
             const struct activations *acts, size_t layer);

/*
 * gdn_backward(): from g->attended, the gradient of what out_proj reads, to
 * that of attn_in, 'input', unless that is NULL.  It computes the states of
 * GDN_BLOCK tokens anew, from those that gdn_run() left; sums over them go from
 * the last token to the first.  It overwrites a->q, q_rotated, out_gate, and
 * where they are fused qkv and k.
 */
void gdn_backward(struct engine *engine, const struct chunk *chunk,
                  const struct activations *acts,
                  const struct block_grads *grads, size_t layer, float *input);

#endif
