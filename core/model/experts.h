/* SPDX-License-Identifier: ISC */
/*
 * Layers of experts: a router sends each token through some MLPs of many, in
 * f32 rows; experts_backward.h goes back.  moe.h is one layer's experts alone,
 * in bf16 or int8.
 */
#ifndef CORE_MODEL_EXPERTS_H
#define CORE_MODEL_EXPERTS_H

#include <stddef.h>
#include <stdint.h>

#include "core/model/router.h"

struct activations;
struct chunk;
struct engine;
struct layer;

/* Room for a chunk of tokens in n experts, of which each gets k; n is 0 in a
 * model without.  engine_open() allocates it. */
struct experts_work {
    size_t n, k;
    size_t room;   /* slots whose rows fit into x, y, and gate, up: a chunk's
                    * rows, or more */
    float *scores; /* [chunk, n] */
    uint32_t *selected; /* [chunk, k] */
    float *weights;     /* [chunk, k] */
    uint32_t *slots;    /* [chunk * k], by expert: slot i is row i / k's */
    size_t *first;      /* [n + 1] of the experts' slots */
    float *x, *y;       /* [room, hidden] input and output of some slots */
    float *shared;      /* [chunk] weights of that of all tokens, where it has
                         * any */
};

/* experts_slots() is which of them an expert has got. */
static inline struct router_slots
experts_slots(const struct experts_work *w, size_t expert)
{
    return (struct router_slots){ w->slots + w->first[expert],
                                  w->first[expert + 1] - w->first[expert],
                                  w->k };
}

/* experts_router() is a layer's. */
struct router experts_router(const struct engine *engine,
                             const struct layer *layer);

/*
 * experts_route() lets the layer's router select experts for rows a->mlp_in,
 * and leaves in engine->experts which.
 * experts_apply() does that, puts a chunk's rows through these experts, and
 * leaves their sum in a->mlp_out; a->gate and a->up are overwritten, and slots
 * and first if some rows are of prompts and others generated.  Outputs of a
 * token's experts are added in the order of their ids, so that its bits depend
 * on nothing else.
 */
void experts_route(struct engine *engine, const struct layer *layer,
                   const struct activations *a, size_t n_rows);
void experts_apply(struct engine *engine, const struct layer *layer,
                   const struct activations *a, const struct chunk *chunk);

#endif
