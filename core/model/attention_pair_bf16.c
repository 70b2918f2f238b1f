/* SPDX-License-Identifier: ISC */
/* Pairs whose products have bf16 operands: the queries, keys and values that
 * the forward had, dout, P and dS.  In P and dS a row is a query. */
#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/attention_pair.h"

/* A panel of P or dS is one of KV_BLOCK columns. */
_Static_assert(KV_BLOCK == GEMM_PANEL, "a block of keys is a panel");

enum { SQUARE = KV_BLOCK * KV_BLOCK };

struct queries {
    uint16_t *q, *q_t;       /* [KV_BLOCK, gemm_ld_bf16(head_dim)]; [head_dim,
                              * KV_BLOCK], zeros after the last */
    uint16_t *dout, *dout_t; /* the same of v_head_dim */
};

struct keys {
    uint16_t *k_t, *v_t; /* a panel: columns are keys */
    uint16_t *k;         /* panels: columns are of head_dim */
};

struct pair_tile {
    float *p, *ds;      /* [KV_BLOCK, KV_BLOCK] */
    float *part;        /* a product of that size */
    float *dv_t, *dk_t; /* [v_head_dim or head_dim, KV_BLOCK] sums; either has
                         * room for the other */
    uint16_t *panel;    /* of P, then of dS */
    uint16_t *rows;     /* [KV_BLOCK, gemm_ld_bf16(KV_BLOCK)] of dS */
};

static size_t
n_panels(size_t head_dim)
{
    return (head_dim + GEMM_PANEL - 1) / GEMM_PANEL;
}

/* Numbers of one of a block's queries, and its transposed ones. */
static size_t
queries_size(size_t d)
{
    return KV_BLOCK * (gemm_ld_bf16(d) + d);
}

static struct attention_sizes
sizes(size_t head_dim, size_t v_head_dim)
{
    return (struct attention_sizes){
        .queries = (queries_size(head_dim) + queries_size(v_head_dim)) *
                   sizeof(uint16_t),
        .keys =
            (gemm_bf16_panel_size(head_dim) + gemm_bf16_panel_size(v_head_dim) +
             n_panels(head_dim) * gemm_bf16_panel_size(KV_BLOCK)) *
            sizeof(uint16_t),
        .tile = (3 * SQUARE + 2 * larger(head_dim, v_head_dim) * KV_BLOCK) *
                    sizeof(float) +
                (gemm_bf16_panel_size(KV_BLOCK) +
                 KV_BLOCK * gemm_ld_bf16(KV_BLOCK)) *
                    sizeof(uint16_t),
    };
}

static struct queries
queries_of(const struct pair *p)
{
    size_t d = p->a->head_dim, dv = p->a->v_head_dim;
    uint16_t *at = pair_queries(p, sizes(d, dv).queries);
    uint16_t *dout = at + queries_size(d);

    return (struct queries){ at, at + KV_BLOCK * gemm_ld_bf16(d), dout,
                             dout + KV_BLOCK * gemm_ld_bf16(dv) };
}

static struct keys
keys_of(const struct pair *p)
{
    size_t d = p->a->head_dim, dv = p->a->v_head_dim;
    uint16_t *at = pair_keys(p, sizes(d, dv).keys);
    uint16_t *v_t = at + gemm_bf16_panel_size(d);

    return (struct keys){ at, v_t, v_t + gemm_bf16_panel_size(dv) };
}

static struct pair_tile
tile_of(const struct pair *p)
{
    size_t sums = larger(p->a->head_dim, p->a->v_head_dim) * KV_BLOCK;
    float *at = p->tile;
    uint16_t *panel = (uint16_t *)(void *)(at + 3 * SQUARE + 2 * sums);

    return (struct pair_tile){
        .p = at,
        .ds = at + SQUARE,
        .part = at + 2 * SQUARE,
        .dv_t = at + 3 * SQUARE,
        .dk_t = at + 3 * SQUARE + sums,
        .panel = panel,
        .rows = panel + gemm_bf16_panel_size(KV_BLOCK),
    };
}

