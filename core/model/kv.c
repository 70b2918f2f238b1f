/* SPDX-License-Identifier: ISC */
#include "core/model/kv.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"

static size_t
item_nbytes(const struct kv *kv)
{
    return dtype_size(kv->dtype);
}

/* A head's keys, or values, of a block. */
static size_t
head_nbytes(const struct kv *kv)
{
    return KV_BLOCK * kv->head_dim * item_nbytes(kv);
}

size_t
kv_block_nbytes(const struct kv *kv)
{
    return kv->n_layers * 2 * kv->n_heads * head_nbytes(kv);
}

int
kv_grow(struct kv *kv, size_t n_tokens, struct err *err)
{
    size_t need = (n_tokens + KV_BLOCK - 1) / KV_BLOCK;

    if (need > kv->n_blocks)
        kv->blocks = xrealloc(kv->blocks, need, sizeof(*kv->blocks));
    while (kv->n_blocks < need) {
        char *block = mem_big(kv_block_nbytes(kv), 1, "the KV cache", err);

        if (!block)
            return -1;
        kv->blocks[kv->n_blocks++] = block;
    }
    return 0;
}

void *
kv_keys(const struct kv *kv, size_t layer, size_t head, size_t block)
{
    size_t at = layer % kv->n_layers * 2 * kv->n_heads + head;

    return kv->blocks[block] + at * head_nbytes(kv);
}

void *
kv_values(const struct kv *kv, size_t layer, size_t head, size_t block)
{
    return kv_keys(kv, layer, kv->n_heads + head, block);
}

void
kv_set(struct kv *kv, size_t layer, size_t head, size_t slot, size_t n,
       const float *k, const float *v)
{
    size_t d = kv->head_dim, nbytes = item_nbytes(kv);

    for (; n > 0; n--, slot++, k += d, v += d) {
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
                         at * d * nbytes,
                     kv->dtype, v, d);
    }
}

void
kv_get(const struct kv *kv, size_t layer, size_t head, size_t n, float *k,
       float *v)
{
    size_t d = kv->head_dim, nbytes = item_nbytes(kv);

    for (size_t i = 0; i < n; i++) {
        size_t block = i / KV_BLOCK, at = i % KV_BLOCK;
        const char *from =
            (char *)kv_keys(kv, layer, head, block) + at * nbytes;

        for (size_t j = 0; j < d; j++, from += KV_BLOCK * nbytes)
            cvt_to_f32(k + i * d + j, from, kv->dtype, 1);
        cvt_to_f32(v + i * d,
                   (char *)kv_values(kv, layer, head, block) + at * d * nbytes,
                   kv->dtype, d);
    }
}

int64_t
kv_overflow(const struct kv *kv, size_t n)
{
    size_t n_items = 2 * n * kv->head_dim;
    float *kv_of = xmalloc((n_items + 1) * sizeof(*kv_of));
    bool nan = false, inf = false;
    size_t layer = 0;

    for (; kv->dtype == DT_F16 && layer < kv->n_layers && !nan && !inf; layer++)
        for (size_t head = 0; head < kv->n_heads; head++) {
            kv_get(kv, layer, head, n, kv_of, kv_of + n_items / 2);
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
    for (size_t i = 0; i < kv->n_blocks; i++)
        mem_big_free(kv->blocks[i], kv_block_nbytes(kv), 1);
    free(kv->blocks);
}
