#include "core/model/attention_backward.h"

#include <math.h>
#include <string.h>

#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/engine.h"

struct pass {
    const struct attention *a;
    const struct attention_grads *g;
    size_t heads; /* tasks of a block, or of a span: one for each */
    bool whole;   /* a task is a span: dq is summed with dk and dv */
};

/* Some rows of a span: block 'at' of it, and block 'index' of all spans. */
struct rows {
    const struct span *span;
    size_t at, index, first, n; /* first: a row of the chunk */
};

static size_t
n_blocks(const struct span *span)
{
    return (span->n + KV_BLOCK - 1) / KV_BLOCK;
}

static struct rows
rows_at(const struct span *span, size_t first_index, size_t at)
{
    return (struct rows){ span, at, first_index + at, span->row + at * KV_BLOCK,
                          smaller(KV_BLOCK, span->n - at * KV_BLOCK) };
}

/* Task i is a head, of p->heads, and a block of a span. */
static size_t
task_at(const struct pass *p, size_t i, struct rows *rows)
{
    const struct span *span = p->a->spans;
    size_t block = i / p->heads, first = 0;

    while (block - first >= n_blocks(span))
        first += n_blocks(span++);
    *rows = rows_at(span, first, block - first);
    return i % p->heads;
}

static size_t
n_tasks(const struct pass *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->a->n_spans; i++)
        n += n_blocks(&p->a->spans[i]);
    return n * p->heads;
}

static float *
block_of(const struct pass *p, float *blocks, const struct rows *rows,
         size_t n_heads, size_t head)
{
    return blocks + (rows->index * n_heads + head) * p->a->head_dim * KV_BLOCK;
}

/* ---- operands ---- */

/* Rows [n, d], ld apart, to [d, KV_BLOCK]. */
static void
transpose(float *to, const float *from, size_t ld, size_t n, size_t d)
{
    for (size_t i0 = 0; i0 < d; i0 += 16)
        for (size_t r = 0; r < n; r++)
            for (size_t i = i0; i < smaller(d, i0 + 16); i++)
                to[i * KV_BLOCK + r] = from[r * ld + i];
}

/* A query head's scaled queries and dout, and for every head of a KV head once
 * its values. */
static void
prepare(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;
    const struct attention *a = p->a;
    const struct attention_grads *g = p->g;
    size_t d = a->head_dim, ld = a->n_heads * d, ldv = a->n_kv_heads * d;
    size_t group = a->n_heads / a->n_kv_heads;
    float by = (float)(1 / sqrt((double)d));

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        struct rows rows;
        size_t head = task_at(p, i, &rows), at;

        for (size_t r = rows.first; r < rows.first + rows.n; r++) {
            at = r * ld + head * d;
            vec_scale(g->scaled + at, by, d);
            g->work.delta[r * a->n_heads + head] =
                vec_dot(g->dout + at, a->out + at, d);
        }
        at = rows.first * ld + head * d;
        transpose(block_of(p, g->work.q, &rows, a->n_heads, head),
                  g->scaled + at, ld, rows.n, d);
        transpose(block_of(p, g->work.dout, &rows, a->n_heads, head),
                  g->dout + at, ld, rows.n, d);
        if (head % group == 0)
            transpose(
                block_of(p, g->work.v, &rows, a->n_kv_heads, head / group),
                g->v + rows.first * ldv + head / group * d, ldv, rows.n, d);
    }
}

/* ---- blocks of P and dS ---- */

/* A query sees a key if it is not before it, and not by 'window' after it:
 * query i and key k of their sequence. */
static void
visible_keys(const struct attention *a, size_t query, const struct rows *keys,
             size_t *begin, size_t *end)
{
    size_t first = keys->at * KV_BLOCK, oldest = 0, n = keys->n;

    if (a->window && query >= a->window)
        oldest = query - a->window + 1;
    *begin = oldest > first ? smaller(oldest - first, n) : 0;
    *end = query < first ? *begin : smaller(query - first + 1, n);
}

static void
visible_queries(const struct attention *a, size_t key,
                const struct rows *queries, size_t *begin, size_t *end)
{
    size_t first = queries->at * KV_BLOCK, n = queries->n;

    *begin = key > first ? smaller(key - first, n) : 0;
    *end = n;
    if (a->window)
        *end = key + a->window <= first ? *begin
                                        : smaller(key + a->window - first, n);
}

/* The first block of keys that some of the queries see. */
static size_t
oldest_block(const struct attention *a, const struct rows *queries)
{
    size_t first = queries->at * KV_BLOCK;

    return a->window && first >= a->window ? (first - a->window + 1) / KV_BLOCK
                                           : 0;
}

