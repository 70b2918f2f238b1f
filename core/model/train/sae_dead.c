/* SPDX-License-Identifier: ISC */
/* Dead latents: which are, and the memory that their part takes. */
#include "core/mem.h"
#include "core/model/train/sae_impl.h"

/* Of the active ones that are sorted by latents at once: a 16th of all, or
 * what a group of latents may have. */
static int
open_memory(struct sae_work *w, struct err *err)
{
    struct sae_dead *d = &w->dead;
    const struct sae_sizes *s = &w->max;
    size_t pairs = s->rows * s->aux_k;

    d->n_pre = larger(SAE_PRE, smaller(w->chunk, 128) * s->n);
    d->n_pre = smaller(d->n_pre, w->chunk * s->n);
    d->by.cap = larger(s->rows * smaller(s->aux_k, SAE_GROUP), pairs / 16);

    const struct mem_array arrays[] = {
        { &d->pre, d->n_pre, 1, sizeof(*d->pre) },
        { &d->active.idx, pairs, 1, sizeof(*d->active.idx) },
        { &d->active.v, pairs, 1, sizeof(*d->active.v) },
        { &d->active.begin, s->rows, 1, sizeof(*d->active.begin) },
        { &d->active.n, s->rows, 1, sizeof(*d->active.n) },
        { &d->by.first, s->n + 1, 1, sizeof(*d->by.first) },
        { &d->by.taken, s->rows, 1, sizeof(*d->by.taken) },
        { &d->by.row, d->by.cap, 1, sizeof(*d->by.row) },
        { &d->by.h, d->by.cap, 1, sizeof(*d->by.h) },
        { &d->error, s->rows, s->d, sizeof(*d->error) },
        { &d->keys, w->threads, 2 * topk_cap(s->aux_k), sizeof(*d->keys) },
    };

    d->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &d->nbytes,
                           "what dead latents take", err);
    return d->memory ? 0 : -1;
}

int
sae_find_dead(struct sae_work *w, const struct sae_trainer *t, struct err *err)
{
    const struct sae_settings *set = &t->set;
    struct sae_dead *d = &w->dead;
    bool counts = set->aux_coef > 0 && set->aux_k > 0;

    d->n = 0;
    for (size_t i = 0; i < set->n; i++) {
        d->before[i] = d->n;
        if (t->idle[i] >= (double)set->dead_after)
            d->latent[d->n++] = (uint32_t)i;
    }
    d->before[set->n] = d->n;
    d->k = counts ? smaller(set->aux_k, d->n) : 0;
    return d->k > 0 && !d->memory ? open_memory(w, err) : 0;
}

void
sae_dead_close(struct sae_work *w)
{
    if (w->dead.memory)
        mem_big_free(w->dead.memory, w->dead.nbytes, 1);
}
