/* The router of a model folder, for batches without routing. */
#include <stdlib.h>

#include "cmd/moe-sft/sft.h"
#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/mem.h"

#define ROWS 256 /* tokens at a time */

struct router {
    const struct base *base;
    struct batch *b;
    float *x, *logits; /* [ROWS, hidden], [ROWS, n_experts] */
    uint32_t *idx;     /* [top_k] */
};

static void
pick(const struct router *r, float *logits, size_t token)
{
    size_t k = r->base->top_k, n = r->base->n_experts;
    int64_t *ids = r->b->expert_ids + token * k;
    float *w = r->b->weights + token * k;
    float sum = vec_exp_sum(logits, vec_max(logits, n), n), top = 0;

    vec_topk(r->idx, k, logits, n);
    for (size_t j = 0; j < k; j++) {
        ids[j] = r->idx[j];
        w[j] = logits[r->idx[j]] / sum;
        top += w[j];
    }
    for (size_t j = 0; r->base->norm_topk_prob && j < k; j++)
        w[j] /= top;
}

static void
route(const struct router *r, struct gemm *gemm)
{
    size_t h = r->base->hidden, n = r->base->n_experts;

    for (size_t i = 0, m; i < r->b->qlen; i += m) {
        struct gemm_job job = { .w = r->base->router,
                                .c = r->logits,
                                .ldc = n };

        m = r->b->qlen - i < ROWS ? r->b->qlen - i : ROWS;
        cvt_to_f32(r->x, r->b->input + i * h, DT_BF16, m * h);
        gemm_exact(gemm, &job, 1, r->x, h, m);
        for (size_t t = 0; t < m; t++)
            pick(r, r->logits + t * n, i + t);
    }
}

int
batch_route(struct batch *b, const struct base *base, struct gemm *gemm,
            struct err *err)
{
    struct router r = { .base = base, .b = b };
    int rc = -1;

    if (b->expert_ids)
        return 0;
    if (!base->router.data || !base->top_k)
        return err_set(err, EX_DATAERR,
                       "%s: has no expert_ids, and %s no router that is known "
                       "(qwen3_moe, num_experts_per_tok)",
                       b->name, base->path);
    b->top_k = base->top_k;
    b->expert_ids =
        mem_try(b->qlen + 1, b->top_k * sizeof(int64_t), b->name, err);
    b->weights = mem_try(b->qlen + 1, b->top_k * sizeof(float), b->name, err);
    r.x = mem_try(ROWS, base->hidden * sizeof(float), b->name, err);
    r.logits = mem_try(ROWS, base->n_experts * sizeof(float), b->name, err);
    r.idx = xcalloc(b->top_k, sizeof(*r.idx));
    if (b->expert_ids && b->weights && r.x && r.logits) {
        route(&r, gemm);
        rc = 0;
    }
    free(r.idx);
    free(r.logits);
    free(r.x);
    return rc;
}
