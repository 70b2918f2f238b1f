/* SPDX-License-Identifier: ISC */
/*
 * A step that several processes share: each has a range of its slices, whose
 * sums are exchanged and added in the order of one process.
 *
 * That order is a tree whose nodes are blocks [i 2^k, (i + 1) 2^k) of slices.
 * A range is the fewest blocks that it can be cut into, and each of them a node
 * of the tree.  Rank r adds all ranks' blocks in its part of the parameters;
 * then each sends that part to all.
 */
#include <stdlib.h>
#include <string.h>

#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/train/lm_impl.h"

/* Parameters that are exchanged together: 4 MiB of each block. */
#define WINDOW ((size_t)1 << 20)

static size_t
part(size_t n, size_t i, size_t n_parts)
{
    return n / n_parts * i + n % n_parts * i / n_parts;
}

/* The slices of the block at 'at', of a range that ends at 'end'. */
static size_t
block_size(size_t at, size_t end)
{
    size_t n = 1;

    while (at % (2 * n) == 0 && 2 * n <= end - at)
        n *= 2;
    return n;
}

size_t
lm_n_blocks(size_t begin, size_t end)
{
    size_t n = 0;

    for (size_t at = begin; at < end; at += block_size(at, end))
        n++;
    return n;
}

void
lm_own_slices(const struct lm_work *w, size_t n_slices, size_t rank,
              size_t *begin, size_t *end)
{
    size_t n_ranks = (size_t)ranks_count(w->options.ranks);

    *begin = part(n_slices, rank, n_ranks);
    *end = part(n_slices, rank + 1, n_ranks);
}

static size_t
n_blocks_of(const struct lm_work *w, size_t n_slices, size_t rank)
{
    size_t begin, end;

    lm_own_slices(w, n_slices, rank, &begin, &end);
    return lm_n_blocks(begin, end);
}

void
lm_ranks_sizes(struct lm *lm)
{
    struct lm_work *w = lm->work;
    size_t n_ranks = (size_t)ranks_count(w->options.ranks);
    size_t self = (size_t)ranks_self(w->options.ranks);

    w->sums.n_copies = 1;
    for (size_t n = 1, begin, end, next; n <= w->options.n_slices; n++) {
        size_t all = 0;

        for (size_t r = 0; r < n_ranks; r++)
            all += n_blocks_of(w, n, r);
        w->exchange.n_received = larger(w->exchange.n_received, all);
        lm_own_slices(w, n + 1, self, &next, &end);
        lm_own_slices(w, n, self, &begin, &end);
        /* a longer range from there on has as many at some time */
        if (n < w->options.n_slices && begin == next)
            continue;
        for (size_t s = begin; s < end; s++)
            w->sums.n_copies =
                larger(w->sums.n_copies, lm_n_blocks(begin, s) + 1);
    }
    w->exchange.n_window = n_ranks == 1 ? 0 : smaller(WINDOW, lm->n_params);
    w->exchange.n_part = n_ranks == 1 ? 0 : w->exchange.n_window / n_ranks + 1;
}

/* The part of a window that this rank adds: blocks [n_blocks, n], of so many
 * slices each. */
struct adding {
    float *blocks;
    const size_t *n_slices;
    size_t n_blocks, n;
    float *to; /* [n] */
};

static void
add_blocks(void *ctx, size_t begin, size_t end)
{
    const struct adding *a = ctx;
    size_t n = end - begin, top = 0;
    float *sums[64];
    size_t slices[64];

    for (size_t i = 0; i < a->n_blocks; i++) {
        sums[top] = a->blocks + i * a->n + begin;
        slices[top++] = a->n_slices[i];
        for (; top > 1 && slices[top - 1] == slices[top - 2]; top--) {
            vec_add(sums[top - 2], sums[top - 1], n);
            slices[top - 2] *= 2;
        }
    }
    for (; top > 1; top--)
        vec_add(sums[top - 2], sums[top - 1], n);
    memcpy(a->to + begin, sums[0], n * sizeof(*a->to));
}

/* Numbers [at, at + n) of all ranks' blocks become those of the gradient. */
static void
exchange(struct lm *lm, size_t n_slices, size_t at, size_t n, size_t *counts)
{
    struct lm_work *w = lm->work;
    struct ranks *ranks = w->options.ranks;
    size_t n_ranks = (size_t)ranks_count(ranks), to = 0, blocks = 0;
    size_t self = (size_t)ranks_self(ranks), begin, end;
    size_t *n_sent = counts, *n_received = n_sent + n_ranks;
    size_t *n_parts = n_received + n_ranks, *sizes = n_parts + n_ranks;
    size_t own = n_blocks_of(w, n_slices, self);

    for (size_t r = 0, first; r < n_ranks; r++) {
        first = part(n, r, n_ranks);
        n_parts[r] = part(n, r + 1, n_ranks) - first;
        n_sent[r] = own * n_parts[r];
        for (size_t i = 0; i < own; i++, to += n_parts[r])
            memcpy(w->exchange.sent + to,
                   w->sums.copies + i * lm->n_params + at + first,
                   n_parts[r] * sizeof(*w->exchange.sent));
    }
    for (size_t r = 0; r < n_ranks; r++) {
        lm_own_slices(w, n_slices, r, &begin, &end);
        n_received[r] = lm_n_blocks(begin, end) * n_parts[self];
        for (; begin < end; begin += sizes[blocks++])
            sizes[blocks] = block_size(begin, end);
    }
    ranks_swap(ranks, w->exchange.sent, n_sent, w->exchange.received,
               n_received);
    par_for(w->par, n_parts[self], 16384, add_blocks,
            &(struct adding){ w->exchange.received, sizes, blocks,
                              n_parts[self],
                              w->sums.copies + at + part(n, self, n_ranks) });
    ranks_gather(ranks, w->sums.copies + at, n_parts);
}

void
lm_ranks_add(struct lm *lm, size_t n_slices)
{
    struct lm_work *w = lm->work;
    size_t n_ranks = (size_t)ranks_count(w->options.ranks), n;
    size_t *counts =
        xcalloc(3 * n_ranks + w->exchange.n_received, sizeof(*counts));

    for (size_t at = 0; at < lm->n_params; at += n) {
        n = smaller(lm->n_params - at, w->exchange.n_window);
        exchange(lm, n_slices, at, n, counts);
    }
    free(counts);
}
