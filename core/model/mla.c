/* SPDX-License-Identifier: ISC */
#include "core/model/mla.h"

#include <string.h>

#include "core/kernel/vec.h"
#include "core/model/attention.h"
#include "core/model/block_backward.h"
#include "core/model/engine.h"
#include "core/model/linear.h"
#include "core/model/model.h"
#include "core/model/norm.h"

/* A layer's rows. */
struct latent {
    const struct config *c;
    const struct chunk *chunk;
    const struct activations *a;
    const struct block_grads *g; /* NULL: forward */
    const struct layer *l;
    size_t layer;
};

static void
normalize(void *ctx, size_t begin, size_t end)
{
    const struct latent *m = ctx;
    size_t nq = (size_t)m->c->q_rank, n = (size_t)m->c->kv_rank;
    size_t ld = n + (size_t)m->c->rotary_dim;

    for (size_t i = begin; i < end; i++) {
        if (nq > 0)
            norm_rows(NULL, &m->l->q_a_norm, m->a->q_normed + i * nq,
                      m->a->q_low + i * nq, NULL, 1);
        norm_rows(NULL, &m->l->kv_a_norm, m->a->kv_normed + i * n,
                  m->a->kv_low + i * ld, NULL, 1);
    }
}

/* The last numbers of n heads of row i, x being the first's; back, where there
 * are gradients. */
static void
rotate(const struct latent *m, float *x, size_t n, size_t i)
{
    size_t at = block_rotation(m->c, m->layer, i);
    size_t d = (size_t)m->c->head_dim, half = (size_t)m->c->rotary_dim / 2;
    float *sines = m->g ? m->g->sines_back + i * half : m->chunk->sines + at;

    for (size_t k = 0; m->g && k < half; k++)
        sines[k] = -m->chunk->sines[at + k];
    for (; n > 0; n--, x += d)
        (m->c->form.pairs ? vec_rope_pairs
                          : vec_rope)(x, m->chunk->cosines + at, sines, half);
}

static void
lay_heads(void *ctx, size_t begin, size_t end)
{
    const struct latent *m = ctx;
    size_t heads = (size_t)m->c->n_heads, d = (size_t)m->c->head_dim;
    size_t dv = (size_t)m->c->v_head_dim, dr = (size_t)m->c->rotary_dim;
    size_t rank = (size_t)m->c->kv_rank, nope = d - dr;

    for (size_t i = begin; i < end; i++) {
        const struct row *row = &m->chunk->rows[i];
        const float *kv = m->a->qkv + i * heads * (nope + dv);
        float *q = m->a->q_rotated + i * heads * d;
        float *k = m->a->k_rotated + i * heads * d;
        float *v = m->a->v + i * heads * dv, *first = k + nope;

        if (q != m->a->q + i * heads * d)
            memcpy(q, m->a->q + i * heads * d, heads * d * sizeof(*q));
        rotate(m, q + nope, heads, i);
        memcpy(first, m->a->kv_low + i * (rank + dr) + rank,
               dr * sizeof(*first));
        rotate(m, first, 1, i);
        for (size_t j = 0; j < heads; j++, k += d, v += dv) {
            memcpy(k, kv, nope * sizeof(*k));
            if (j > 0)
                memcpy(k + nope, first, dr * sizeof(*k));
            memcpy(v, kv + nope, dv * sizeof(*v));
            kv += nope + dv;
            kv_set(&row->session->kv, m->layer, j, row->slot, 1, k, v);
        }
    }
}

static void
lay_latents(void *ctx, size_t begin, size_t end)
{
    const struct latent *m = ctx;
    size_t heads = (size_t)m->c->n_heads, d = (size_t)m->c->head_dim;
    size_t rank = (size_t)m->c->kv_rank, dr = (size_t)m->c->rotary_dim;

    for (size_t i = begin; i < end; i++) {
        const struct row *row = &m->chunk->rows[i];
        const float *c = m->a->kv_normed + i * rank;
        float *key = m->a->kv_low + i * (rank + dr);

        rotate(m, m->a->q_rotated + i * heads * d + d - dr, heads, i);
        memcpy(key, c, rank * sizeof(*c));
        rotate(m, key + rank, 1, i);
        kv_set(&row->session->kv, m->layer, 0, row->slot, 1, key, c);
    }
}

void
mla_apply(struct engine *e, const struct chunk *chunk,
          const struct activations *a, size_t layer)
{
    const struct layer *l = &e->model->layers[layer];
    const struct config *c = &e->model->config;
    struct latent m = { c, chunk, a, NULL, l, layer };
    const struct apply low[] = { { c->q_rank ? &l->q_a : &l->q,
                                   c->q_rank ? a->q_low : a->q, false },
                                 { &l->kv_a, a->kv_low, false } };

    linear_apply(e, chunk, low, 2, a->attn_in);
    par_for(e->par, chunk->n_rows, 1, normalize, &m);
    if (c->q_rank)
        linear_apply(e, chunk, &(struct apply){ &l->q_b, a->q, false }, 1,
                     a->q_normed);
    if (!e->options.latents)
        linear_apply(e, chunk, &(struct apply){ &l->kv_b, a->qkv, false }, 1,
                     a->kv_normed);
    par_for(e->par, chunk->n_rows, 1,
            e->options.latents ? lay_latents : lay_heads, &m);
}

/* ---- by latents ---- */

struct config
mla_cached(const struct config *c)
{
    struct config of = *c;

    of.n_kv_heads = 1;
    of.v_head_dim = c->kv_rank;
    of.head_dim = c->kv_rank + c->rotary_dim;
    return of;
}

