/* SPDX-License-Identifier: ISC */
#include "core/kernel/sums.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "core/kernel/ops.h"

#define BLOCK  64 /* numbers that one compare of the kernels looks at */
#define SHORT  16 /* ranked one by one from here down */
#define SAMPLE 5

void
weighted_sum(const struct weighted_sum *s)
{
    sums_ops_of(cpu_isa())->weighted(s);
}

void
sparse_sum(const struct sparse_sum *s)
{
    sums_ops_of(cpu_isa())->sparse(s);
}

/* ---- keys: see topk_key() ---- */

static float
value_of(uint64_t key)
{
    return f32_from_bits((uint32_t)(key >> 32));
}

static uint32_t
index_of(uint64_t key)
{
    return ~(uint32_t)key;
}

/* The k-th largest of few keys that all differ: each is compared with all, so
 * that no branch depends on them. */
static uint64_t
kth_of_few(const uint64_t *key, size_t n, size_t k)
{
    uint64_t kth = 0;

    for (size_t i = 0; i < n; i++) {
        size_t above = 0;

        for (size_t j = 0; j < n; j++)
            above += key[j] > key[i];
        kth |= above + 1 == k ? key[i] : 0;
    }
    return kth;
}

/* Of a sample, the one whose place in it is the k-th's among all. */
static uint64_t
pivot_of(const uint64_t *key, size_t n, size_t k)
{
    uint64_t sample[SAMPLE];

    for (size_t i = 0; i < SAMPLE; i++)
        sample[i] = key[i * n / SAMPLE];
    return kth_of_few(sample, SAMPLE, (k - 1) * SAMPLE / n + 1);
}

/* The k-th largest of keys that all differ.  0 < k <= n; room [n]. */
static uint64_t
kth_largest(const struct sums_ops *ops, const uint64_t *key, uint64_t *room,
            size_t n, size_t k)
{
    while (n > SHORT) {
        uint64_t pivot = pivot_of(key, n, k);
        size_t above = ops->over(key, n, pivot);

        if (above + 1 == k)
            return pivot;
        if (above >= k) {
            n = ops->between(room, key, n, pivot, INT64_MAX);
        } else {
            n = ops->between(room, key, n, 0, pivot);
            k -= above + 1;
        }
        key = room;
    }
    return kth_of_few(key, n, k);
}

/* ---- the k largest ---- */

size_t
topk_cap(size_t k)
{
    return 4 * k + BLOCK; /* selections cost more than room */
}

void
topk_start(struct topk *t, uint64_t *key, uint64_t *room, size_t k)
{
    *t = (struct topk){
        .ops = sums_ops_of(cpu_isa()),
        .key = key,
        .room = room,
        .k = k,
        .cap = topk_cap(k),
    };
}

/* Leaves k, in their order: a number under the last of them cannot be among
 * them any more; an equal one can, if its index is lower. */
static void
thin_out(struct topk *t)
{
    uint64_t last;

    if (t->n <= t->k || t->k == 0)
        return;
    last = kth_largest(t->ops, t->key, t->room, t->n, t->k);
    t->n = t->ops->between(t->key, t->key, t->n, last - 1, INT64_MAX);
    t->below = f32_from_bits((uint32_t)(last >> 32) - 1); /* > 0 */
}

/* For one more block. */
static void
make_room(struct topk *t)
{
    if (t->n + BLOCK > t->cap)
        thin_out(t);
}

void
topk_put(struct topk *t, const float *x, uint32_t first, size_t n)
{
    const struct sums_ops *ops = t->ops;

    for (size_t i = 0; i < n; i += BLOCK) {
        size_t n_block = n - i < BLOCK ? n - i : BLOCK;
        uint64_t bits = ops->outside(x + i, n_block, -FLT_MAX, t->below), bad;

        if (bits == 0)
            continue;
        bad = ops->outside(x + i, n_block, -FLT_MAX, FLT_MAX);
        t->bad |= bad != 0;
        make_room(t);
        t->n +=
            ops->keys(t->key + t->n, x + i, bits & ~bad, first + (uint32_t)i);
    }
}

void
topk_add(struct topk *t, const struct topk *other)
{
    const struct sums_ops *ops = t->ops;

    for (size_t i = 0; i < other->n; i += BLOCK) {
        size_t n_block = other->n - i < BLOCK ? other->n - i : BLOCK;

        make_room(t);
        t->n += ops->between(t->key + t->n, other->key + i, n_block,
                             topk_key(t->below, 0), INT64_MAX);
    }
    t->bad |= other->bad;
}

static bool
in_order(const uint64_t *key, size_t n)
{
    bool yes = true;

    for (size_t i = 1; i < n; i++)
        yes &= index_of(key[i - 1]) < index_of(key[i]);
    return yes;
}

