/*
 * Layers of experts: a router sends each token through some MLPs of many.
 */
#ifndef CORE_MODEL_EXPERTS_H
#define CORE_MODEL_EXPERTS_H

#include "core/err.h"

struct engine;
struct layer;

/*
 * experts_apply() puts all rows x of the chunk, [rows, hidden], through the
 * experts that the layer's router chooses for each; the result is valid until
 * the next call.  Outputs of a token's experts are added in the order of their
 * ids, so that its bits depend on nothing else.
 */
const float *experts_apply(struct engine *engine, const struct layer *layer,
                           const float *x);
int experts_work_open(struct engine *engine, struct err *err);
void experts_work_close(struct engine *engine);

#endif