/* ---- operands ---- */

/* Rows [n, d], ld apart, rounded to 'to' and, transposed, to 't'. */
static void
put_queries(uint16_t *to, uint16_t *t, const float *from, size_t ld, size_t n,
            size_t d)
{
    size_t ldq = gemm_ld_bf16(d);

    for (size_t r = 0; r < n; r++)
        gemm_bf16_row(to + r * ldq, from + r * ld, d);
    for (size_t i0 = 0; i0 < d; i0 += 16)
        for (size_t r = 0; r < n; r++)
            for (size_t i = i0; i < smaller(d, i0 + 16); i++)
                t[i * KV_BLOCK + r] = to[r * ldq + i];
    for (size_t i = 0; n < KV_BLOCK && i < d; i++)
        memset(t + i * KV_BLOCK + n, 0, (KV_BLOCK - n) * sizeof(*t));
}

static void
queries(const struct pair *p)
{
    size_t d = p->a->head_dim, dv = p->a->v_head_dim, heads = p->a->n_heads;
    struct queries to = queries_of(p);

    put_queries(to.q, to.q_t, p->g->scaled + pair_query(p, 0), heads * d,
                p->queries.n, d);
    put_queries(to.dout, to.dout_t, p->g->dout + pair_out(p, 0), heads * dv,
                p->queries.n, dv);
}

/* A matrix [k, KV_BLOCK] of floats, whose columns become a panel's. */
static struct gemm_matrix
block_columns(const float *w, size_t k)
{
    return (struct gemm_matrix){
        .weight = { .data = w, .dtype = DT_F32, .ld = KV_BLOCK },
        .n = KV_BLOCK,
        .k = k,
        .by_k = true,
        .native = true
    };
}

/* n keys or values [n, d], ld apart, as columns. */
static void
put_columns(uint16_t *panel, float *transposed, const float *from, size_t ld,
            size_t n, size_t d)
{
    const struct gemm_matrix w = block_columns(transposed, d);

    memset(transposed, 0, d * KV_BLOCK * sizeof(*transposed));
    pair_transpose(transposed, from, ld, n, d);
    gemm_bf16_panels(panel, &w, 0, d);
}

static void
keys(const struct pair *p)
{
    size_t d = p->a->head_dim, dv = p->a->v_head_dim, n = p->keys.n;
    size_t ld = p->a->n_kv_heads * d;
    const float *k = p->g->k + pair_key(p, 0), *v = p->g->v + pair_value(p, 0);
    float *transposed = tile_of(p).dv_t;
    struct keys to = keys_of(p);
    const struct gemm_matrix rows = {
        .weight = { .data = k, .dtype = DT_F32, .ld = ld },
        .n = d,
        .k = KV_BLOCK,
        .by_k = true,
        .native = true
    };

    put_columns(to.k_t, transposed, k, ld, n, d);
    put_columns(to.v_t, transposed, v, p->a->n_kv_heads * dv, n, dv);
    gemm_bf16_panels(to.k, &rows, 0, n);
}

/* ---- a pair ---- */

/* A query sees a key if it is not before it, and not by 'window' after it: the
 * pair's keys [*begin, *end) are seen by its query. */
static void
visible_keys(const struct pair *p, size_t query, size_t *begin, size_t *end)
{
    size_t first = p->keys.at * KV_BLOCK, oldest = 0, n = p->keys.n;

    query += p->queries.at * KV_BLOCK;
    if (p->a->window && query >= p->a->window)
        oldest = query - p->a->window + 1;
    *begin = oldest > first ? smaller(oldest - first, n) : 0;
    *end = query < first ? *begin : smaller(query - first + 1, n);
}

