/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/tune_pack.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define NONE SIZE_MAX

/* Windows with room left: for each number of tokens a queue of those that have
 * so many, and a bit that says whether there is one. */
struct rooms {
    size_t ctx;
    size_t *head, *tail; /* [ctx + 1] windows */
    size_t *next;        /* [windows] the next of the same queue */
    uint64_t *any;       /* [ctx / 64 + 1] */
};

/* The smallest room of at least n tokens, or NONE. */
static size_t
smallest_room(const struct rooms *r, size_t n)
{
    uint64_t word = r->any[n / 64] & (UINT64_MAX << (n % 64));

    for (size_t i = n / 64;; word = r->any[i]) {
        if (word)
            return i * 64 + (size_t)__builtin_ctzll(word);
        if (++i > r->ctx / 64)
            return NONE;
    }
}

static size_t
take_window(struct rooms *r, size_t room)
{
    size_t w = r->head[room];

    r->head[room] = r->next[w];
    if (r->head[room] == NONE)
        r->any[room / 64] &= ~((uint64_t)1 << (room % 64));
    return w;
}

static void
put_window(struct rooms *r, size_t w, size_t room)
{
    uint64_t bit = (uint64_t)1 << (room % 64);

    if (room == 0)
        return;
    r->next[w] = NONE;
    if (r->any[room / 64] & bit)
        r->next[r->tail[room]] = w;
    else
        r->head[room] = w;
    r->tail[room] = w;
    r->any[room / 64] |= bit;
}

/* Examples by length, the longest first, in order of the file among equals: a
 * counting sort. */
static size_t *
by_length(const struct tune_data *d, size_t ctx)
{
    size_t *order = xcalloc(d->n, sizeof(*order));
    size_t *at = xcalloc(ctx + 2, sizeof(*at));

    for (size_t i = 0; i < d->n; i++)
        at[ctx - d->examples[i].n + 1]++;
    for (size_t n = 1; n <= ctx; n++)
        at[n] += at[n - 1];
    for (size_t i = 0; i < d->n; i++)
        order[at[ctx - d->examples[i].n]++] = i;
    free(at);
    return order;
}

/* Sets order[] and first[]: examples of a window in the order they came. */
static void
pack(struct tune_windows *w, const struct tune_data *d, size_t ctx)
{
    struct rooms r = {
        .ctx = ctx,
        .head = xcalloc(ctx + 1, sizeof(size_t)),
        .tail = xcalloc(ctx + 1, sizeof(size_t)),
        .next = xcalloc(d->n, sizeof(size_t)),
        .any = xcalloc(ctx / 64 + 1, sizeof(uint64_t)),
    };
    size_t *longest = by_length(d, ctx), *of = xcalloc(d->n, sizeof(*of));
    size_t *at;

    w->n = 0;
    for (size_t k = 0; k < d->n; k++) {
        size_t i = longest[k], n = d->examples[i].n;
        size_t room = smallest_room(&r, n);

        of[i] = room == NONE ? w->n++ : take_window(&r, room);
        put_window(&r, of[i], (room == NONE ? ctx : room) - n);
        w->first[of[i] + 1]++;
    }
    for (size_t i = 0; i < w->n; i++)
        w->first[i + 1] += w->first[i];
    at = xcalloc(w->n, sizeof(*at));
    for (size_t k = 0; k < d->n; k++) {
        size_t i = longest[k];

        w->order[w->first[of[i]] + at[of[i]]++] = i;
    }
    free(at);
    free(of);
    free(longest);
    free(r.head);
    free(r.tail);
    free(r.next);
    free(r.any);
}

/* The tokens of windows, one after another. */
static void
copy_tokens(struct tune_windows *w, const struct tune_data *d)
{
    size_t at = 0;

    w->ids = xcalloc(d->ids.n, sizeof(*w->ids));
    w->labels = xcalloc(d->ids.n, sizeof(*w->labels));
    w->starts = xcalloc(d->n, sizeof(*w->starts));
    for (size_t i = 0; i < w->n; i++) {
        struct lm_seq *seq = &w->seqs[i];

        *seq = (struct lm_seq){ .ids = w->ids + at,
                                .labels = w->labels + at,
                                .starts = w->starts + w->first[i],
                                .n_starts = w->first[i + 1] - w->first[i] };
        for (size_t k = w->first[i]; k < w->first[i + 1]; k++) {
            const struct tune_example *e = &d->examples[w->order[k]];

            w->starts[k] = seq->n;
            memcpy(w->ids + at + seq->n, d->ids.id + e->first,
                   e->n * sizeof(*w->ids));
            memcpy(w->labels + at + seq->n, d->labels.id + e->first,
                   e->n * sizeof(*w->labels));
            seq->n += e->n;
        }
        at += seq->n;
    }
}

void
tune_windows_open(struct tune_windows *w, const struct tune_data *d, size_t ctx,
                  bool packed)
{
    *w = (struct tune_windows){ .n = d->n,
                                .n_tokens = d->ids.n,
                                .n_targets = d->n_targets };
    w->order = xcalloc(d->n, sizeof(*w->order));
    w->first = xcalloc(d->n + 1, sizeof(*w->first));
    w->seqs = xcalloc(d->n, sizeof(*w->seqs));
    if (packed) {
        pack(w, d, smaller(ctx, d->ids.n));
        copy_tokens(w, d);
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        const struct tune_example *e = &d->examples[i];

        w->order[i] = w->first[i] = i;
        w->seqs[i] = (struct lm_seq){ .ids = d->ids.id + e->first,
                                      .labels = d->labels.id + e->first,
                                      .n = e->n };
    }
    w->first[d->n] = d->n;
}

void
tune_windows_close(struct tune_windows *w)
{
    free(w->seqs);
    free(w->order);
    free(w->first);
    free(w->ids);
    free(w->labels);
    free(w->starts);
    *w = (struct tune_windows){ 0 };
}
