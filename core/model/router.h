/*
 * The router of a layer with experts: which of them a token goes through, and
 * what each one's output counts.
 */
#ifndef CORE_MODEL_ROUTER_H
#define CORE_MODEL_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/par.h"

/*
 * router_select() takes each row's logits p [n_rows, n] and leaves there their
 * softmax over all n experts; chosen [n_rows, k] are the k likeliest, of equals
 * the lower, in ascending order.  Where 'normalize', the probabilities of
 * these are divided by their sum.  Source: Hugging Face's Qwen3MoeTopKRouter.
 */
void router_select(struct par *par, float *p, uint32_t *chosen, size_t n,
                   size_t k, bool normalize, size_t n_rows);

#endif
