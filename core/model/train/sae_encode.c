/* SPDX-License-Identifier: ISC */
/*
 * The active latents of a batch.  Rows are encoded in chunks, each by one
 * product with all of W_enc: pre-activations are stored of dead latents alone.
 * Nothing is screened: W_enc is another one in each step.
 */
#include <string.h>

#include "core/mem.h"
#include "core/model/train/sae_impl.h"

/* What the threads share while a chunk is encoded. */
struct encode {
    struct sae_work *w;
    struct sae_trainer *t;
    size_t row, rows; /* of the chunk, in the batch */
};

/* ---- the hooks of the product: see struct gemm_end ---- */

/* Pre-activations of dead latents, side by side. */
static void
keep_dead(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows,
          size_t col, size_t n_cols, int thread)
{
    const struct encode *e = ctx;
    const struct sae_dead *dead = &e->w->dead;
    size_t first = dead->before[col], last = dead->before[col + n_cols];

    (void)thread;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = first; j < last; j++)
            dead->pre[(row + i) * dead->n + j] =
                t[i * ldt + dead->latent[j] - col];
}

static void
offer_batch(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows,
            size_t col, size_t n_cols, int thread)
{
    const struct encode *e = ctx;
    struct sae_work *w = e->w;

    for (size_t i = 0; i < n_rows; i++) {
        size_t at = (e->row + row + i) * e->t->set.n + col;

        topk_offer(&w->all, &w->offers[thread], t + i * ldt, (uint32_t)at,
                   n_cols);
    }
    if (w->dead.k)
        keep_dead(ctx, t, ldt, row, n_rows, col, n_cols, thread);
}

/* ---- a chunk ---- */

static void
take_rows(const struct encode *e)
{
    const struct sae_active *a = &e->w->active;

    for (size_t r = 0; r < e->rows; r++) {
        const struct latents_row row = latents_row(e->w->latents, r);
        size_t at = (e->row + r) * e->t->set.k;

        a->begin[e->row + r] = at;
        a->n[e->row + r] = (uint32_t)row.n;
        memcpy(a->idx + at, row.idx, row.n * sizeof(*row.idx));
        memcpy(a->v + at, row.v, row.n * sizeof(*row.v));
    }
}

/* Of each row the largest pre-activations of dead latents. */
static void
take_dead(void *ctx, size_t begin, size_t end, int thread)
{
    const struct encode *e = ctx;
    struct sae_work *w = e->w;
    struct sae_dead *dead = &w->dead;
    size_t cap = topk_cap(dead->k);
    struct topk top;

    for (size_t r = begin; r < end; r++) {
        size_t at = (e->row + r) * dead->k, n;

        topk_start(&top, dead->keys + (size_t)thread * 2 * cap,
                   dead->keys + ((size_t)thread * 2 + 1) * cap, dead->k);
        topk_put(&top, dead->pre + r * dead->n, 0, dead->n);
        n = topk_take(&top, dead->active.idx + at, dead->active.v + at);
        for (size_t i = 0; i < n; i++)
            dead->active.idx[at + i] = dead->latent[dead->active.idx[at + i]];
        dead->active.begin[e->row + r] = at;
        dead->active.n[e->row + r] = (uint32_t)n;
    }
}

static void
encode_chunk(struct encode *e)
{
    struct sae_work *w = e->w;
    const struct sae_settings *set = &e->t->set;
    const struct sae_tensors of = sae_tensors(e->t, e->t->adamw.master);
    const struct latents l = {
        .w = { .weight = { .data = e->t->stored,
                           .dtype = DT_F32,
                           .ld = set->d },
               .n = set->n,
               .k = set->d },
        .bias = of.encoder_bias,
        .shift = of.decoder_bias,
        .k = set->batchtopk ? 0 : set->k,
        .bf16 = set->bf16,
        .hook = set->batchtopk ? offer_batch
                : w->dead.k    ? keep_dead
                               : NULL,
        .ctx = e,
    };

    latents_encode(w->latents, &l, w->x + e->row * set->d, set->d, e->rows);
    if (!set->batchtopk) {
        latents_select(w->latents, &l);
        take_rows(e);
    }
    if (w->dead.k)
        par_for_thread(w->par, e->rows, 4, take_dead, e);
}

