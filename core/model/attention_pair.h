/* SPDX-License-Identifier: ISC */
/*
 * What attention_backward.c, attention_pair_exact.c and attention_pair_bf16.c
 * share: a backward goes over pairs, a query head's block of queries and a
 * block of the keys that these see.  Private to them.
 */
#ifndef CORE_MODEL_ATTENTION_PAIR_H
#define CORE_MODEL_ATTENTION_PAIR_H

#include "core/mem.h"
#include "core/model/attention_backward.h"
#include "core/model/engine.h"

/* A block of a span's rows. */
struct rows {
    const struct span *span;
    size_t at;    /* block of the span */
    size_t index; /* block of all spans */
    size_t first; /* row of the chunk */
    size_t n;     /* <= KV_BLOCK */
};

struct pair {
    const struct attention *a;
    const struct attention_grads *g;
    struct rows queries, keys;
    size_t head, kv_head;
    void *tile; /* the thread's memory */
};

/*
 * queries(), keys(): prepare what products read of a block of queries, or of
 *   keys, once, before any pair.
 * weigh(): P and dS of a pair, into its tile.  Then dq() adds the pair's part
 *   to its queries' dq, and dkv() to its keys' sums: 'first' overwrites them.
 *   dkv_end() follows a block of keys' last pair.  keys and dkv_end may be
 * NULL.
 */
struct pair_class {
    struct attention_sizes (*sizes)(size_t head_dim, size_t v_head_dim);
    void (*queries)(const struct pair *p);
    void (*keys)(const struct pair *p);
    void (*weigh)(const struct pair *p);
    void (*dq)(const struct pair *p, bool first);
    void (*dkv)(const struct pair *p, bool first);
    void (*dkv_end)(const struct pair *p);
};

extern const struct pair_class attention_pair_exact, attention_pair_bf16;

/* The memory of a block of queries, and of one of keys, of the pair's heads. */
static inline void *
pair_queries(const struct pair *p, size_t size)
{
    return p->g->work.queries +
           (p->queries.index * p->a->n_heads + p->head) * size;
}

static inline void *
pair_keys(const struct pair *p, size_t size)
{
    return p->g->work.keys +
           (p->keys.index * p->a->n_kv_heads + p->kv_head) * size;
}

/* Where row i of the queries or keys has its head's numbers: q; k; 'out'; v. */
static inline size_t
pair_query(const struct pair *p, size_t i)
{
    return ((p->queries.first + i) * p->a->n_heads + p->head) * p->a->head_dim;
}

static inline size_t
pair_key(const struct pair *p, size_t i)
{
    return ((p->keys.first + i) * p->a->n_kv_heads + p->kv_head) *
           p->a->head_dim;
}

static inline size_t
pair_out(const struct pair *p, size_t i)
{
    return pair_query(p, i) / p->a->head_dim * p->a->v_head_dim;
}

static inline size_t
pair_value(const struct pair *p, size_t i)
{
    return pair_key(p, i) / p->a->head_dim * p->a->v_head_dim;
}

/* Rows [n, d], ld apart, to [d, KV_BLOCK]. */
static inline void
pair_transpose(float *to, const float *from, size_t ld, size_t n, size_t d)
{
    for (size_t i0 = 0; i0 < d; i0 += 16)
        for (size_t r = 0; r < n; r++)
            for (size_t i = i0; i < smaller(d, i0 + 16); i++)
                to[i * KV_BLOCK + r] = from[r * ld + i];
}

#endif
