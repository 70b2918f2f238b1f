/* The KV cache of one sequence. */
#include "cmd/hf-infer/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"

/* Numbers in a head's keys, or values, of a block. */
static size_t
head_floats(const struct kv *kv)
{
    return KV_BLOCK * kv->head_dim;
}

static size_t
block_floats(const struct kv *kv)
{
    return kv->n_layers * 2 * kv->n_heads * head_floats(kv);
}

int
kv_grow(struct kv *kv, size_t n_tokens, struct err *err)
{
    size_t need = (n_tokens + KV_BLOCK - 1) / KV_BLOCK;

    if (need > kv->n_blocks)
        kv->blocks = xrealloc(kv->blocks, need, sizeof(*kv->blocks));
    while (kv->n_blocks < need) {
        float *block =
            mem_big(block_floats(kv), sizeof(*block), "the KV cache", err);

        if (!block)
            return -1;
        kv->blocks[kv->n_blocks++] = block;
    }
    return 0;
}

static float *
keys(const struct kv *kv, size_t layer, size_t head, size_t block)
{
    size_t at = layer * 2 * kv->n_heads + head;

    return kv->blocks[block] + at * head_floats(kv);
}

static float *
values(const struct kv *kv, size_t layer, size_t head, size_t block)
{
    return keys(kv, layer, kv->n_heads + head, block);
}

const float *
kv_keys(const struct kv *kv, size_t layer, size_t head, size_t block)
{
    return keys(kv, layer, head, block);
}

const float *
kv_values(const struct kv *kv, size_t layer, size_t head, size_t block)
{
    return values(kv, layer, head, block);
}

void
kv_put(struct kv *kv, size_t layer, size_t position, const float *k,
       const float *v)
{
    size_t d = kv->head_dim, block = position / KV_BLOCK;
    size_t slot = position % KV_BLOCK;

    for (size_t j = 0; j < kv->n_heads; j++) {
        float *to = values(kv, layer, j, block) + slot;

        cvt_from_f32(keys(kv, layer, j, block) + slot * d, DT_F32, k + j * d,
                     d);
        for (size_t i = 0; i < d; i++)
            put_le32(to + i * KV_BLOCK, f32_bits(v[j * d + i]));
    }
}

void
kv_clear(struct kv *kv, size_t n_tokens)
{
    size_t used = (n_tokens + KV_BLOCK - 1) / KV_BLOCK;

    for (size_t i = 0; i < used; i++)
        memset(kv->blocks[i], 0, block_floats(kv) * sizeof(float));
}

void
kv_free(struct kv *kv)
{
    for (size_t i = 0; i < kv->n_blocks; i++)
        mem_big_free(kv->blocks[i], block_floats(kv), sizeof(float));
    free(kv->blocks);
}
