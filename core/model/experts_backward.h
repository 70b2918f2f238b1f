/* SPDX-License-Identifier: ISC */
/*
 * The backward of a layer of experts: through each expert's MLP, the routing
 * weights and the router, all of whose weights are frozen.
 */
#ifndef CORE_MODEL_EXPERTS_BACKWARD_H
#define CORE_MODEL_EXPERTS_BACKWARD_H

#include <stddef.h>

struct activations;
struct block_grads;
struct engine;
struct layer;

/*
 * experts_backward() goes back from dy [n_rows, hidden], the gradient of the
 * layer's output, to g->input, that of a->mlp_in, which experts_route() has
 * routed last.  An expert's forward is computed anew; a->mlp_out, gate, up and
 * inner are overwritten.  g->linear is called for every expert's layers that
 * have an adapter, those without rows included. da0 = the output's gradient; of
 * a slot's weight: da0 . down(h) Sums of a token's experts go in the order of
 * their ids.
 */
void experts_backward(struct engine *engine, const struct layer *layer,
                      const struct activations *a, const struct block_grads *g,
                      const float *dy, size_t n_rows);

#endif
