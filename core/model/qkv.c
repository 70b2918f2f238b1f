/* SPDX-License-Identifier: ISC */
#include "core/model/qkv.h"

#include <string.h>

struct copy {
    const struct config *c;
    const struct qkv *rows;
    bool join;
};

static void
copy(void *ctx, size_t begin, size_t end)
{
    const struct copy *t = ctx;
    size_t d = (size_t)t->c->head_dim, heads = (size_t)t->c->n_heads;
    size_t kv = (size_t)t->c->n_kv_heads, all = heads + 2 * kv;
    bool by_head = t->c->form.qkv == FUSED_HEADS;
    /* consecutive heads of q, and of k and v */
    size_t q_step = by_head ? heads / kv : heads, kv_step = by_head ? 1 : kv;

    for (size_t i = begin; i < end; i++) {
        float *fused = t->rows->fused + i * all * d;
        float *to[] = { t->rows->q + i * heads * d, t->rows->k + i * kv * d,
                        t->rows->v + i * kv * d };

        for (size_t at = 0, part = 0; at < all; part = (part + 1) % 3) {
            size_t step = part ? kv_step : q_step, n = step * d;

            memcpy(t->join ? fused : to[part], t->join ? to[part] : fused,
                   n * sizeof(float));
            fused += n;
            to[part] += n;
            at += step;
        }
    }
}

struct gates {
    const struct config *c;
    const struct qkv *rows;
    float *gates;
    bool join;
};

static void
split_gates(void *ctx, size_t begin, size_t end)
{
    const struct gates *t = ctx;
    size_t d = (size_t)t->c->head_dim, heads = (size_t)t->c->n_heads;

    for (size_t i = begin * heads; i < end * heads; i++) {
        float *fused = t->rows->fused + 2 * i * d, *q = t->rows->q + i * d;
        float *gate = t->gates + i * d;

        memcpy(t->join ? fused : q, t->join ? q : fused, d * sizeof(*q));
        fused += d;
        memcpy(t->join ? fused : gate, t->join ? gate : fused,
               d * sizeof(*gate));
    }
}

void
qkv_split_gates(struct par *par, const struct config *c, const struct qkv *rows,
                float *gates, bool join)
{
    par_for(par, rows->n_rows, 4, split_gates,
            &(struct gates){ c, rows, gates, join });
}

void
qkv_split(struct par *par, const struct config *c, const struct qkv *rows)
{
    par_for(par, rows->n_rows, 4, copy, &(struct copy){ c, rows, false });
}

void
qkv_join(struct par *par, const struct config *c, const struct qkv *rows)
{
    par_for(par, rows->n_rows, 4, copy, &(struct copy){ c, rows, true });
}
