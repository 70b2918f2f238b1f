/* SPDX-License-Identifier: ISC */
#include "core/model/ends.h"

#include "core/model/block.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "core/model/norm.h"

struct embedding {
    const struct linear *w;
    const int32_t *ids;
    float *x;
};

static void
embed(void *ctx, size_t begin, size_t end)
{
    const struct embedding *e = ctx;
    size_t n = e->w->in;

    for (size_t i = begin; i < end; i++)
        weight_read(e->x + i * n, &e->w->w, (size_t)e->ids[i], 0, n);
}

void
embed_ids(struct engine *e, const struct chunk *chunk, const int32_t *ids,
          float *x)
{
    par_for(e->par, chunk->n_rows, 1, embed,
            &(struct embedding){ &e->model->embed, ids, x });
}

void
head_logits(struct engine *e, const float *x, const size_t *from, size_t n,
            float *logits)
{
    const struct model *m = e->model;

    norm_rows(e->par, &m->norm, e->head_in, x, from, n);
    /* exact for prompts, too: packing this matrix pays for many rows alone, and
     * one row or all of them must have the same bits */
    linear_rows(e, &(struct apply){ &m->lm_head, logits, false }, 1, e->head_in,
                n, true);
}