/* ---- the batch ---- */

static void
start_batch(struct sae_work *w, const struct sae_trainer *t)
{
    topk_shared_start(&w->all, w->keys, w->room, w->rows * t->set.k);
    for (size_t i = 0; i < w->threads; i++)
        w->offers[i] =
            (struct topk_offers){ .key = w->offered + i * TOPK_OFFERS };
}

/* From places in [rows, n] to rows and latents; returns the least. */
static double
take_batch(struct sae_work *w, const struct sae_trainer *t)
{
    struct sae_active *a = &w->active;
    size_t n, r = 0;
    float least;

    for (size_t i = 0; i < w->threads; i++)
        topk_hand_over(&w->all, &w->offers[i]);
    n = topk_take(&w->all.top, a->idx, a->v);
    topk_shared_close(&w->all);
    least = n ? a->v[0] : 0;
    memset(a->n, 0, w->rows * sizeof(*a->n));
    a->begin[0] = 0;
    for (size_t i = 0; i < n; i++) {
        while (a->idx[i] / t->set.n > r)
            a->begin[++r] = i;
        a->idx[i] %= (uint32_t)t->set.n;
        a->n[r]++;
        least = a->v[i] < least ? a->v[i] : least;
    }
    while (++r < w->rows)
        a->begin[r] = n;
    return (double)least;
}

/* ---- by latents, rows ascending ---- */

void
sae_count(struct sae_by_latent *by, const struct sae_active *a, size_t rows,
          size_t n)
{
    size_t *first = by->first;

    memset(first, 0, (n + 1) * sizeof(*first));
    memset(by->taken, 0, rows * sizeof(*by->taken));
    for (size_t r = 0; r < rows; r++)
        for (size_t i = a->begin[r]; i < a->begin[r] + a->n[r]; i++)
            first[a->idx[i] + 1]++;
    for (size_t i = 0; i < n; i++)
        first[i + 1] += first[i];
}

size_t
sae_sort(struct sae_by_latent *by, const struct sae_active *a, size_t rows,
         size_t n, size_t from)
{
    size_t *first = by->first, end = from + SAE_GROUP;

    while (end < n &&
           first[smaller(end + SAE_GROUP, n)] - first[from] <= by->cap)
        end += SAE_GROUP;
    end = smaller(end, n);
    by->base = first[from];
    for (size_t r = 0; r < rows; r++)
        for (; by->taken[r] < a->n[r]; by->taken[r]++) {
            size_t i = a->begin[r] + by->taken[r], at;

            if (a->idx[i] >= end)
                break;
            at = first[a->idx[i]]++ - by->base;
            by->row[at] = (uint32_t)r;
            by->h[at] = a->v[i];
        }
    /* each has become the first of the next */
    for (size_t i = end - 1; i > from; i--)
        first[i] = first[i - 1];
    first[from] = by->base;
    return end;
}

double
sae_encode(struct sae_work *w, struct sae_trainer *t)
{
    struct encode e = { .w = w, .t = t };
    size_t chunk = w->chunk;
    double least = 0;

    if (w->dead.k)
        chunk = smaller(chunk, w->dead.n_pre / w->dead.n);
    if (t->set.batchtopk)
        start_batch(w, t);
    for (; e.row < w->rows; e.row += e.rows) {
        e.rows = smaller(chunk, w->rows - e.row);
        encode_chunk(&e);
    }
    if (t->set.batchtopk)
        least = take_batch(w, t);
    sae_count(&w->by, &w->active, w->rows, t->set.n);
    sae_sort(&w->by, &w->active, w->rows, t->set.n, 0);
    return least;
}
