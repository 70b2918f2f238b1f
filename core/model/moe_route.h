/* From expert ids to rows: see moe_operator.h. */
#ifndef CORE_MODEL_MOE_ROUTE_H
#define CORE_MODEL_MOE_ROUTE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/moe_operator.h"

/* moe_route_rows() fills moe->route by ids [qlen, top_k]; -1 with 'err' set
 * (EX_DATAERR) for an id that is no expert, with strict_ids. */
int moe_route_rows(struct moe *moe, const int64_t *ids, size_t qlen,
                   struct err *err);

/* Rows moe_first_row(e) .. moe_first_row(e + 1) are those of expert e. */
static inline size_t
moe_first_row(const struct moe *moe, size_t expert)
{
    return moe->route.begin[expert * moe->config.top_k];
}

/* moe_block_at() is the block that begins at a row of an expert. */
struct moe_block moe_block_at(const struct moe *moe, size_t expert, size_t row);

/* moe_token() is the token of a block's row i. */
static inline size_t
moe_token(const struct moe *moe, const struct moe_block *block, size_t i)
{
    return block->slots[i] / moe->config.top_k;
}

#endif