/* To ascending indices, a digit of 8 bits at a time. */
static void
sort_by_index(uint64_t *key, uint64_t *room, size_t n)
{
    uint64_t *from = key, *to = room;
    uint32_t all = 0;

    if (in_order(key, n))
        return;
    for (size_t i = 0; i < n; i++)
        all |= index_of(key[i]);
    for (unsigned shift = 0; shift < 32 && all >> shift; shift += 8) {
        size_t at[256] = { 0 }, sum = 0;
        uint64_t *t = from;

        for (size_t i = 0; i < n; i++)
            at[index_of(from[i]) >> shift & 255]++;
        for (size_t d = 0; d < 256; d++) {
            size_t n_digit = at[d];

            at[d] = sum;
            sum += n_digit;
        }
        for (size_t i = 0; i < n; i++)
            to[at[index_of(from[i]) >> shift & 255]++] = from[i];
        from = to;
        to = t;
    }
    if (from != key)
        memcpy(key, from, n * sizeof(*key));
}

size_t
topk_take(struct topk *t, uint32_t *idx, float *v)
{
    thin_out(t);
    sort_by_index(t->key, t->room, t->n);
    for (size_t i = 0; i < t->n; i++) {
        idx[i] = index_of(t->key[i]);
        v[i] = value_of(t->key[i]);
    }
    return t->n;
}

/* ---- all over thresholds ---- */

size_t
select_over(uint32_t *idx, float *v, const float *x, const float *threshold,
            size_t n, bool *bad)
{
    size_t n_over = 0;

    for (size_t i = 0; i < n; i += BLOCK) {
        size_t end = n - i < BLOCK ? n : i + BLOCK;
        uint32_t over = 0, odd = 0;

        for (size_t j = i; j < end; j++) {
            over |= x[j] > threshold[j];
            odd |= !(fabsf(x[j]) <= FLT_MAX);
        }
        *bad |= odd;
        for (size_t j = i; over && j < end; j++)
            if (x[j] > threshold[j]) {
                idx[n_over] = (uint32_t)j;
                v[n_over++] = x[j];
            }
    }
    return n_over;
}

/* ---- the k largest, of several threads ---- */

size_t
topk_shared_cap(size_t k)
{
    return k + k / 4 + BLOCK;
}

void
topk_shared_start(struct topk_shared *s, uint64_t *key, uint64_t *room,
                  size_t k)
{
    topk_start(&s->top, key, room, k);
    s->top.cap = topk_shared_cap(k);
    s->below = 0;
    pthread_mutex_init(&s->lock, NULL);
}

void
topk_shared_close(struct topk_shared *s)
{
    pthread_mutex_destroy(&s->lock);
}

void
topk_hand_over(struct topk_shared *s, struct topk_offers *o)
{
    struct topk offered = { .key = o->key, .n = o->n, .bad = o->bad };

    pthread_mutex_lock(&s->lock);
    topk_add(&s->top, &offered);
    s->below = s->top.below;
    pthread_mutex_unlock(&s->lock);
    o->n = 0;
}

void
topk_offer(struct topk_shared *s, struct topk_offers *o, const float *x,
           uint32_t first, size_t n)
{
    const struct sums_ops *ops = s->top.ops;
    float below = atomic_load_explicit(&s->below, memory_order_relaxed);

    for (size_t i = 0; i < n; i += BLOCK) {
        size_t n_block = n - i < BLOCK ? n - i : BLOCK;
        uint64_t bits = ops->outside(x + i, n_block, -FLT_MAX, below), bad;

        if (bits == 0)
            continue;
        bad = ops->outside(x + i, n_block, -FLT_MAX, FLT_MAX);
        o->bad |= bad != 0;
        if (o->n + BLOCK > TOPK_OFFERS) {
            topk_hand_over(s, o);
            below = s->below;
        }
        o->n +=
            ops->keys(o->key + o->n, x + i, bits & ~bad, first + (uint32_t)i);
    }
}

void
topk_magnitudes(uint32_t *idx, size_t k, const float *x, const float *by,
                size_t n, uint64_t *key)
{
    const struct sums_ops *ops = sums_ops_of(cpu_isa());
    uint64_t last;

    for (size_t i = 0; i < n; i++) {
        float f = fabsf(by ? x[i] * by[i] : x[i]);

        key[i] = topk_key(isnan(f) ? NAN : f, (uint32_t)i);
    }
    if (k == 0)
        return;
    last = kth_largest(ops, key, key + n, n, k);
    ops->between(key, key, n, last - 1, INT64_MAX);
    for (size_t i = 0; i < k; i++)
        idx[i] = index_of(key[i]);
}
