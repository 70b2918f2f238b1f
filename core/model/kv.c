/* SPDX-License-Identifier: ISC */
#include "core/model/kv.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"

static size_t
item_nbytes(const struct kv *kv)
{
    return dtype_size(kv->dtype);
}

/* The keys of so many heads of a block, and values. */
static size_t
nbytes_of(const struct kv *kv, size_t keys, size_t values)
{
    return KV_BLOCK * (keys * kv->head_dim + values * kv->v_head_dim) *
           item_nbytes(kv);
}

size_t
kv_block_nbytes(const struct kv *kv)
{
    return kv->n_layers * nbytes_of(kv, kv->n_heads, kv->n_heads);
}

static size_t
blocks_of(size_t n_tokens)
{
    return (n_tokens + KV_BLOCK - 1) / KV_BLOCK;
}

static void
make_room(struct kv *kv, size_t n_blocks)
{
    if (n_blocks <= kv->n_blocks)
        return;
    kv->blocks = xrealloc(kv->blocks, n_blocks, sizeof(*kv->blocks));
    kv->users = xrealloc(kv->users, n_blocks, sizeof(*kv->users));
}

int
kv_grow(struct kv *kv, size_t first, size_t n_tokens, struct err *err)
{
    size_t need = blocks_of(n_tokens), nbytes = kv_block_nbytes(kv);

    make_room(kv, need);
    for (size_t i = smaller(first / KV_BLOCK, kv->n_blocks); i < need; i++) {
        bool is_new = i == kv->n_blocks;
        char *block;

        if (!is_new && *kv->users[i] == 1)
            continue;
        if (!(block = mem_big(nbytes, 1, "the KV cache", err)))
            return -1;
        if (!is_new) {
            memcpy(block, kv->blocks[i], nbytes);
            --*kv->users[i];
        }
        kv->n_blocks += is_new;
        kv->blocks[i] = block;
        kv->users[i] = xmalloc(sizeof(*kv->users[i]));
        *kv->users[i] = 1;
    }
    return 0;
}

void
kv_share(struct kv *kv, const struct kv *from, size_t n_tokens)
{
    size_t n = blocks_of(n_tokens);

    make_room(kv, n);
    for (size_t i = 0; i < n; i++) {
        kv->blocks[i] = from->blocks[i];
        kv->users[i] = from->users[i];
        ++*kv->users[i];
    }
    kv->n_blocks = n;
}

void
kv_cut(struct kv *kv, size_t n_tokens)
{
    while (kv->n_blocks > blocks_of(n_tokens)) {
        size_t i = --kv->n_blocks;

        if (--*kv->users[i] > 0)
            continue;
        mem_big_free(kv->blocks[i], kv_block_nbytes(kv), 1);
        free(kv->users[i]);
    }
}

/* Where a layer's part is, after so many of its keys and values. */
static void *
part(const struct kv *kv, size_t layer, size_t block, size_t keys,
     size_t values)
{
    size_t n = layer % kv->n_layers * kv->n_heads;

    return kv->blocks[block] + nbytes_of(kv, n + keys, n + values);
}

void *
kv_keys(const struct kv *kv, size_t layer, size_t head, size_t block)
{
    return part(kv, layer, block, head, 0);
}

void *
kv_values(const struct kv *kv, size_t layer, size_t head, size_t block)
{
    return part(kv, layer, block, kv->n_heads, head);
}

void
kv_set(struct kv *kv, size_t layer, size_t head, size_t slot, size_t n,
       const float *k, const float *v)
{
    size_t d = kv->head_dim, dv = kv->v_head_dim, nbytes = item_nbytes(kv);

    for (; n > 0; n--, slot++, k += d, v += dv) {
        size_t block = slot / KV_BLOCK, at = slot % KV_BLOCK;
        char *to = (char *)kv_keys(kv, layer, head, block) + at * nbytes;

        /* each number of a key is in another row of its block */
        for (size_t i = 0; i < d; i++, to += KV_BLOCK * nbytes) {
            if (kv->dtype == DT_F32)
                put_le32(to, f32_bits(k[i]));
            else
                cvt_from_f32(to, kv->dtype, k + i, 1);
        }
        cvt_from_f32((char *)kv_values(kv, layer, head, block) +
                         at * dv * nbytes,
                     kv->dtype, v, dv);
    }
}

void
kv_get(const struct kv *kv, size_t layer, size_t head, size_t n, float *k,
       float *v)
{
    size_t d = kv->head_dim, dv = kv->v_head_dim, nbytes = item_nbytes(kv);

    for (size_t i = 0; i < n; i++) {
        size_t block = i / KV_BLOCK, at = i % KV_BLOCK;
        const char *from =
            (char *)kv_keys(kv, layer, head, block) + at * nbytes;

        for (size_t j = 0; j < d; j++, from += KV_BLOCK * nbytes)
            cvt_to_f32(k + i * d + j, from, kv->dtype, 1);
        cvt_to_f32(v + i * dv,
                   (char *)kv_values(kv, layer, head, block) + at * dv * nbytes,
                   kv->dtype, dv);
    }
}

int64_t
kv_overflow(const struct kv *kv, size_t n)
{
    size_t n_keys = n * kv->head_dim, n_items = n_keys + n * kv->v_head_dim;
    float *kv_of = xmalloc((n_items + 1) * sizeof(*kv_of));
    bool nan = false, inf = false;
    size_t layer = 0;

    for (; kv->dtype == DT_F16 && layer < kv->n_layers && !nan && !inf; layer++)
        for (size_t head = 0; head < kv->n_heads; head++) {
            kv_get(kv, layer, head, n, kv_of, kv_of + n_keys);
            for (size_t i = 0; i < n_items; i++) {
                nan |= isnan(kv_of[i]);
                inf |= isinf(kv_of[i]);
            }
        }
    free(kv_of);
    return inf && !nan ? (int64_t)layer - 1 : -1;
}

void
kv_free(struct kv *kv)
{
    kv_cut(kv, 0);
    free(kv->blocks);
    free(kv->users);
}

/* ---- states ---- */

void
state_free(struct state *s, size_t n)
{
    if (s->users && --*s->users == 0) {
        mem_big_free(s->at, n, sizeof(*s->at));
        free(s->users);
    }
    *s = (struct state){ 0 };
}

int
state_own(struct state *s, size_t n, struct err *err)
{
    struct state own = { 0 };

    if (s->users && *s->users == 1)
        return 0;
    own.at = mem_big(n, sizeof(*own.at), "the state of a sequence", err);
    if (!own.at)
        return -1;
    own.users = xmalloc(sizeof(*own.users));
    *own.users = 1;
    if (s->at)
        memcpy(own.at, s->at, n * sizeof(*own.at));
    state_free(s, n);
    *s = own;
    return 0;
}

void
state_share(struct state *to, const struct state *from, size_t n)
{
    state_free(to, n);
    *to = *from;
    if (to->users)
        ++*to->users;
}
