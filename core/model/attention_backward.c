/* SPDX-License-Identifier: ISC */
/* Goes over all pairs; what is computed of one is attention_pair_CLASS.c's. */
#include "core/model/attention_backward.h"

#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/attention_pair.h"

struct pass {
    const struct attention *a;
    const struct attention_grads *g;
    const struct pair_class *class;
    size_t tile;  /* bytes of a thread */
    size_t heads; /* tasks of a block: one for each */
};

static const struct pair_class *
class_of(bool bf16)
{
    return bf16 ? &attention_pair_bf16 : &attention_pair_exact;
}

struct attention_sizes
attention_sizes(size_t head_dim, size_t v_head_dim, bool bf16)
{
    return class_of(bf16)->sizes(head_dim, v_head_dim);
}

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

static struct pair
pair_new(const struct pass *p, size_t head, size_t kv_head, int thread)
{
    return (struct pair){ .a = p->a,
                          .g = p->g,
                          .head = head,
                          .kv_head = kv_head,
                          .tile = p->g->work.tiles + (size_t)thread * p->tile };
}

/* ---- operands ---- */

/* A query head's block of queries, which it scales; and, with the first query
 * head of a KV head, its block of keys. */
static void
prepare(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;
    const struct attention_grads *g = p->g;
    size_t d = p->a->head_dim, group = p->a->n_heads / p->a->n_kv_heads;

    for (size_t i = begin; i < end; i++) {
        struct rows rows;
        size_t head = task_at(p, i, &rows);
        struct pair pair = pair_new(p, head, head / group, thread);

        pair.queries = pair.keys = rows;
        for (size_t r = 0; r < rows.n; r++) {
            size_t at = pair_query(&pair, r), out = pair_out(&pair, r);

            vec_scale(g->scaled + at, p->a->scale, d);
            g->work.delta[at / d] =
                vec_dot(g->dout + out, p->a->out + out, p->a->v_head_dim);
        }
        p->class->queries(&pair);
        if (p->class->keys && head % group == 0)
            p->class->keys(&pair);
    }
}

/* ---- blocks of queries ---- */

/* The first block of keys that some of the queries see. */
static size_t
oldest_block(const struct pass *p, const struct rows *queries)
{
    size_t first = queries->at * KV_BLOCK, window = p->a->window;

    return window && first >= window ? (first - window + 1) / KV_BLOCK : 0;
}

static void
dq_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;
    size_t group = p->a->n_heads / p->a->n_kv_heads;

    for (size_t i = begin; i < end; i++) {
        struct rows q;
        size_t head = task_at(p, i, &q);
        struct pair pair = pair_new(p, head, head / group, thread);

        pair.queries = q;
        for (size_t b = oldest_block(p, &q); b <= q.at; b++) {
            pair.keys = rows_at(q.span, q.index - q.at, b);
            p->class->weigh(&pair);
            p->class->dq(&pair, b == oldest_block(p, &q));
        }
        for (size_t r = 0; r < q.n; r++)
            vec_scale(p->g->dq + pair_query(&pair, r), p->a->scale,
                      p->a->head_dim);
    }
}

/* ---- blocks of keys ---- */

/* The last block of queries that see some of the keys. */
static size_t
newest_block(const struct pass *p, const struct rows *keys)
{
    size_t last = n_blocks(keys->span) - 1, window = p->a->window;
    size_t newest = keys->at * KV_BLOCK + keys->n - 1 + window - 1;

    return window ? smaller(last, newest / KV_BLOCK) : last;
}

/* A KV head's block of keys, and all of its queries. */
static void
dkv_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;
    size_t group = p->a->n_heads / p->a->n_kv_heads;

    for (size_t i = begin; i < end; i++) {
        struct rows k;
        size_t kv_head = task_at(p, i, &k), newest = newest_block(p, &k);
        size_t first = kv_head * group;
        struct pair pair = pair_new(p, first, kv_head, thread);

        pair.keys = k;
        for (; pair.head < first + group; pair.head++)
            for (size_t b = k.at; b <= newest; b++) {
                pair.queries = rows_at(k.span, k.index - k.at, b);
                p->class->weigh(&pair);
                p->class->dkv(&pair, pair.head == first && b == k.at);
            }
        if (p->class->dkv_end)
            p->class->dkv_end(&pair);
    }
}

/* P and dS are computed of each pair twice, once for its queries and once for
 * its keys. */
void
attention_backward(struct par *par, const struct attention *a,
                   const struct attention_grads *g)
{
    const struct pair_class *class = class_of(a->bf16);
    size_t tile = class->sizes(a->head_dim, a->v_head_dim).tile;
    struct pass heads = { a, g, class, tile, a->n_heads };
    struct pass kv_heads = { a, g, class, tile, a->n_kv_heads };

    par_for_thread(par, n_tasks(&heads), 1, prepare, &heads);
    par_for_thread(par, n_tasks(&heads), 1, dq_tasks, &heads);
    par_for_thread(par, n_tasks(&kv_heads), 1, dkv_tasks, &kv_heads);
}
