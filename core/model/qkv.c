/* SPDX-License-Identifier: ISC */
#include "core/model/qkv.h"

#include <string.h>

struct move {
    const struct config *c;
    const struct qkv *rows;
    bool join;
};

/* n numbers of a fused row to where they are apart, or back. */
static void
move(const struct move *m, float *fused, float *apart, size_t n)
{
    memcpy(m->join ? fused : apart, m->join ? apart : fused,
           n * sizeof(*apart));
}

static void
move_qkv(void *ctx, size_t begin, size_t end)
{
    const struct move *m = ctx;
    size_t d = (size_t)m->c->head_dim, heads = (size_t)m->c->n_heads;
    size_t kv = (size_t)m->c->n_kv_heads, all = heads + 2 * kv;
    bool by_head = m->c->form.qkv == FUSED_HEADS;
    /* consecutive heads of q, and of k and v */
    size_t q_step = by_head ? heads / kv : heads, kv_step = by_head ? 1 : kv;

    for (size_t i = begin; i < end; i++) {
        float *fused = m->rows->fused + i * all * d;
        float *to[] = { m->rows->q + i * heads * d, m->rows->k + i * kv * d,
                        m->rows->v + i * kv * d };

        for (size_t at = 0, part = 0; at < all; part = (part + 1) % 3) {
            size_t step = part ? kv_step : q_step;

            move(m, fused + at * d, to[part], step * d);
            to[part] += step * d;
            at += step;
        }
    }
}

static void
move_gates(void *ctx, size_t begin, size_t end)
{
    const struct move *m = ctx;
    size_t d = (size_t)m->c->head_dim, heads = (size_t)m->c->n_heads;

    for (size_t i = begin * heads; i < end * heads; i++) {
        move(m, m->rows->fused + 2 * i * d, m->rows->q + i * d, d);
        move(m, m->rows->fused + (2 * i + 1) * d, m->rows->gates + i * d, d);
    }
}

void
qkv_move(struct par *par, const struct config *c, const struct qkv *rows,
         bool join)
{
    par_for(par, rows->n_rows, 4, rows->gates ? move_gates : move_qkv,
            &(struct move){ c, rows, join });
}