/* A row's P and dS, from S - lse and dP - delta in their places. */
static void
weigh(float *restrict p, float *restrict ds, size_t begin, size_t end, size_t n)
{
    memset(p, 0, begin * sizeof(*p));
    memset(ds, 0, begin * sizeof(*ds));
    vec_exp_sum(p + begin, 0, end - begin);
    for (size_t i = begin; i < end; i++)
        ds[i] *= p[i];
    memset(p + end, 0, (n - end) * sizeof(*p));
    memset(ds + end, 0, (n - end) * sizeof(*ds));
}

/* ---- dq ---- */

/* dq = dS k, or adds it: after all keys it is scaled. */
static void
sum_dq(const struct pass *p, const struct rows *queries,
       const struct rows *keys, size_t head, const float *ds)
{
    const struct attention *a = p->a;
    size_t d = a->head_dim, ld = a->n_heads * d, ldk = a->n_kv_heads * d;
    size_t kv_head = head / (a->n_heads / a->n_kv_heads);
    const struct weighted_sum sum = {
        .y = p->g->dq + queries->first * ld + head * d,
        .w = p->g->k + keys->first * ldk + kv_head * d,
        .p = ds,
        .ldy = ld,
        .ldw = ldk,
        .ldp = KV_BLOCK,
        .rows = keys->n,
        .cols = d,
        .n = queries->n,
        .w_dtype = DT_F32,
        .native = true,
        .add = keys->at > oldest_block(a, queries),
    };

    weighted_sum(&sum);
}

static void
scale_dq(const struct pass *p, const struct rows *queries, size_t head)
{
    size_t d = p->a->head_dim;
    float by = (float)(1 / sqrt((double)d));

    for (size_t r = queries->first; r < queries->first + queries->n; r++)
        vec_scale(p->g->dq + (r * p->a->n_heads + head) * d, by, d);
}

static void
dq_block(const struct pass *p, const struct rows *queries,
         const struct rows *keys, size_t head, float *tiles)
{
    const struct attention *a = p->a;
    const struct attention_grads *g = p->g;
    size_t d = a->head_dim, ld = a->n_heads * d;
    size_t kv_head = head / (a->n_heads / a->n_kv_heads);
    size_t at = queries->first * ld + head * d;
    float *score = tiles, *ds = tiles + KV_BLOCK * KV_BLOCK;
    struct weighted_sum sum = {
        .y = score,
        .w = kv_keys(&keys->span->session->kv, a->layer, kv_head, keys->at),
        .p = g->scaled + at,
        .ldy = KV_BLOCK,
        .ldw = KV_BLOCK,
        .ldp = ld,
        .rows = d,
        .cols = keys->n,
        .n = queries->n,
        .w_dtype = DT_F32,
        .native = false, /* the cache's */
        .add = true,
    };

    for (size_t i = 0; i < queries->n; i++) {
        size_t row = (queries->first + i) * a->n_heads + head;

        for (size_t k = 0; k < keys->n; k++) {
            score[i * KV_BLOCK + k] = -a->lse[row];
            ds[i * KV_BLOCK + k] = -g->work.delta[row];
        }
    }
    weighted_sum(&sum);
    sum.native = true;
    sum.y = ds;
    sum.w = block_of(p, g->work.v, keys, a->n_kv_heads, kv_head);
    sum.p = g->dout + at;
    weighted_sum(&sum);
    for (size_t i = 0; i < queries->n; i++) {
        size_t begin, end;

        visible_keys(a, queries->at * KV_BLOCK + i, keys, &begin, &end);
        weigh(score + i * KV_BLOCK, ds + i * KV_BLOCK, begin, end, keys->n);
    }
    sum_dq(p, queries, keys, head, ds);
}

static void
dq_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;
    float *tiles = p->g->work.tiles + (size_t)thread * ATTENTION_TILES;

    for (size_t i = begin; i < end; i++) {
        struct rows queries;
        size_t head = task_at(p, i, &queries);

        for (size_t b = oldest_block(p->a, &queries); b <= queries.at; b++) {
            struct rows keys =
                rows_at(queries.span, queries.index - queries.at, b);

            dq_block(p, &queries, &keys, head, tiles);
        }
        scale_dq(p, &queries, head);
    }
}

/* ---- dk, dv ---- */

