/* SPDX-License-Identifier: ISC */
#include "core/model/mla.h"

#include <string.h>

#include "core/kernel/vec.h"
#include "core/model/engine.h"
#include "core/model/linear.h"
#include "core/model/model.h"
#include "core/model/norm.h"

/* A layer's rows. */
struct latent {
    const struct config *c;
    const struct chunk *chunk;
    const struct activations *a;
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

/* The last numbers of n heads of row i. */
static void
rotate(const struct latent *m, float *heads, size_t n, size_t i)
{
    size_t at = block_rotation(m->c, m->layer, i);
    size_t d = (size_t)m->c->head_dim, half = (size_t)m->c->rotary_dim / 2;

    for (float *x = heads + d - 2 * half; n > 0; n--, x += d)
        (m->c->form.pairs ? vec_rope_pairs : vec_rope)(
            x, m->chunk->cosines + at, m->chunk->sines + at, half);
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
        rotate(m, q, heads, i);
        memcpy(first, m->a->kv_low + i * (rank + dr) + rank,
               dr * sizeof(*first));
        rotate(m, k, 1, i);
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

void
mla_apply(struct engine *e, const struct chunk *chunk,
          const struct activations *a, size_t layer)
{
    const struct layer *l = &e->model->layers[layer];
    const struct config *c = &e->model->config;
    struct latent m = { c, chunk, a, l, layer };
    const struct apply low[] = { { c->q_rank ? &l->q_a : &l->q,
                                   c->q_rank ? a->q_low : a->q, false },
                                 { &l->kv_a, a->kv_low, false } };

    linear_apply(e, chunk, low, 2, a->attn_in);
    par_for(e->par, chunk->n_rows, 1, normalize, &m);
    if (c->q_rank)
        linear_apply(e, chunk, &(struct apply){ &l->q_b, a->q, false }, 1,
                     a->q_normed);
    linear_apply(e, chunk, &(struct apply){ &l->kv_b, a->qkv, false }, 1,
                 a->kv_normed);
    par_for(e->par, chunk->n_rows, 1, lay_heads, &m);
}
