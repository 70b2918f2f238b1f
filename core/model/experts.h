/*
 * Layers of experts: a router sends each token through some MLPs of many.  For
 * inference, in f32 rows; what trains them is moe.h.
 */
#ifndef CORE_MODEL_EXPERTS_H
#define CORE_MODEL_EXPERTS_H

#include <stddef.h>

#include "core/err.h"

struct activations;
struct engine;
struct layer;

/*
 * experts_apply() puts rows a->mlp_in through the experts that the layer's
 * router selects for each, and leaves their sum in a->mlp_out; a->gate and
 * a->up are room for it.  Outputs of a token's experts are added in the order
 * of their ids, so that its bits depend on nothing else.
 * experts_work_open() makes room for it as engine->experts: engine_open() and
 * engine_close() call the two.
 */
void experts_apply(struct engine *engine, const struct layer *layer,
                   const struct activations *a, size_t n_rows);
int experts_work_open(struct engine *engine, struct err *err);
void experts_work_close(struct engine *engine);

#endif
