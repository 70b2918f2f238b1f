/* SPDX-License-Identifier: ISC */
#include "core/perm.h"

#include "core/rng.h"

#define FEW      12 /* items that are sorted by insertion */
#define MAX_BITS 8  /* of a key, a pass */
#define MAX_BINS (1 << MAX_BITS)

enum { ORDER, DRAWS }; /* counter[2] of what is drawn */

static uint64_t
word(const struct perm *perm, uint64_t i, uint64_t t, uint64_t purpose)
{
    const uint64_t key[2] = { perm->seed, perm->epoch };
    const uint64_t counter[4] = { i / 4 + 1, t, purpose, 0 };
    uint64_t out[4];

    rng_philox(key, counter, out);
    return out[i % 4];
}

uint64_t
perm_word(const struct perm *perm, uint64_t i, uint64_t t)
{
    return word(perm, i, t, ORDER);
}

void
perm_keys(const struct perm *perm, uint64_t first, size_t n, uint64_t *keys)
{
    rng_words(perm->seed, perm->epoch, first, n, keys);
}

bool
perm_before(const struct perm *perm, const struct perm_item *a,
            const struct perm_item *b, perm_element_fn *element,
            const void *ctx)
{
    uint64_t i, j, v = 0, w = 0;

    if (a->key != b->key)
        return a->key < b->key;
    i = element ? element(ctx, a->at) : a->at;
    j = element ? element(ctx, b->at) : b->at;
    if (i == j)
        return false;
    for (uint64_t t = 1; v == w; t++) {
        v = perm_word(perm, i, t);
        w = perm_word(perm, j, t);
    }
    return v < w;
}

/* What every part of one perm_sort() needs. */
struct sort {
    const struct perm *perm;
    struct perm_item *items;
    perm_element_fn *element;
    const void *ctx;
    int top; /* below this bit keys differ after the first pass */
    size_t first[MAX_BINS + 1];
};

static void
sort_few(const struct sort *s, struct perm_item *p, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct perm_item x = p[i];
        size_t k = i;

        for (; k > 0 && perm_before(s->perm, &x, &p[k - 1], s->element, s->ctx);
             k--)
            p[k] = p[k - 1];
        p[k] = x;
    }
}

/* Brings items into the bins of 'bits' bits of their keys, in place: each item
 * is swapped with the one at the head of its own bin. */
static void
to_bins(struct perm_item *p, size_t n, int shift, int bits, size_t *first)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    size_t head[MAX_BINS];
    size_t count[MAX_BINS] = { 0 };

    for (size_t i = 0; i < n; i++)
        count[p[i].key >> shift & mask]++;
    first[0] = 0;
    for (size_t b = 0; b <= mask; b++) {
        head[b] = first[b];
        first[b + 1] = first[b] + count[b];
    }
    for (size_t b = 0; b <= mask; b++)
        while (head[b] < first[b + 1]) {
            struct perm_item x = p[head[b]];
            size_t to = x.key >> shift & mask;

            while (to != b) {
                struct perm_item y = p[head[to]];

                p[head[to]++] = x;
                x = y;
                to = x.key >> shift & mask;
            }
            p[head[b]++] = x;
        }
}

/* As many bits as leave a few items a bin. */
static int
bits_for(size_t n, int top)
{
    int bits = 61 - __builtin_clzll(n); /* bins of 4 to 8 */

    bits = bits < MAX_BITS ? bits : MAX_BITS;
    return bits < top ? bits : top;
}

/* Items whose keys are equal from bit 'top' on. */
static void
sort_part(const struct sort *s, struct perm_item *p, size_t n, int top)
{
    size_t first[MAX_BINS + 1];
    int bits;

    if (n <= FEW || top == 0) {
        sort_few(s, p, n);
        return;
    }
    bits = bits_for(n, top);
    top -= bits;
    to_bins(p, n, top, bits, first);
    for (size_t b = 0; b < (size_t)1 << bits; b++)
        if (first[b + 1] - first[b] > 1)
            sort_part(s, p + first[b], first[b + 1] - first[b], top);
}

static void
sort_bins(void *ctx, size_t begin, size_t end)
{
    const struct sort *s = ctx;

    for (size_t b = begin; b < end; b++)
        sort_part(s, s->items + s->first[b], s->first[b + 1] - s->first[b],
                  s->top);
}

void
perm_sort(const struct perm *perm, struct perm_item *items, size_t n,
          perm_element_fn *element, const void *ctx, struct par *par)
{
    struct sort s = { perm, items, element, ctx, 0, { 0 } };
    uint64_t differ = 0;
    int top, bits;

    for (size_t i = 1; i < n; i++)
        differ |= items[i].key ^ items[0].key;
    top = differ ? 64 - __builtin_clzll(differ) : 0;
    if (n <= FEW || top == 0) {
        sort_few(&s, items, n);
        return;
    }
    bits = bits_for(n, top);
    s.top = top - bits;
    to_bins(items, n, s.top, bits, s.first);
    par_for(par, (size_t)1 << bits, 1, sort_bins, &s);
}

uint64_t
perm_below(const struct perm *perm, uint64_t i, uint64_t m)
{
    __extension__ typedef unsigned __int128 u128;
    u128 x = (u128)word(perm, i, 0, DRAWS) * m;
    uint64_t rejected;

    if ((uint64_t)x >= m) /* the usual case: 2^64 mod m is below m */
        return (uint64_t)(x >> 64);
    rejected = -m % m;
    for (uint64_t t = 1; (uint64_t)x < rejected; t++)
        x = (u128)word(perm, i, t, DRAWS) * m;
    return (uint64_t)(x >> 64);
}
