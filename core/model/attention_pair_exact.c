/* SPDX-License-Identifier: ISC */
/* Pairs whose products are exact.  P and dS are transposed: a row is a key. */
#include <string.h>

#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/attention_pair.h"

/* A block's are the scaled queries [head_dim, KV_BLOCK] and dout [v_head_dim,
 * KV_BLOCK]. */
static struct attention_sizes
sizes(size_t head_dim, size_t v_head_dim)
{
    return (struct attention_sizes){
        .queries = (head_dim + v_head_dim) * KV_BLOCK * sizeof(float),
        .tile = 2 * KV_BLOCK * KV_BLOCK * sizeof(float),
    };
}

static float *
transposed(const struct pair *p)
{
    return pair_queries(p, sizes(p->a->head_dim, p->a->v_head_dim).queries);
}

static void
queries(const struct pair *p)
{
    size_t d = p->a->head_dim, dv = p->a->v_head_dim, heads = p->a->n_heads;
    float *to = transposed(p);

    pair_transpose(to, p->g->scaled + pair_query(p, 0), heads * d, p->queries.n,
                   d);
    pair_transpose(to + d * KV_BLOCK, p->g->dout + pair_out(p, 0), heads * dv,
                   p->queries.n, dv);
}

/* A query sees a key if it is not before it, and not by 'window' after it: the
 * queries [*begin, *end) of the pair see its key. */
static void
visible_queries(const struct pair *p, size_t key, size_t *begin, size_t *end)
{
    size_t first = p->queries.at * KV_BLOCK, n = p->queries.n;
    size_t window = p->a->window;

    key += p->keys.at * KV_BLOCK;
    *begin = key > first ? smaller(key - first, n) : 0;
    *end = n;
    if (window)
        *end =
            key + window <= first ? *begin : smaller(key + window - first, n);
}

/* Where lse and delta have query i. */
static size_t
query_row(const struct pair *p, size_t i)
{
    return (p->queries.first + i) * p->a->n_heads + p->head;
}

/* S becomes S - lse, capped, and dP - delta is multiplied by the slope. */
static void
cap(const struct pair *p, float *s, float *ds, size_t begin, size_t end)
{
    vec_softcap(s + begin, p->a->softcap, end - begin);
    vec_softcap_back(ds + begin, s + begin, p->a->softcap, end - begin);
    for (size_t i = begin; i < end; i++)
        s[i] -= p->a->lse[query_row(p, i)];
}

/* Their P and dS, from S - lse and dP - delta in their places. */
static void
weigh_row(float *restrict w, float *restrict ds, size_t begin, size_t end,
          size_t n)
{
    memset(w, 0, begin * sizeof(*w));
    memset(ds, 0, begin * sizeof(*ds));
    vec_exp_sum(w + begin, 0, end - begin);
    for (size_t i = begin; i < end; i++)
        ds[i] *= w[i];
    memset(w + end, 0, (n - end) * sizeof(*w));
    memset(ds + end, 0, (n - end) * sizeof(*ds));
}

static void
weigh(const struct pair *p)
{
    const struct attention_grads *g = p->g;
    size_t d = p->a->head_dim, dv = p->a->v_head_dim, n = p->queries.n;
    const bool is_capped = p->a->softcap > 0;
    float *weights = p->tile, *ds = weights + KV_BLOCK * KV_BLOCK;
    struct weighted_sum sum = {
        .y = weights,
        .w = transposed(p),
        .p = g->k + pair_key(p, 0),
        .ldy = KV_BLOCK,
        .ldw = KV_BLOCK,
        .ldp = p->a->n_kv_heads * d,
        .rows = d,
        .cols = n,
        .n = p->keys.n,
        .w_dtype = DT_F32,
        .native = true,
        .add = true,
    };

    for (size_t i = 0; i < n; i++) {
        weights[i] = is_capped ? 0 : -p->a->lse[query_row(p, i)];
        ds[i] = -g->work.delta[query_row(p, i)];
    }
    for (size_t k = 1; k < p->keys.n; k++) {
        memcpy(weights + k * KV_BLOCK, weights, n * sizeof(*weights));
        memcpy(ds + k * KV_BLOCK, ds, n * sizeof(*ds));
    }
    weighted_sum(&sum);
    sum.y = ds;
    sum.w = transposed(p) + d * KV_BLOCK;
    sum.p = g->v + pair_value(p, 0);
    sum.ldp = p->a->n_kv_heads * dv;
    sum.rows = dv;
    weighted_sum(&sum);
    for (size_t k = 0; k < p->keys.n; k++) {
        size_t begin, end;

        visible_queries(p, k, &begin, &end);
        if (is_capped)
            cap(p, weights + k * KV_BLOCK, ds + k * KV_BLOCK, begin, end);
        weigh_row(weights + k * KV_BLOCK, ds + k * KV_BLOCK, begin, end, n);
    }
}

static void
dkv(const struct pair *p, bool first)
{
    const struct attention_grads *g = p->g;
    size_t d = p->a->head_dim, dv = p->a->v_head_dim;
    const float *weights = p->tile;
    struct weighted_sum sum = {
        .y = g->dv + pair_value(p, 0),
        .w = g->dout + pair_out(p, 0),
        .p = weights,
        .ldy = p->a->n_kv_heads * dv,
        .ldw = p->a->n_heads * dv,
        .ldp = KV_BLOCK,
        .rows = p->queries.n,
        .cols = dv,
        .n = p->keys.n,
        .w_dtype = DT_F32,
        .native = true,
        .add = !first,
    };

    weighted_sum(&sum);
    sum.y = g->dk + pair_key(p, 0);
    sum.w = g->scaled + pair_query(p, 0);
    sum.p = weights + KV_BLOCK * KV_BLOCK;
    sum.ldy = p->a->n_kv_heads * d;
    sum.ldw = p->a->n_heads * d;
    sum.cols = d;
    weighted_sum(&sum);
}

/* dS back to rows of queries: the place of P, which no one reads any more, is
 * free. */
static void
dq(const struct pair *p, bool first)
{
    size_t d = p->a->head_dim;
    float *rows = p->tile, *ds = rows + KV_BLOCK * KV_BLOCK;
    const struct weighted_sum sum = {
        .y = p->g->dq + pair_query(p, 0),
        .w = p->g->k + pair_key(p, 0),
        .p = rows,
        .ldy = p->a->n_heads * d,
        .ldw = p->a->n_kv_heads * d,
        .ldp = KV_BLOCK,
        .rows = p->keys.n,
        .cols = d,
        .n = p->queries.n,
        .w_dtype = DT_F32,
        .native = true,
        .add = !first,
    };

    pair_transpose(rows, ds, KV_BLOCK, p->keys.n, p->queries.n);
    weighted_sum(&sum);
}

const struct pair_class attention_pair_exact = {
    .sizes = sizes, .queries = queries, .weigh = weigh, .dq = dq, .dkv = dkv
};
