/* SPDX-License-Identifier: ISC */
/* The stack of forwards that wait for a backward. */
#include <string.h>

#include "core/model/moe_operator.h"

int
moe_saved_next(struct moe *moe, struct moe_saved **saved, struct err *err)
{
    if (moe->depth == moe->config.max_cache_depth)
        return err_set(err, EX_DATAERR,
                       "the cache is full (%zu, by max_cache_depth)",
                       moe->depth);
    *saved = &moe->saved[moe->depth];
    return (*saved)->memory.data ? 0 : moe_allocate_saved(moe, *saved, err);
}

void
moe_saved_batch(const struct moe_config *c, struct moe_saved *s,
                const struct moe_batch *batch)
{
    size_t n = batch->qlen * c->top_k;

    s->qlen = batch->qlen;
    if (n == 0)
        return;
    memcpy(s->ids, batch->expert_ids, n * sizeof(*s->ids));
    memcpy(s->weights, batch->weights, n * sizeof(*s->weights));
    memcpy(s->input, batch->input, batch->qlen * c->hidden * 2);
}

int
moe_cache_top(struct moe *moe, struct moe_cache *cache, struct err *err)
{
    const struct moe_saved *s;

    if (moe->depth == 0)
        return err_set(err, EX_DATAERR, "the cache is empty");
    s = &moe->saved[moe->depth - 1];
    if (moe_route_rows(moe, s->ids, s->qlen, err) < 0)
        return -1;
    *cache = (struct moe_cache){ { s->qlen, s->ids, s->weights, s->input },
                                 moe->route.n_rows,
                                 s->gate,
                                 s->up };
    return 0;
}

size_t
moe_cache_depth(const struct moe *moe)
{
    return moe->depth;
}

void
moe_cache_drop(struct moe *moe)
{
    if (moe->depth > 0)
        moe->depth--;
}

int
moe_cache_push(struct moe *moe, const struct moe_cache *cache, struct err *err)
{
    size_t n = cache->n_rows * moe->config.intermediate;
    struct moe_saved *s = NULL;

    if (moe_route_rows(moe, cache->batch.expert_ids, cache->batch.qlen, err) <
        0)
        return -1;
    if (cache->n_rows != moe->route.n_rows)
        return err_set(err, EX_DATAERR,
                       "the cache has %zu rows, but its expert_ids make %zu",
                       cache->n_rows, moe->route.n_rows);
    if (moe_saved_next(moe, &s, err) < 0)
        return -1;
    moe_saved_batch(&moe->config, s, &cache->batch);
    if (n > 0) {
        memcpy(s->gate, cache->gate, n * sizeof(*s->gate));
        memcpy(s->up, cache->up, n * sizeof(*s->up));
    }
    moe->depth++;
    return 0;
}
