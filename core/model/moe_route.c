/* SPDX-License-Identifier: ISC */
/* From expert ids to rows. */
#include <inttypes.h>

#include "core/mem.h"
#include "core/model/moe_operator.h"
#include "core/model/router.h"

int
moe_route_rows(struct moe *moe, const int64_t *ids, size_t qlen,
               struct err *err)
{
    const struct moe_config *c = &moe->config;
    struct moe_route *r = &moe->route;
    size_t n_slots = qlen * c->top_k;

    if (qlen > c->max_len)
        return err_set(err, EX_DATAERR,
                       "the batch has %zu tokens, but max_len is %zu", qlen,
                       c->max_len);
    for (size_t i = 0; i < n_slots; i++) {
        size_t j = i % c->top_k, before = 0;
        bool known = ids[i] >= 0 && (uint64_t)ids[i] < c->n_experts;

        for (size_t k = i - j; k < i && known; k++)
            before += ids[k] == ids[i];
        r->keys[i] =
            known ? (uint32_t)((size_t)ids[i] * c->top_k + before) : UINT32_MAX;
        if (c->strict_ids && !known)
            return err_set(err, EX_DATAERR,
                           "expert_ids[%zu, %zu] is %" PRId64
                           ", but there are %zu experts",
                           i / c->top_k, j, ids[i], c->n_experts);
    }
    r->n_rows = router_group(r->slots, r->begin, r->keys, n_slots,
                             c->n_experts * c->top_k);
    r->skipped = n_slots - r->n_rows;
    return 0;
}

struct moe_block
moe_block_at(const struct moe *moe, size_t expert, size_t row)
{
    const size_t *end = moe->route.begin + expert * moe->config.top_k + 1;

    while (*end <= row)
        end++;
    return (struct moe_block){
        .expert = expert,
        .row = row,
        .n = smaller(*end - row, MOE_BLOCK),
        .slots = moe->route.slots + row,
    };
}
