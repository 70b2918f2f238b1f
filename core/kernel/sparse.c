#include "core/kernel/sparse.h"

#include <float.h>
#include <math.h>

#include "core/kernel/ops.h"

#define BLOCK 64 /* numbers that one compare of the kernels looks at */
#define SHORT 12 /* sorted by insertion from here down */

void
sparse_sum(const struct sparse *s)
{
    const struct sparse_ops *ops = sparse_ops_of(cpu_isa());

    (s->w_dtype == DT_BF16  ? ops->bf16
     : s->w_dtype == DT_F16 ? ops->f16
                            : ops->f32)(s);
}

/* ---- keys: the bits of a number that is not negative, then its index,
 * inverted: of two keys the larger one is wanted ---- */

static uint64_t
key_of(float v, uint32_t i)
{
    return (uint64_t)f32_bits(v) << 32 | (uint32_t)~i;
}

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

static void
swap(uint64_t *a, uint64_t *b)
{
    uint64_t c = *a;

    *a = *b;
    *b = c;
}

/* Moves what is larger than the pivot, the middle one of three, to the front;
 * returns the pivot's place.  n >= 3. */
static size_t
split(uint64_t *key, size_t n)
{
    uint64_t *mid = key + n / 2, *last = key + n - 1, pivot;
    size_t at = 0;

    if (*mid > *key)
        swap(mid, key);
    if (*last > *key)
        swap(last, key);
    if (*mid > *last)
        swap(mid, last); /* key >= last >= mid */
    pivot = *last;
    for (size_t i = 0; i + 1 < n; i++) {
        uint64_t v = key[i];

        key[i] = key[at];
        key[at] = v;
        at += v > pivot;
    }
    swap(&key[at], last);
    return at;
}

static void
insertion_sort(uint64_t *key, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t v = key[i];
        size_t k = i;

        for (; k > 0 && key[k - 1] < v; k--)
            key[k] = key[k - 1];
        key[k] = v;
    }
}

/* key[k - 1] becomes the k-th largest, what is before it is larger; all keys
 * differ.  0 < k <= n. */
static void
select_largest(uint64_t *key, size_t n, size_t k)
{
    while (n > SHORT) {
        size_t at = split(key, n);

        if (at + 1 == k)
            return;
        if (at >= k) {
            n = at;
        } else {
            key += at + 1;
            n -= at + 1;
            k -= at + 1;
        }
    }
    insertion_sort(key, n);
}

/* Descending. */
static void
sort(uint64_t *key, size_t n)
{
    while (n > SHORT) {
        size_t at = split(key, n);

        sort(key, at); /* no deeper than k: keys are distinct and few */
        key += at + 1;
        n -= at + 1;
    }
    insertion_sort(key, n);
}

/* ---- the k largest ---- */

size_t
topk_cap(size_t k)
{
    return 4 * k + BLOCK; /* selections cost more than room */
}

void
topk_start(struct topk *t, uint64_t *key, size_t k)
{
    *t = (struct topk){ .key = key, .k = k };
}

/* Leaves k: a number under the last of them has no chance any more; one that
 * equals it has, if its index is lower. */
static void
thin_out(struct topk *t)
{
    if (t->n <= t->k || t->k == 0)
        return;
    select_largest(t->key, t->n, t->k);
    t->n = t->k;
    t->below = f32_from_bits((uint32_t)(t->key[t->k - 1] >> 32) - 1); /* > 0 */
}

void
topk_put(struct topk *t, const float *x, uint32_t first, size_t n)
{
    const struct sparse_ops *ops = sparse_ops_of(cpu_isa());

    for (size_t i = 0; i < n; i += BLOCK) {
        size_t n_block = n - i < BLOCK ? n - i : BLOCK;
        uint64_t bits;

        if (t->n + BLOCK > topk_cap(t->k))
            thin_out(t);
        bits = ops->outside(x + i, n_block, -FLT_MAX, t->below);
        for (; bits; bits &= bits - 1) {
            size_t j = i + (size_t)__builtin_ctzll(bits);

            if (isfinite(x[j]))
                t->key[t->n++] = key_of(x[j], first + (uint32_t)j);
            else
                t->bad = true;
        }
    }
}

void
topk_add(struct topk *t, const struct topk *other)
{
    for (size_t i = 0; i < other->n; i++) {
        if (t->n == topk_cap(t->k))
            thin_out(t);
        t->key[t->n++] = other->key[i];
    }
    t->bad |= other->bad;
}

/* From the largest key of indices, inverted, to the smallest index last. */
static void
put_indices(uint64_t *key, size_t n)
{
    for (size_t i = 0; i < n; i++)
        key[i] = key[i] << 32 | key[i] >> 32;
    sort(key, n);
}

size_t
topk_take(struct topk *t, uint32_t *idx, float *v)
{
    thin_out(t);
    put_indices(t->key, t->n);
    for (size_t i = 0; i < t->n; i++) {
        uint64_t key = t->key[i] << 32 | t->key[i] >> 32;

        idx[i] = index_of(key);
        v[i] = value_of(key);
    }
    return t->n;
}

void
topk_magnitudes(uint32_t *idx, size_t k, const float *x, const float *by,
                size_t n, uint64_t *key)
{
    for (size_t i = 0; i < n; i++)
        key[i] = key_of(fabsf(by ? x[i] * by[i] : x[i]), (uint32_t)i);
    if (k > 0 && k < n)
        select_largest(key, n, k);
    put_indices(key, k);
    for (size_t i = 0; i < k; i++)
        idx[i] = ~(uint32_t)(key[i] >> 32);
}
