/* SPDX-License-Identifier: ISC */
/*
 * What one sequence's layers remember: the KV cache, and the state of layers
 * without keys.
 */
#ifndef CORE_MODEL_KV_H
#define CORE_MODEL_KV_H

#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"

/* The KV cache is cut into blocks at fixed positions; attention sums block by
 * block, so that no sum depends on how a prompt came in. */
#define KV_BLOCK 64

/*
 * One sequence's keys and values.  A token's slot is its position, but for
 * those that session_compress() made fewer.  Block b holds slots b * KV_BLOCK
 * on, of all layers; a layer's part of it is
 * keys [n_kv_heads, head_dim, KV_BLOCK], then
 * values [n_kv_heads, KV_BLOCK, v_head_dim]: as weighted_sum() wants them,
 * little-endian. Nobody reads what was not put: a cache is used again as it is.
 */
struct kv {
    size_t n_layers; /* or 1: all use it, one after the other */
    size_t n_heads;  /* KV heads */
    size_t head_dim, v_head_dim;
    enum dtype dtype; /* F32, F16 or BF16 */
    char **blocks;
    size_t **users; /* [n_blocks] how many caches have the block */
    size_t n_blocks;
};

/* kv_grow() makes room for n_tokens in all, those from slot 'first' on in
 * blocks that no other cache has.  On failure (-1, EX_SOFTWARE) what there was
 * remains.
 * kv_share() gives an empty cache the blocks of another's first n_tokens; both
 * are then of one thread at a time.
 * kv_cut() gives up those after n_tokens. */
int kv_grow(struct kv *kv, size_t first, size_t n_tokens, struct err *err);
void kv_share(struct kv *kv, const struct kv *from, size_t n_tokens);
void kv_cut(struct kv *kv, size_t n_tokens);

/* kv_get() reads n keys [n, head_dim] and values [n, v_head_dim] of a head,
 * from slot 0 on; kv_set() writes them, from 'slot' on.
 * Threads: any number, for different heads or slots. */
void kv_get(const struct kv *kv, size_t layer, size_t head, size_t n, float *k,
            float *v);
void kv_set(struct kv *kv, size_t layer, size_t head, size_t slot, size_t n,
            const float *k, const float *v);

/* kv_overflow() is the layer in whose first n tokens keys or values were
 * beyond F16, the cache's type, or -1: where it has NaNs, too, the fault is
 * before the cache. */
int64_t kv_overflow(const struct kv *kv, size_t n);

/* kv_keys() and kv_values() are a head's part of a block: valid until the
 * cache grows. */
void *kv_keys(const struct kv *kv, size_t layer, size_t head, size_t block);
void *kv_values(const struct kv *kv, size_t layer, size_t head, size_t block);
void kv_free(struct kv *kv); /* a zeroed struct is fine */

/* kv_block_nbytes() is the size of a block, for those who have them elsewhere:
 * they set 'blocks', and kv_grow() and kv_free() are not called. */
size_t kv_block_nbytes(const struct kv *kv);

/* What layers without keys remember after so many tokens: numbers that
 * sequences share until one of them goes on. */
struct state {
    float *at;     /* [n], f32 */
    size_t *users; /* how many have it; both NULL: zeros, before any token */
};

/* state_own() makes a sequence the only one that has its n numbers: -1 with
 * 'err' set (EX_SOFTWARE), and what there was remains.
 * state_share() lets another have them, in place of its own. */
int state_own(struct state *s, size_t n, struct err *err);
void state_share(struct state *to, const struct state *from, size_t n);
void state_free(struct state *s, size_t n); /* zeros again */

#endif
