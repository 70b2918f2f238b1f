/* SPDX-License-Identifier: ISC */
/* The router of a layer of experts: which of them a token gets, and which rows
 * they get. */
#ifndef CORE_MODEL_ROUTER_H
#define CORE_MODEL_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/par.h"

/*
 * router_select() selects k <= n experts for a token: softmax over all logits,
 * the k most probable, whose weights are divided by their sum if 'normalize'.
 *   ids      [k]  most probable first, the lower id first among equals
 *   weights  [k]  in the order of ids
 *   p        [n]  in: logits; out: the probabilities of all
 * All in f32, in the calling thread; cannot fail.
 * Source: Hugging Face transformers, Qwen3MoeSparseMoeBlock.
 */
void router_select(uint32_t *ids, float *weights, size_t k, float *p, size_t n,
                   bool normalize);

/*
 * router_backward(): p, the probabilities of all n, become the gradient of the
 * logits, from that of the weights.  A weight is p_i / sum of the k, so with
 * g = sum of dweights_i weights_i a logit's is weights_i (dweights_i - g) if it
 * is selected, else 0; or, if not 'normalize', p_i (dweights_i or 0, - g).
 */
void router_backward(float *p, size_t n, const uint32_t *ids,
                     const float *weights, const float *dweights, size_t k,
                     bool normalize);

/*
 * router_group() orders slots 0 .. n - 1 by key: those of key i, ascending, are
 * slots[begin[i]] .. slots[begin[i + 1] - 1].  Keys of n_keys and more are left
 * out.  Returns how many there are in all.
 *   slots  [n]      begin  [n_keys + 1]      keys  [n]
 */
size_t router_group(uint32_t *slots, size_t *begin, const uint32_t *keys,
                    size_t n, size_t n_keys);

/* Some of an expert's slots, no two of one row: slot i is row i / k's. */
struct router_slots {
    const uint32_t *slots; /* [n] */
    size_t n, k;
};

/*
 * router_gather() copies the slots' rows, of nbytes each, from 'from' to 'to',
 * 'stride' bytes apart.
 * router_scatter() adds to the slots' rows: sum += weight * rows, [.., cols],
 * weights [slots of all rows], or NULL: 1.
 * 'par' may be NULL.
 */
void router_gather(struct par *par, const struct router_slots *slots, void *to,
                   size_t stride, const void *from, size_t nbytes);
void router_scatter(struct par *par, const struct router_slots *slots,
                    float *sum, const float *weights, const float *rows,
                    size_t cols);

#endif
