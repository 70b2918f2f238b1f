/* From expert ids to rows: see moe_operator.h. */
#ifndef CORE_MODEL_MOE_ROUTE_H
#define CORE_MODEL_MOE_ROUTE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/moe_operator.h"

/* route_rows() fills moe->route; -1 with 'err' set (EX_DATAERR) for an id that
 * is no expert, with strict_ids. */
int route_rows(struct moe *moe, const int64_t *ids, size_t qlen,
               struct err *err);

/* Of row i of the pass's block. */
static inline size_t
row_token(const struct pass *p, size_t i)
{
    return p->moe->route.slots[p->block.row + i] / p->moe->config.top_k;
}

static inline float
row_weight(const struct pass *p, size_t i)
{
    return p->batch.weights[p->moe->route.slots[p->block.row + i]];
}

/* for_each_block() calls fn for the blocks in their order. */
void for_each_block(struct pass *pass, void (*fn)(struct pass *pass));

#endif
