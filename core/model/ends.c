/* SPDX-License-Identifier: ISC */
#include "core/model/ends.h"

#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/block.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "core/model/norm.h"

struct embedding {
    const struct model *m;
    const struct row *rows;
    const int32_t *ids;
    float *x;
};

static void
embed(void *ctx, size_t begin, size_t end)
{
    const struct embedding *e = ctx;
    size_t n = e->m->embed.in;

    for (size_t i = begin; i < end; i++) {
        float *x = e->x + i * n;

        weight_read(x, &e->m->embed.w, (size_t)e->ids[i], 0, n);
        if (e->m->embed_scale > 0)
            vec_scale(x, e->m->embed_scale, n);
    }
}

/* Learned positions. */
static void
add_positions(void *ctx, size_t begin, size_t end)
{
    const struct embedding *e = ctx;
    size_t n = e->m->positions.in, step;
    float part[1024];

    for (size_t i = begin; i < end; i++)
        for (size_t k = 0; k < n; k += step) {
            step = smaller(n - k, sizeof(part) / sizeof(*part));
            weight_read(part, &e->m->positions.w, e->rows[i].position, k, step);
            vec_add(e->x + i * n + k, part, step);
        }
}

void
embed_ids(struct engine *e, const struct chunk *chunk, const int32_t *ids,
          float *x, const struct tap *tap)
{
    struct embedding embedding = { e->model, chunk->rows, ids, x };

    par_for(e->par, chunk->n_rows, 1, embed, &embedding);
    trunk_point(e, chunk, tap, -1, TAP_EMBED, x);
    if (e->model->positions.out)
        par_for(e->par, chunk->n_rows, 1, add_positions, &embedding);
}

static float
scale_of(const struct config *c)
{
    return c->logit_scale > 0 ? (float)c->logit_scale : 1;
}

void
head_end(const struct config *c, float *logits, size_t n)
{
    if (scale_of(c) != 1)
        vec_scale(logits, scale_of(c), n);
    if (c->logit_softcap > 0)
        vec_softcap(logits, (float)c->logit_softcap, n);
}

void
head_end_back(const struct config *c, float *d, const float *logits, size_t n)
{
    if (c->logit_softcap > 0)
        vec_softcap_back(d, logits, (float)c->logit_softcap, n);
    if (scale_of(c) != 1)
        vec_scale(d, scale_of(c), n);
}

struct logits {
    const struct config *c;
    float *logits;
    size_t n;
};

enum { LOGITS = 4096 }; /* of a task */

static void
end_logits(void *ctx, size_t begin, size_t end)
{
    const struct logits *l = ctx;
    size_t at = begin * LOGITS;

    head_end(l->c, l->logits + at, smaller(end * LOGITS, l->n) - at);
}

void
head_logits(struct engine *e, const float *x, const size_t *from, size_t n,
            float *logits)
{
    const struct model *m = e->model;
    const struct config *c = &m->config;
    struct logits l = { c, logits, n * (size_t)c->vocab_size };

    norm_rows(e->par, &m->norm, e->head_in, x, from, n);
    /* exact for prompts, too: packing this matrix pays for many rows alone, and
     * one row or all of them must have the same bits */
    linear_rows(e, &(struct apply){ &m->lm_head, logits, false }, 1, e->head_in,
                n, true);
    if (scale_of(c) != 1 || c->logit_softcap > 0)
        par_for(e->par, (l.n + LOGITS - 1) / LOGITS, 1, end_logits, &l);
}
