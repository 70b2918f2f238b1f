/* SPDX-License-Identifier: ISC */
#include "core/model/mlp.h"

#include <string.h>

#include "core/kernel/vec.h"

struct task {
    enum act act;
    float *inner;
    const float *gate, *up;
    size_t n;
};

static void
run(void *ctx, size_t begin, size_t end)
{
    const struct task *t = ctx;

    for (size_t i = begin * t->n; i < end * t->n; i += t->n) {
        if (t->inner != t->gate)
            memcpy(t->inner + i, t->gate + i, t->n * sizeof(*t->inner));
        vec_act(t->act, t->inner + i, t->up + i, t->n);
    }
}

void
mlp_activate(struct par *par, enum act act, float *inner, const float *gate,
             const float *up, size_t n, size_t n_rows)
{
    struct task task = { act, inner, gate, up, n };

    par_for(par, n_rows, 1, run, &task);
}

struct back {
    enum act act;
    float *inner, *gate, *up;
    const float *dh;
    size_t n;
};

static void
run_back(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;
    size_t at = begin * b->n;

    vec_act_back(b->act, b->inner + at, b->gate + at, b->up + at, b->dh + at,
                 (end - begin) * b->n);
}

void
mlp_backward(struct par *par, enum act act, float *inner, float *gate,
             float *up, const float *dh, size_t n, size_t n_rows)
{
    struct back back = { act, inner, gate, up, dh, n };

    par_for(par, n_rows, 1, run_back, &back);
}
