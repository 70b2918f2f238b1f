/* SPDX-License-Identifier: ISC */
/* The router of a layer of experts: which of them a token gets, and which rows
 * they get. */
#ifndef CORE_MODEL_ROUTER_H
#define CORE_MODEL_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/par.h"

#define ROUTER_MAX_EXPERTS (1 << 12)

/*
 * How a model's routers select k of n experts.  All in f32:
 *   score     p = softmax(logits), or sigmoid(logits), or, TOP, the logits
 *   choice    p, plus a correction where there is one
 *   groups    of n / n_groups experts each; but for the n_top_groups best, by
 *             the largest choice in each, or the sum of its two largest, all
 *             are 'masked': their choice is this number
 *   weights   p of those whose choice is largest; of TOP, softmax of these;
 *             divided by their sum + floor if 'normalize', times 'scaling'
 * Among equals, groups too, the lower number is first.
 * Source: Hugging Face transformers; SOFTMAX is Qwen3MoeSparseMoeBlock's, TOP
 * GptOssTopKRouter's, SIGMOID DeepseekV3TopkRouter's.
 */
struct router_kind {
    enum router_score { ROUTER_SOFTMAX, ROUTER_TOP, ROUTER_SIGMOID } score;
    enum router_groups { GROUPS_NONE, GROUPS_MAX, GROUPS_BEST_TWO } groups;
    int64_t n_groups, n_top_groups; /* 1: the same as GROUPS_NONE */
    float masked;                   /* 0, -inf */
    bool corrected, normalize;
    float floor;
    double scaling; /* 0: 1 */
};

/* One layer's. */
struct router {
    const struct router_kind *kind;
    size_t n, k;             /* n: ROUTER_MAX_EXPERTS at most */
    const float *correction; /* [n], where kind->corrected */
};

/*
 * router_select() selects the experts of a token.
 *   ids      [k]  the largest choice first
 *   weights  [k]  in the order of ids
 *   p        [n]  in: logits; out: the scores of all
 * In the calling thread; cannot fail.
 *
 * router_backward(): p becomes the gradient of the logits, from that of the
 * weights, which is overwritten.  With g = sum of dweights_i weights_i a
 * softmax's is weights_i (dweights_i - g / scaling) if i is selected, else 0,
 * or, if not 'normalize', - p_i g.  A sigmoid's are the selected ones' times
 * 1 - p_i, without g if not 'normalize'.
 */
void router_select(const struct router *router, uint32_t *ids, float *weights,
                   float *p);
void router_backward(const struct router *router, float *p, const uint32_t *ids,
                     const float *weights, float *dweights);

/*
 * router_group() orders slots 0 .. n - 1 by key: those of key i, ascending, are
 * slots[begin[i]] .. slots[begin[i + 1] - 1].  Keys of n_keys and more are left
 * out.  Returns how many there are in all.
 *   slots  [n]      begin  [n_keys + 1]      keys  [n]
 */
size_t router_group(uint32_t *slots, size_t *begin, const uint32_t *keys,
                    size_t n, size_t n_keys);

/* Some experts' slots: slot i is row i / k's. */
struct router_slots {
    const uint32_t *slots; /* [n] */
    size_t n, k;
};

/*
 * router_gather() copies the slots' rows, of nbytes each, from 'from' to 'to',
 * 'stride' bytes apart.
 * router_scatter() adds to the slots' rows, slot by slot: sum += weight * rows,
 * [.., cols], weights [slots of all rows], or NULL: 1. 'par' may be NULL.
 */
void router_gather(struct par *par, const struct router_slots *slots, void *to,
                   size_t stride, const void *from, size_t nbytes);
void router_scatter(struct par *par, const struct router_slots *slots,
                    float *sum, const float *weights, const float *rows,
                    size_t cols);

#endif
