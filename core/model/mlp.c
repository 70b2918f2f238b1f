/* SPDX-License-Identifier: ISC */
#include "core/model/mlp.h"

#include <string.h>

#include "core/kernel/vec.h"

const struct linear *
mlp_first(const struct mlp *m, const struct model_form *f)
{
    return f->gate_up ? &m->gate_up : f->plain_mlp ? &m->up : &m->gate;
}

struct task {
    enum act act;
    float *inner;
    const float *gate, *up;
    size_t ld, n;
};

static void
run(void *ctx, size_t begin, size_t end)
{
    const struct task *t = ctx;

    for (size_t i = begin; i < end; i++) {
        float *inner = t->inner + i * t->n;

        if (t->inner != t->gate)
            memcpy(inner, t->gate + i * t->ld, t->n * sizeof(*inner));
        vec_act(t->act, inner, t->up ? t->up + i * t->ld : NULL, t->n);
    }
}

void
mlp_activate(struct par *par, enum act act, float *inner, const float *gate,
             const float *up, size_t ld, size_t n, size_t n_rows)
{
    struct task task = { act, inner, gate, up, ld, n };

    par_for(par, n_rows, 1, run, &task);
}

struct back {
    enum act act;
    float *inner, *gate, *up;
    const float *dh;
    size_t ld, n;
};

static void
run_back(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;

    for (size_t i = begin; i < end; i++)
        vec_act_back(b->act, b->inner + i * b->n, b->gate + i * b->ld,
                     b->up ? b->up + i * b->ld : NULL, b->dh + i * b->n, b->n);
}

void
mlp_backward(struct par *par, enum act act, float *inner, float *gate,
             float *up, size_t ld, const float *dh, size_t n, size_t n_rows)
{
    struct back back = { act, inner, gate, up, dh, ld, n };

    par_for(par, n_rows, 1, run_back, &back);
}
