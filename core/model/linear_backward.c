/* SPDX-License-Identifier: ISC */
#include "core/model/linear_backward.h"

#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/model/engine.h"
#include "core/model/lora.h"

struct scaling {
    const struct linear *l;
    const float *dy;
    float *scaled;
};

static void
scale_rows(void *ctx, size_t begin, size_t end)
{
    const struct scaling *s = ctx;
    size_t n = s->l->out;

    for (size_t i = begin; i < end; i++)
        for (size_t k = 0; k < n; k++)
            s->scaled[i * n + k] = s->dy[i * n + k] * s->l->w.scale[k];
}

static void
back_int8(struct engine *e, const struct linear *l, const struct gemm_job *job,
          const float *dy, size_t n_rows)
{
    par_for(e->par, n_rows, 4, scale_rows,
            &(struct scaling){ l, dy, e->widened });
    linear_int8(e, job, 1, e->widened, l->out, n_rows);
}

void
linear_backward(struct engine *e, const struct linear *l, float *dx, bool add,
                const float *dy, float *low, size_t n_rows)
{
    struct gemm_job job = linear_back_job(l, dx, add);
    const struct lora *lora = l->lora;
    size_t k = l->out;

    if (dx && l->w.dtype == DT_I8) {
        back_int8(e, l, &job, dy, n_rows);
    } else if (dx && e->options.compute == COMPUTE_F32) {
        gemm_exact(e->gemm, &job, 1, dy, k, n_rows);
    } else if (dx) {
        gemm_to_bf16(e->gemm, e->rounded, dy, k, n_rows, k);
        gemm_bf16(e->gemm, &job, 1, e->rounded, NULL, gemm_ld_bf16(k), n_rows);
    }
    if (!lora)
        return;
    job = linear_back_job(&lora->b, low, false);
    gemm_exact(e->gemm, &job, 1, dy, k, n_rows);
    vec_scale(low, lora->scale, n_rows * lora->a.out);
    job = linear_back_job(&lora->a, dx, true);
    if (dx)
        gemm_exact(e->gemm, &job, 1, low, lora->a.out, n_rows);
}
