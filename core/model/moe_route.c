#include "core/model/moe_route.h"

#include <inttypes.h>
#include <string.h>

#include "core/mem.h"

/* The segment of slot j of a token, or SIZE_MAX if its id is no expert. */
static size_t
segment_of(const struct moe_config *c, const int64_t *ids, size_t j)
{
    size_t before = 0;

    if (ids[j] < 0 || (uint64_t)ids[j] >= c->n_experts)
        return SIZE_MAX;
    for (size_t i = 0; i < j; i++)
        before += ids[i] == ids[j];
    return (size_t)ids[j] * c->top_k + before;
}

static int
check_ids(const struct moe_config *c, const int64_t *ids, size_t qlen,
          struct err *err)
{
    for (size_t i = 0; i < qlen * c->top_k; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= c->n_experts)
            return err_set(err, EX_DATAERR,
                           "expert_ids[%zu, %zu] is %" PRId64
                           ", but there are %zu experts",
                           i / c->top_k, i % c->top_k, ids[i], c->n_experts);
    return 0;
}

int
moe_route_rows(struct moe *moe, const int64_t *ids, size_t qlen,
               struct err *err)
{
    const struct moe_config *c = &moe->config;
    struct moe_route *r = &moe->route;
    size_t n_segments = c->n_experts * c->top_k, n = 0, n_slots;

    if (c->strict_ids && check_ids(c, ids, qlen, err) < 0)
        return -1;
    n_slots = qlen * c->top_k;
    memset(r->begin, 0, (n_segments + 1) * sizeof(*r->begin));
    for (size_t i = 0; i < n_slots; i++) {
        size_t s = segment_of(c, ids + i - i % c->top_k, i % c->top_k);

        if (s != SIZE_MAX)
            r->begin[s]++;
    }
    for (size_t s = 0; s <= n_segments; s++) {
        size_t here = r->begin[s];

        r->begin[s] = n;
        n += here;
    }
    /* filled, begin[s] has moved to the next one's: move all back */
    for (size_t i = 0; i < n_slots; i++) {
        size_t s = segment_of(c, ids + i - i % c->top_k, i % c->top_k);

        if (s != SIZE_MAX)
            r->slots[r->begin[s]++] = (uint32_t)i;
    }
    memmove(r->begin + 1, r->begin, n_segments * sizeof(*r->begin));
    r->begin[0] = 0;
    r->n_rows = n;
    r->skipped = n_slots - n;
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