/* What is rotated goes with what kv_b has made of the rest. */
static void
join_queries(void *ctx, size_t begin, size_t end)
{
    const struct latent *m = ctx;
    size_t heads = (size_t)m->c->n_heads, d = (size_t)m->c->head_dim;
    size_t rank = (size_t)m->c->kv_rank, dr = (size_t)m->c->rotary_dim;

    for (size_t j = begin * heads; j < end * heads; j++)
        memcpy(m->a->qkv + j * (rank + dr) + rank,
               m->a->q_rotated + (j + 1) * d - dr, dr * sizeof(float));
}

void
mla_attend(struct engine *e, const struct chunk *chunk,
           const struct activations *a, size_t layer,
           const struct attention *attention)
{
    const struct layer *l = &e->model->layers[layer];
    const struct config *c = &e->model->config, by = mla_cached(c);
    struct latent m = { c, chunk, a, NULL, l, layer };
    struct attention of = *attention;
    size_t heads = (size_t)c->n_heads, d = (size_t)c->head_dim;
    size_t nope = (size_t)c->nope_dim, dv = (size_t)c->v_head_dim;
    struct gemm_job job = { .w = { .weight = l->kv_b.w } };

    of.n_kv_heads = 1;
    of.head_dim = (size_t)by.head_dim;
    of.v_head_dim = (size_t)by.v_head_dim;
    of.q = a->qkv;
    of.out = a->k;
    job.w.by_k = true;
    job.w.n = of.v_head_dim;
    job.w.k = nope;
    job.ldc = heads * of.head_dim;
    for (size_t j = 0; j < heads; j++, job.w.weight.row += nope + dv) {
        job.c = a->qkv + j * of.head_dim;
        gemm_exact(e->gemm, &job, 1, a->q_rotated + j * d, heads * d,
                   chunk->n_rows);
    }
    par_for(e->par, chunk->n_rows, 1, join_queries, &m);
    attention_run(e->par, &of);
    job.w.weight.row = l->kv_b.w.row + nope;
    job.w.by_k = false;
    job.w.n = dv;
    job.w.k = of.v_head_dim;
    job.ldc = heads * dv;
    for (size_t j = 0; j < heads; j++, job.w.weight.row += nope + dv) {
        job.c = a->attended + j * dv;
        gemm_exact(e->gemm, &job, 1, a->k + j * of.v_head_dim,
                   heads * of.v_head_dim, chunk->n_rows);
    }
}

/* ---- back ---- */

/* Gradients of heads become those of kv_b's outputs, in their place, and of
 * what all heads share: the sum of theirs, in their order. */
static void
join_heads(void *ctx, size_t begin, size_t end)
{
    const struct latent *m = ctx;
    size_t heads = (size_t)m->c->n_heads, d = (size_t)m->c->head_dim;
    size_t dv = (size_t)m->c->v_head_dim, dr = (size_t)m->c->rotary_dim;
    size_t rank = (size_t)m->c->kv_rank, nope = d - dr;

    for (size_t i = begin; i < end; i++) {
        float *kv = m->a->qkv + i * heads * (nope + dv);
        float *k = m->g->k + i * heads * d, *first = k + nope;
        const float *v = m->g->v + i * heads * dv;

        rotate(m, m->g->q + i * heads * d + nope, heads, i);
        for (size_t j = 0; j < heads; j++, k += d, v += dv) {
            memcpy(kv, k, nope * sizeof(*kv));
            memcpy(kv + nope, v, dv * sizeof(*kv));
            kv += nope + dv;
            if (j > 0)
                vec_add(first, k + nope, dr);
        }
        rotate(m, first, 1, i);
        memcpy(m->g->kv_low + i * (rank + dr) + rank, first,
               dr * sizeof(*first));
    }
}

/* From the gradient of a normalized latent to that of the latent. */
static void
back_norm(void *ctx, size_t begin, size_t end)
{
    const struct latent *m = ctx;
    size_t n = (size_t)m->c->kv_rank, ld = n + (size_t)m->c->rotary_dim;

    for (size_t i = begin; i < end; i++) {
        float *dy = m->g->kv_normed + i * n;

        norm_backward(NULL, &m->l->kv_a_norm, NULL, dy, m->a->kv_low + i * ld,
                      1);
        memcpy(m->g->kv_low + i * ld, dy, n * sizeof(*dy));
    }
}

static void
back_linear(struct engine *e, const struct latent *m, const struct linear *l,
            const float *x, float *dx, bool add, const float *dy)
{
    block_back_linear(e, m->g, l, x, dx, add, dy, m->chunk->n_rows);
}

void
mla_backward(struct engine *e, const struct chunk *chunk,
             const struct activations *a, const struct block_grads *g,
             size_t layer, float *input)
{
    const struct layer *l = &e->model->layers[layer];
    const struct config *c = &e->model->config;
    struct latent m = { c, chunk, a, g, l, layer };

    par_for(e->par, chunk->n_rows, 1, join_heads, &m);
    if (c->q_rank) {
        back_linear(e, &m, &l->q_b, a->q_normed, g->q_low, false, g->q);
        norm_backward(e->par, &l->q_a_norm, NULL, g->q_low, a->q_low,
                      chunk->n_rows);
        back_linear(e, &m, &l->q_a, a->attn_in, input, false, g->q_low);
    } else {
        back_linear(e, &m, &l->q, a->attn_in, input, false, g->q);
    }
    back_linear(e, &m, &l->kv_b, a->kv_normed, g->kv_normed, false, a->qkv);
    par_for(e->par, chunk->n_rows, 1, back_norm, &m);
    back_linear(e, &m, &l->kv_a, a->attn_in, input, true, g->kv_low);
}
