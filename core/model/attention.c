#include "core/model/attention.h"

#include <math.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/model/engine.h"

/* Rows of queries that share a pass over the keys: those of one KV head, of
 * as many positions as fit. */
#define TILE_ROWS 64

/* One thread's memory, in floats a row. */
struct tile {
    size_t n_rows;
    const struct span *span;
    size_t first;                /* slot of its first row */
    size_t group, head, kv_head; /* query heads: head .. head + group - 1 */
    float *q;                    /* [rows, head_dim], scaled */
    float *sum;                  /* [rows, head_dim]: softmax numerator */
    float *score;                /* [rows, KV_BLOCK], then weights */
    float *max, *total;          /* [rows] */
};

static size_t
tile_positions(size_t group)
{
    return group >= TILE_ROWS ? 1 : TILE_ROWS / group;
}

size_t
attention_scratch(const struct config *config)
{
    size_t group = (size_t)(config->n_heads / config->n_kv_heads);
    size_t rows = group * tile_positions(group);

    return rows * (2 * (size_t)config->head_dim + KV_BLOCK + 2);
}

/* Row r of a tile is query head r % group at position r / group: among the
 * queries [rows, n_heads] that is this one. */
static size_t
query_of(const struct attention *a, const struct tile *t, size_t r)
{
    size_t i = t->span->row + t->first - t->span->slot + r / t->group;

    return i * a->n_heads + t->head + r % t->group;
}

/* The keys [*begin, *end) of block b that the token in slot p sees. */
static bool
visible(const struct attention *a, size_t p, size_t b, size_t *begin,
        size_t *end)
{
    size_t oldest = a->window && p >= a->window ? p - a->window + 1 : 0;
    size_t start = b * KV_BLOCK;

    if (p < start || oldest >= start + KV_BLOCK)
        return false;
    *begin = oldest > start ? oldest - start : 0;
    *end = p - start < KV_BLOCK ? p - start + 1 : KV_BLOCK;
    return true;
}

/*
 * Turns a row's scores into weights against the largest so far, and scales
 * what was summed against an older one.  Keys it does not see weigh 0.
 */
static void
weigh(const struct attention *a, struct tile *t, size_t r, size_t begin,
      size_t end)
{
    float *s = t->score + r * KV_BLOCK;
    float max = vec_max(s + begin, end - begin), by = t->max[r];

    if (!(max <= by)) {           /* larger, or NaN */
        vec_exp_sum(&by, max, 1); /* exp(old - new) */
        vec_scale(t->sum + r * a->head_dim, by, a->head_dim);
        t->total[r] *= by;
        t->max[r] = max;
    }
    t->total[r] += vec_exp_sum(s + begin, t->max[r], end - begin);
    memset(s, 0, begin * sizeof(*s));
    memset(s + end, 0, (KV_BLOCK - end) * sizeof(*s));
}

static void
tile_block(const struct attention *a, struct tile *t, size_t b)
{
    const struct kv *kv = &t->span->session->kv;
    size_t d = a->head_dim, begin = 0, end, from = 0, oldest = 0, n_keys = 0;
    struct weighted_sum scores = { .w = kv_keys(kv, a->layer, t->kv_head, b),
                                   .w_dtype = kv->dtype,
                                   .ldw = KV_BLOCK,
                                   .rows = d,
                                   .ldp = d,
                                   .ldy = KV_BLOCK };
    struct weighted_sum sums = { .w = kv_values(kv, a->layer, t->kv_head, b),
                                 .w_dtype = kv->dtype,
                                 .ldw = d,
                                 .cols = d,
                                 .ldp = KV_BLOCK,
                                 .ldy = d,
                                 .add = true };

    /* the rows that see keys of the block: later ones see more of them, until
     * a window has passed it */
    while (begin < t->n_rows &&
           !visible(a, t->first + begin / t->group, b, &oldest, &n_keys))
        begin += t->group;
    for (end = begin; end < t->n_rows &&
                      visible(a, t->first + end / t->group, b, &from, &n_keys);)
        end += t->group;
    if (begin == end)
        return;
    scores.cols = n_keys;
    scores.p = t->q + begin * d;
    scores.y = t->score + begin * KV_BLOCK;
    scores.n = end - begin;
    weighted_sum(&scores);
    for (size_t r = begin; r < end; r++) {
        size_t last = 0;

        visible(a, t->first + r / t->group, b, &from, &last);
        weigh(a, t, r, from, last);
    }
    sums.w =
        (const char *)sums.w + oldest * d * (dtype_table[kv->dtype].bits / 8);
    sums.rows = n_keys - oldest;
    sums.p = t->score + begin * KV_BLOCK + oldest;
    sums.y = t->sum + begin * d;
    sums.n = end - begin;
    weighted_sum(&sums);
}