/* P and dS of query i, from S and dP in their places. */
static void
weigh_row(const struct pair *p, size_t i, float *restrict w, float *restrict ds)
{
    size_t row = (p->queries.first + i) * p->a->n_heads + p->head;
    float delta = p->g->work.delta[row];
    size_t begin, end;

    visible_keys(p, i, &begin, &end);
    memset(w, 0, begin * sizeof(*w));
    memset(ds, 0, begin * sizeof(*ds));
    vec_exp_sum(w + begin, p->a->lse[row], end - begin);
    for (size_t k = begin; k < end; k++)
        ds[k] = w[k] * (ds[k] - delta);
    memset(w + end, 0, (KV_BLOCK - end) * sizeof(*w));
    memset(ds + end, 0, (KV_BLOCK - end) * sizeof(*ds));
}

static void
weigh(const struct pair *p)
{
    size_t d = p->a->head_dim, dv = p->a->v_head_dim, n = p->queries.n;
    struct queries q = queries_of(p);
    struct keys k = keys_of(p);
    struct pair_tile t = tile_of(p);

    gemm_bf16_block(t.p, q.q, gemm_ld_bf16(d), k.k_t, n, d, false);
    gemm_bf16_block(t.ds, q.dout, gemm_ld_bf16(dv), k.v_t, n, dv, false);
    for (size_t i = 0; i < n; i++)
        weigh_row(p, i, t.p + i * KV_BLOCK, t.ds + i * KV_BLOCK);
}

/* to [d, KV_BLOCK] += x_t [d, queries] w [queries, keys] */
static void
sum_queries(const struct pair *p, float *to, const uint16_t *x_t, size_t d,
            const float *w, uint16_t *panel, bool first)
{
    const struct gemm_matrix matrix = block_columns(w, KV_BLOCK);

    gemm_bf16_panels(panel, &matrix, 0, p->queries.n);
    gemm_bf16_block(to, x_t, KV_BLOCK, panel, d, KV_BLOCK, !first);
}

static void
dkv(const struct pair *p, bool first)
{
    struct queries q = queries_of(p);
    struct pair_tile t = tile_of(p);

    sum_queries(p, t.dv_t, q.dout_t, p->a->v_head_dim, t.p, t.panel, first);
    sum_queries(p, t.dk_t, q.q_t, p->a->head_dim, t.ds, t.panel, first);
}

static void
dkv_end(const struct pair *p)
{
    struct pair_tile t = tile_of(p);

    for (size_t k = 0; k < p->keys.n; k++) {
        for (size_t i = 0; i < p->a->v_head_dim; i++)
            p->g->dv[pair_value(p, k) + i] = t.dv_t[i * KV_BLOCK + k];
        for (size_t i = 0; i < p->a->head_dim; i++)
            p->g->dk[pair_key(p, k) + i] = t.dk_t[i * KV_BLOCK + k];
    }
}

static void
dq(const struct pair *p, bool first)
{
    size_t d = p->a->head_dim, n = p->queries.n, ld = gemm_ld_bf16(KV_BLOCK);
    struct keys k = keys_of(p);
    struct pair_tile t = tile_of(p);

    for (size_t i = 0; i < n; i++)
        gemm_bf16_row(t.rows + i * ld, t.ds + i * KV_BLOCK, KV_BLOCK);
    for (size_t c = 0; c < d; c += GEMM_PANEL) {
        size_t width = smaller(GEMM_PANEL, d - c);

        gemm_bf16_block(t.part, t.rows, ld,
                        k.k + c / GEMM_PANEL * gemm_bf16_panel_size(KV_BLOCK),
                        n, KV_BLOCK, false);
        for (size_t i = 0; i < n; i++) {
            float *to = p->g->dq + pair_query(p, i) + c;

            if (first)
                memcpy(to, t.part + i * GEMM_PANEL, width * sizeof(*to));
            else
                vec_add(to, t.part + i * GEMM_PANEL, width);
        }
    }
}

const struct pair_class attention_pair_bf16 = { sizes, queries, keys,   weigh,
                                                dq,    dkv,     dkv_end };