static void
dkv_block(const struct pass *p, const struct rows *queries,
          const struct rows *keys, size_t head, bool first, float *tiles)
{
    const struct attention *a = p->a;
    const struct attention_grads *g = p->g;
    size_t d = a->head_dim, ld = a->n_heads * d, ldk = a->n_kv_heads * d;
    size_t kv_head = head / (a->n_heads / a->n_kv_heads);
    size_t at = queries->first * ld + head * d;
    size_t key = keys->first * ldk + kv_head * d;
    float *score = tiles, *ds = tiles + KV_BLOCK * KV_BLOCK;
    struct weighted_sum sum = {
        .y = score,
        .w = block_of(p, g->work.q, queries, a->n_heads, head),
        .p = g->k + key,
        .ldy = KV_BLOCK,
        .ldw = KV_BLOCK,
        .ldp = ldk,
        .rows = d,
        .cols = queries->n,
        .n = keys->n,
        .w_dtype = DT_F32,
        .native = true,
        .add = true,
    };

    for (size_t i = 0; i < queries->n; i++) {
        size_t row = (queries->first + i) * a->n_heads + head;

        score[i] = -a->lse[row];
        ds[i] = -g->work.delta[row];
    }
    for (size_t k = 1; k < keys->n; k++) {
        memcpy(score + k * KV_BLOCK, score, queries->n * sizeof(*score));
        memcpy(ds + k * KV_BLOCK, ds, queries->n * sizeof(*ds));
    }
    weighted_sum(&sum);
    sum.y = ds;
    sum.w = block_of(p, g->work.dout, queries, a->n_heads, head);
    sum.p = g->v + key;
    weighted_sum(&sum);
    for (size_t k = 0; k < keys->n; k++) {
        size_t begin, end;

        visible_queries(a, keys->at * KV_BLOCK + k, queries, &begin, &end);
        weigh(score + k * KV_BLOCK, ds + k * KV_BLOCK, begin, end, queries->n);
    }
    sum = (struct weighted_sum){
        .y = g->dv + key,
        .w = g->dout + at,
        .p = score,
        .ldy = ldk,
        .ldw = ld,
        .ldp = KV_BLOCK,
        .rows = queries->n,
        .cols = d,
        .n = keys->n,
        .w_dtype = DT_F32,
        .native = true,
        .add = !first,
    };
    weighted_sum(&sum);
    sum.y = g->dk + key;
    sum.w = g->scaled + at;
    sum.p = ds;
    weighted_sum(&sum);
    if (p->whole) {
        /* the bits that dq_block() gets: score's place is free */
        transpose(score, ds, KV_BLOCK, keys->n, queries->n);
        sum_dq(p, queries, keys, head, score);
    }
}

/* A KV head's block of keys, and all of its queries. */
static void
dkv_keys(const struct pass *p, const struct rows *keys, size_t kv_head,
         float *tiles)
{
    const struct attention *a = p->a;
    size_t group = a->n_heads / a->n_kv_heads, head = kv_head * group;
    size_t last = n_blocks(keys->span) - 1;

    if (a->window)
        last =
            smaller(last, (keys->at * KV_BLOCK + keys->n - 1 + a->window - 1) /
                              KV_BLOCK);
    for (size_t h = head; h < head + group; h++)
        for (size_t b = keys->at; b <= last; b++) {
            struct rows queries =
                rows_at(keys->span, keys->index - keys->at, b);

            dkv_block(p, &queries, keys, h, h == head && b == keys->at, tiles);
        }
}

static void
dkv_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;
    float *tiles = p->g->work.tiles + (size_t)thread * ATTENTION_TILES;

    for (size_t i = begin; i < end; i++) {
        struct rows keys;
        size_t kv_head = task_at(p, i, &keys);

        dkv_keys(p, &keys, kv_head, tiles);
    }
}

/* Task i is a KV head of a span. */
static void
whole_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;
    const struct attention *a = p->a;
    size_t group = a->n_heads / a->n_kv_heads;
    float *tiles = p->g->work.tiles + (size_t)thread * ATTENTION_TILES;

    for (size_t i = begin; i < end; i++) {
        const struct span *span = &a->spans[i / p->heads];
        size_t kv_head = i % p->heads, first = 0;

        for (const struct span *s = a->spans; s < span; s++)
            first += n_blocks(s);
        for (size_t b = 0; b < n_blocks(span); b++) {
            struct rows keys = rows_at(span, first, b);

            dkv_keys(p, &keys, kv_head, tiles);
        }
        for (size_t b = 0; b < n_blocks(span); b++) {
            struct rows queries = rows_at(span, first, b);

            for (size_t h = 0; h < group; h++)
                scale_dq(p, &queries, kv_head * group + h);
        }
    }
}

/* Both ways have the same bits.  That in which a task is a KV head of a whole
 * sequence computes P and dS once, not twice, but has fewer tasks. */
void
attention_backward(struct par *par, const struct attention *a,
                   const struct attention_grads *g)
{
    enum { TASKS = 8 }; /* for each thread, to share evenly */
    size_t n_whole = a->n_spans * a->n_kv_heads;
    bool whole = n_whole >= TASKS * (size_t)par_threads(par);
    struct pass heads = { a, g, a->n_heads, false };
    struct pass kv_heads = { a, g, a->n_kv_heads, whole };

    par_for(par, n_tasks(&heads), 1, prepare, &heads);
    if (whole) {
        par_for(par, n_whole, 1, whole_tasks, &kv_heads);
    } else {
        par_for(par, n_tasks(&heads), 1, dq_tasks, &heads);
        par_for(par, n_tasks(&kv_heads), 1, dkv_tasks, &kv_heads);
    }
}
