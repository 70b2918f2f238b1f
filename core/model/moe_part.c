#include "core/model/moe_part.h"

#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/model/moe_operator.h"
#include "core/model/moe_route.h"
#include "core/par.h"

const uint16_t *
lora_of(const struct pass *pass, enum moe_lora_matrix m)
{
    const struct moe *moe = pass->moe;
    uint64_t shape[3];

    moe_lora_shape(&moe->config, m, shape);
    return moe->lora.m[m] + pass->block.expert * shape[1] * shape[2];
}

/* ---- operands ---- */

struct gathering {
    const struct pass *pass;
    uint16_t *to;
    const uint16_t *from;
};

static void
gather_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct gathering *g = ctx;
    size_t hidden = g->pass->moe->config.hidden, ld = gemm_ld_bf16(hidden);

    (void)thread;
    for (size_t i = begin; i < end; i++)
        memcpy(g->to + i * ld, g->from + row_token(g->pass, i) * hidden,
               hidden * sizeof(*g->to));
}

void
gather(struct pass *pass, struct part *part, uint16_t *to, const uint16_t *from)
{
    struct gathering g = { pass, to, from };

    par_for(gemm_par(part->gemm), pass->block.n, 8, gather_rows, &g);
}

/* Our operands are little-endian, as the files; gemm wants the machine's. */
static void
turn(uint16_t *x, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (size_t i = 0; i < n; i++)
        x[i] = __builtin_bswap16(x[i]);
#else
    (void)x;
    (void)n;
#endif
}

static void
product(struct part *part, const struct gemm_job *jobs, size_t n_jobs,
        uint16_t *x, size_t m)
{
    size_t ld = gemm_ld_bf16(jobs->w.k);

    turn(x, m * ld);
    gemm_bf16(part->gemm, jobs, n_jobs, x, NULL, ld, m);
    turn(x, m * ld);
}

/* ---- base products ---- */

struct widening {
    float *to;
    const uint16_t *x;
    size_t k;
};

static void
widen_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct widening *w = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        cvt_to_f32(w->to + i * w->k, w->x + i * gemm_ld_bf16(w->k), DT_BF16,
                   w->k);
}

void
base_products(struct pass *pass, struct part *part, const struct gemm_job *jobs,
              size_t n_jobs, uint16_t *x)
{
    size_t m = pass->block.n, k = jobs->w.k;
    struct widening w = { part->wide, x, k };

    if (pass->moe->config.mode == MOE_BF16) {
        product(part, jobs, n_jobs, x, m);
        return;
    }
    par_for(gemm_par(part->gemm), m, 8, widen_rows, &w);
    gemm_to_int8(part->gemm, part->x8, part->x8_scale, part->wide, k, m, k);
    gemm_int8(part->gemm, jobs, n_jobs, part->x8, part->x8_scale,
              gemm_ld_int8(k), m);
}

/* ---- LoRA ---- */

void
lora_product(struct pass *pass, struct part *part, float *c,
             const struct gemm_matrix *w, uint16_t *x)
{
    struct gemm_job job = { .w = *w, .c = c, .ldc = w->n };

    product(part, &job, 1, x, pass->block.n);
    vec_scale(c, pass->moe->s, pass->block.n * w->n);
}

void
lora_gate_up(struct pass *pass, struct part *part)
{
    size_t hidden = pass->moe->config.hidden, r = pass->moe->config.lora_rank;
    struct gemm_matrix w = {
        .data = part->a2, .dtype = DT_BF16, .n = 2 * r, .k = hidden
    };

    w.ld = hidden;
    memcpy(part->a2, lora_of(pass, MOE_GATE_A), r * hidden * 2);
    memcpy(part->a2 + r * hidden, lora_of(pass, MOE_UP_A), r * hidden * 2);
    lora_product(pass, part, part->ug, &w, part->x);
}

void
lora_down(struct pass *pass, struct part *part)
{
    struct gemm_matrix w = {
        .data = lora_of(pass, MOE_DOWN_A) + part->first,
        .dtype = DT_BF16,
        .n = pass->moe->config.lora_rank,
        .k = part->n,
        .ld = pass->moe->config.intermediate,
    };

    lora_product(pass, part, part->ud, &w, part->h);
}

/* ---- sums over parts ---- */

struct adding {
    const struct pass *pass;
    float *sum;
    bool weighted;
};

static void
add_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct adding *a = ctx;
    const struct moe *moe = a->pass->moe;
    size_t hidden = moe->config.hidden;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        for (size_t p = 0; p < moe->config.n_parts; p++)
            vec_axpy(a->sum + row_token(a->pass, i) * hidden,
                     a->weighted ? row_weight(a->pass, i) : 1,
                     moe->parts[p].partial + i * hidden, hidden);
}

void
add_partials(struct pass *pass, float *sum, bool weighted)
{
    struct adding a = { pass, sum, weighted };

    if (pass->moe->config.n_parts > 1)
        par_for(pass->moe->par, pass->block.n, 8, add_rows, &a);
}