/* Is every number of its output one? */
static bool
tile_run(const struct attention *a, struct tile *t)
{
    size_t last = t->first + (t->n_rows - 1) / t->group, d = a->head_dim;
    size_t oldest =
        a->window && t->first >= a->window ? t->first - a->window + 1 : 0;
    bool numbers = true;

    for (size_t r = 0; r < t->n_rows; r++) {
        memcpy(t->q + r * d, a->q + query_of(a, t, r) * d, d * sizeof(*t->q));
        vec_scale(t->q + r * d, (float)(1 / sqrt((double)d)), d);
        t->max[r] = -INFINITY;
        t->total[r] = 0;
    }
    memset(t->sum, 0, t->n_rows * d * sizeof(*t->sum));
    for (size_t b = oldest / KV_BLOCK; b <= last / KV_BLOCK; b++)
        tile_block(a, t, b);
    for (size_t r = 0; r < t->n_rows; r++) {
        float *sum = t->sum + r * d;
        size_t query = query_of(a, t, r);

        vec_scale(sum, 1 / t->total[r], d);
        memcpy(a->out + query * d, sum, d * sizeof(*sum));
        if (a->lse)
            a->lse[query] =
                (float)((double)t->max[r] + f64_log((double)t->total[r]));
        numbers &= !isnan(vec_max(sum, d));
    }
    return numbers;
}

static size_t
n_tasks(const struct attention *a, const struct span *span)
{
    size_t step = tile_positions(a->n_heads / a->n_kv_heads);

    return (span->n + step - 1) / step * a->n_kv_heads;
}

/* A task is one KV head and up to tile_positions() queries of a span. */
static void
run_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct attention *a = ctx;
    size_t group = a->n_heads / a->n_kv_heads;
    size_t step = tile_positions(group);
    size_t rows = group * step;
    size_t scratch = rows * (2 * a->head_dim + KV_BLOCK + 2);

    for (size_t i = begin; i < end; i++) {
        struct tile t = { .group = group, .span = a->spans };
        size_t task = i, at, first, n;

        for (; task >= n_tasks(a, t.span); t.span++)
            task -= n_tasks(a, t.span);
        at = task / a->n_kv_heads * step;
        t.kv_head = task % a->n_kv_heads;
        t.head = t.kv_head * group;
        t.first = t.span->slot + at;
        t.n_rows = (t.span->n - at < step ? t.span->n - at : step) * group;
        t.q = a->scratch + (size_t)thread * scratch;
        t.sum = t.q + rows * a->head_dim;
        t.score = t.sum + rows * a->head_dim;
        t.max = t.score + rows * KV_BLOCK;
        t.total = t.max + rows;
        if (tile_run(a, &t) || t.n_rows == group)
            continue;
        /* A weight of 0 hides no infinity that another position alone sees:
         * the product is NaN.  Each position then sums what is its own. */
        first = t.first;
        n = t.n_rows / group;
        t.n_rows = group;
        for (size_t k = 0; k < n; k++) {
            t.first = first + k;
            tile_run(a, &t);
        }
    }
}

void
attention_run(struct par *par, const struct attention *a)
{
    struct attention copy = *a;
    size_t tasks = 0;

    for (size_t i = 0; i < a->n_spans; i++)
        tasks += n_tasks(a, &a->spans[i]);
    par_for(par, tasks, 1, run_tasks, &copy);
}
