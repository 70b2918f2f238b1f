#include "core/model/mlp.h"

#include <string.h>

#include "core/kernel/vec.h"

struct task {
    void (*act_mul)(float *gate, const float *up, size_t n);
    float *inner;
    const float *gate, *up;
    size_t n;
};

static void
run(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;

    (void)thread;
    for (size_t i = begin * t->n; i < end * t->n; i += t->n) {
        if (t->inner != t->gate)
            memcpy(t->inner + i, t->gate + i, t->n * sizeof(*t->inner));
        t->act_mul(t->inner + i, t->up + i, t->n);
    }
}

void
mlp_activate(struct par *par, enum act act, float *inner, const float *gate,
             const float *up, size_t n, size_t n_rows)
{
    struct task task = { act == ACT_SILU ? vec_silu_mul : vec_gelu_tanh_mul,
                         inner, gate, up, n };

    par_for(par, n_rows, 1, run, &task);
}
