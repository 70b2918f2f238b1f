/* SPDX-License-Identifier: ISC */
/*
 * Multi-head latent attention's queries, keys and values: keys and values of
 * all heads come of one latent row of kv_rank numbers a token, and the part of
 * a key that is rotated is that of all heads.
 */
#ifndef CORE_MODEL_MLA_H
#define CORE_MODEL_MLA_H

#include <stddef.h>

#include "core/model/config.h"

struct activations;
struct attention;
struct block_grads;
struct chunk;
struct engine;

/*
 * mla_apply() makes of attn_in what attention reads, as queries, keys and
 * values of other models: q_rotated; k_rotated and v, which are in the caches
 * then.  A head is [not rotated | rotated]:
 *   q = q_b norm(q_a x), or q x;  [c | r] = kv_a x;
 *   [k | v] of each head = kv_b norm(c);  k = [k | r]
 * With options.latents it leaves q_rotated alone, and the caches have [c | r].
 * Source: Hugging Face transformers, DeepseekV3Attention.
 */
void mla_apply(struct engine *engine, const struct chunk *chunk,
               const struct activations *a, size_t layer);

/*
 * A cache of latents has one head for all: its keys are [norm(c) | r], its
 * values norm(c).  A head's rows K and V of kv_b are then multiplied by its
 * query and by its sum of values, as q (K c) = (K^T q) c, in f32: other bits
 * than by expanded keys, which take n_heads (head_dim + v_head_dim) numbers a
 * token in place of 2 kv_rank + rotary_dim.
 * mla_cached() is c with the heads of such a cache.
 * mla_attend() is 'attention', of the heads that are expanded, by it.
 * Source: arXiv 2405.04434, 2.1.2.
 */
struct config mla_cached(const struct config *c);
void mla_attend(struct engine *engine, const struct chunk *chunk,
                const struct activations *a, size_t layer,
                const struct attention *attention);

/*
 * mla_backward(): from the gradients of q_rotated, k_rotated and v, which it
 * overwrites, to that of attn_in, 'input', unless that is NULL.  It overwrites
 * a->qkv.
 */
void mla_backward(struct engine *engine, const struct chunk *chunk,
                  const struct activations *a, const struct block_grads *g,
                  size_t layer, float *input);

#endif
