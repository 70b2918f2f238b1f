#include "core/model/linear_backward.h"

#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/model/engine.h"
#include "core/model/lora.h"

void
linear_backward(struct engine *e, const struct linear *l, float *dx, bool add,
                const float *dy, float *low, size_t n_rows)
{
    struct gemm_job job = linear_back_job(l, dx, add);
    const struct lora *lora = l->lora;
    size_t k = l->out;

    if (dx && e->options.compute == COMPUTE_F32) {
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
