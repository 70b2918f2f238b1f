/* SPDX-License-Identifier: ISC */
/*
 * The hash tables of the vocabulary: strings to ids, and pairs of ids to their
 * merge. No file can make keys collide, as 'key' (core/keyed.h) differs in each
 * run.  Running out of memory ends the process.
 */
#ifndef CORE_TEXT_TOK_MAP_H
#define CORE_TEXT_TOK_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/str.h"

struct hash_key;

struct map_slot {
    uint32_t hash, off, n;
    int32_t id; /* -1: the slot is empty */
};

/* Open addressing; starts as { key }.  Keys are copied into 'text'. */
struct strmap {
    const struct hash_key *key;
    struct str text;
    struct map_slot *slot;
    size_t n_slots, n;
};

void strmap_reserve(struct strmap *map, size_t n);
/* strmap_put() sets *off to the key's place in 'text'; false: it was there. */
bool strmap_put(struct strmap *map, const char *s, size_t n, int32_t id,
                uint32_t *off);
int32_t strmap_get(const struct strmap *map, const char *s, size_t n);
void strmap_free(struct strmap *map);

#define NO_RANK UINT32_MAX

struct bpe_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank; /* lower is merged first; NO_RANK: not a pair */
    int32_t id;
};

struct mergemap {
    const struct hash_key *key;
    struct bpe_merge *slot;
    size_t n_slots;
};

/* mergemap_init() makes room for n merges; mergemap_get() is the merge of a
 * pair, with rank NO_RANK where there is none. */
void mergemap_init(struct mergemap *map, const struct hash_key *key, size_t n);
void mergemap_put(struct mergemap *map, struct bpe_merge merge);
struct bpe_merge mergemap_get(const struct mergemap *map, int32_t left,
                              int32_t right);
void mergemap_free(struct mergemap *map);

#endif
