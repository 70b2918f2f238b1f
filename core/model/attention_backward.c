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
    size_t heads; /* tasks of a block, or of a span: one for each */
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
        if (head % group == 0)
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
sum_dq(const struct pass *p, const struct pair *pair)
{
    p->class->dq(pair, pair->keys.at == oldest_block(p, &pair->queries));
}

static void
scale_dq(const struct pair *p)
{
    for (size_t i = 0; i < p->queries.n; i++)
        vec_scale(p->g->dq + pair_query(p, i), p->a->scale, p->a->head_dim);
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
            sum_dq(p, &pair);
        }
        scale_dq(&pair);
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
sum_keys(const struct pass *p, struct pair *pair, bool with_dq)
{
    const struct rows *k = &pair->keys;
    size_t group = p->a->n_heads / p->a->n_kv_heads;
    size_t first = pair->kv_head * group, newest = newest_block(p, k);

    for (pair->head = first; pair->head < first + group; pair->head++)
        for (size_t b = k->at; b <= newest; b++) {
            pair->queries = rows_at(k->span, k->index - k->at, b);
            p->class->weigh(pair);
            p->class->dkv(pair, pair->head == first && b == k->at);
            if (with_dq)
                sum_dq(p, pair);
        }
    p->class->dkv_end(pair);
}

static void
dkv_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;

    for (size_t i = begin; i < end; i++) {
        struct rows keys;
        size_t kv_head = task_at(p, i, &keys);
        struct pair pair = pair_new(p, 0, kv_head, thread);

        pair.keys = keys;
        sum_keys(p, &pair, false);
    }
}

/* Task i is a KV head of a span. */
static void
whole_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *p = ctx;
    size_t group = p->a->n_heads / p->a->n_kv_heads;

    for (size_t i = begin; i < end; i++) {
        const struct span *span = &p->a->spans[i / p->heads];
        struct pair pair = pair_new(p, 0, i % p->heads, thread);
        size_t first = 0;

        for (const struct span *s = p->a->spans; s < span; s++)
            first += n_blocks(s);
        for (size_t b = 0; b < n_blocks(span); b++) {
            pair.keys = rows_at(span, first, b);
            sum_keys(p, &pair, true);
        }
        for (size_t b = 0; b < n_blocks(span); b++)
            for (size_t h = 0; h < group; h++) {
                pair.queries = rows_at(span, first, b);
                pair.head = pair.kv_head * group + h;
                scale_dq(&pair);
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
    const struct pair_class *class = class_of(a->bf16);
    size_t n_whole = a->n_spans * a->n_kv_heads;
    size_t tile = class->sizes(a->head_dim, a->v_head_dim).tile;
    struct pass heads = { a, g, class, tile, a->n_heads };
    struct pass kv_heads = { a, g, class, tile, a->n_kv_heads };

    par_for_thread(par, n_tasks(&heads), 1, prepare, &heads);
    if (n_whole >= TASKS * (size_t)par_threads(par)) {
        par_for_thread(par, n_whole, 1, whole_tasks, &kv_heads);
    } else {
        par_for_thread(par, n_tasks(&heads), 1, dq_tasks, &heads);
        par_for_thread(par, n_tasks(&kv_heads), 1, dkv_tasks, &kv_heads);
    }
}
