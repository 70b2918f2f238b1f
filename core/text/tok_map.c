/* SPDX-License-Identifier: ISC */
#include "core/text/tok_map.h"

#include <stdlib.h>
#include <string.h>

#include "core/keyed.h"
#include "core/mem.h"

/* The slot of a key, or the empty one where it belongs. */
static struct map_slot *
find(const struct strmap *map, const char *s, size_t n, uint32_t hash)
{
    size_t mask = map->n_slots - 1, i = hash & mask;

    while (map->slot[i].id >= 0 &&
           (map->slot[i].hash != hash || map->slot[i].n != n ||
            memcmp(map->text.s + map->slot[i].off, s, n) != 0))
        i = (i + 1) & mask;
    return &map->slot[i];
}

void
strmap_reserve(struct strmap *map, size_t n)
{
    struct map_slot *old = map->slot;
    size_t n_old = map->n_slots, want = 64, i;

    while (want / 4 * 3 < n)
        want *= 2;
    if (want <= n_old)
        return;
    map->n_slots = want;
    map->slot = xrealloc(NULL, want, sizeof(*map->slot));
    memset(map->slot, 0xff, want * sizeof(*map->slot));
    for (size_t k = 0; k < n_old; k++) {
        if (old[k].id < 0)
            continue;
        i = old[k].hash & (want - 1);
        while (map->slot[i].id >= 0)
            i = (i + 1) & (want - 1);
        map->slot[i] = old[k];
    }
    free(old);
}

bool
strmap_put(struct strmap *map, const char *s, size_t n, int32_t id,
           uint32_t *off)
{
    uint32_t hash = (uint32_t)keyed_hash(map->key, s, n);
    struct map_slot *slot;

    strmap_reserve(map, map->n + 1);
    slot = find(map, s, n, hash);
    if (slot->id >= 0)
        return false;
    *slot = (struct map_slot){ hash, (uint32_t)map->text.n, (uint32_t)n, id };
    if (off)
        *off = slot->off;
    str_add(&map->text, s, n);
    str_addc(&map->text, '\0');
    map->n++;
    return true;
}

int32_t
strmap_get(const struct strmap *map, const char *s, size_t n)
{
    return map->n ? find(map, s, n, (uint32_t)keyed_hash(map->key, s, n))->id
                  : -1;
}

void
strmap_free(struct strmap *map)
{
    str_free(&map->text);
    free(map->slot);
    *map = (struct strmap){ 0 };
}

void
mergemap_init(struct mergemap *map, const struct hash_key *key, size_t n)
{
    map->key = key;
    map->n_slots = 64;
    while (map->n_slots / 4 * 3 < n)
        map->n_slots *= 2;
    map->slot = xrealloc(NULL, map->n_slots, sizeof(*map->slot));
    memset(map->slot, 0xff, map->n_slots * sizeof(*map->slot));
}

static struct bpe_merge *
find_pair(const struct mergemap *map, uint64_t pair)
{
    size_t i = keyed_hash(map->key, &pair, sizeof(pair)) & (map->n_slots - 1);

    while (map->slot[i].pair != pair && map->slot[i].pair != UINT64_MAX)
        i = (i + 1) & (map->n_slots - 1);
    return &map->slot[i];
}

void
mergemap_put(struct mergemap *map, struct bpe_merge merge)
{
    *find_pair(map, merge.pair) = merge;
}

struct bpe_merge
mergemap_get(const struct mergemap *map, int32_t left, int32_t right)
{
    return *find_pair(map, (uint64_t)left << 32 | (uint32_t)right);
}

void
mergemap_free(struct mergemap *map)
{
    free(map->slot);
}
