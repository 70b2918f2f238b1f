/* SPDX-License-Identifier: ISC */
#include "core/model/moe_part.h"

#include <string.h>

#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/model/router.h"
#include "core/par.h"

const uint16_t *
moe_lora_at(const struct moe *moe, enum moe_lora_matrix m, size_t expert)
{
    uint64_t shape[3];

    moe_lora_shape(&moe->config, m, shape);
    return moe->lora.m[m] + expert * shape[1] * shape[2];
}

void
moe_gather(const struct moe *moe, struct moe_part *part,
           const struct moe_block *block, uint16_t *to, const uint16_t *from)
{
    size_t hidden = moe->config.hidden;
    const struct router_slots s = { block->slots, block->n, moe->config.top_k };

    router_gather(gemm_par(part->gemm), &s, to, gemm_ld_bf16(hidden) * 2, from,
                  hidden * 2);
}

/* ---- products ---- */

/* Our operands are little-endian, as the files; gemm wants the machine's. */
static void
swap_bytes(uint16_t *x, size_t n)
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
product(struct moe_part *part, const struct gemm_job *jobs, size_t n_jobs,
        uint16_t *x, size_t n_rows)
{
    size_t ld = gemm_ld_bf16(jobs->w.k);

    swap_bytes(x, n_rows * ld);
    gemm_bf16(part->gemm, jobs, n_jobs, x, NULL, ld, n_rows);
    swap_bytes(x, n_rows * ld);
}

void
moe_base_products(const struct moe *moe, struct moe_part *part,
                  const struct gemm_job *jobs, size_t n_jobs, uint16_t *x,
                  size_t n_rows)
{
    size_t k = jobs->w.k;

    if (moe->config.mode == MOE_BF16) {
        product(part, jobs, n_jobs, x, n_rows);
        return;
    }
    gemm_x_int8(part->gemm, part->x8, part->x8_scale, x, DT_BF16,
                gemm_ld_bf16(k), n_rows, k);
    gemm_int8(part->gemm, jobs, n_jobs, part->x8, part->x8_scale,
              gemm_ld_int8(k), n_rows);
}

/* ---- LoRA ---- */

void
moe_lora_product(const struct moe *moe, struct moe_part *part, float *c,
                 const struct gemm_matrix *w, uint16_t *x, size_t n_rows)
{
    const struct gemm_job job = { .w = *w, .c = c, .ldc = w->n };

    product(part, &job, 1, x, n_rows);
    vec_scale(c, moe->s, n_rows * w->n);
}

void
moe_lora_gate_up(const struct moe *moe, struct moe_part *part, float *xa,
                 uint16_t *x, const struct moe_block *block)
{
    size_t hidden = moe->config.hidden, r = moe->config.lora_rank;
    const struct gemm_matrix w = {
        .weight = { .data = part->a_gate_up, .dtype = DT_BF16, .ld = hidden },
        .n = 2 * r,
        .k = hidden
    };

    memcpy(part->a_gate_up, moe_lora_at(moe, MOE_GATE_A, block->expert),
           r * hidden * 2);
    memcpy(part->a_gate_up + r * hidden,
           moe_lora_at(moe, MOE_UP_A, block->expert), r * hidden * 2);
    moe_lora_product(moe, part, xa, &w, x, block->n);
}

void
moe_lora_down(const struct moe *moe, struct moe_part *part, float *ha,
              uint16_t *h, const struct moe_block *block)
{
    const struct gemm_matrix w = {
        .weight = { moe_lora_at(moe, MOE_DOWN_A, block->expert), DT_BF16,
                    moe->config.intermediate, .col = part->first },
        .n = moe->config.lora_rank,
        .k = part->n,
    };

    moe_lora_product(moe, part, ha, &w, h, block->n);
}

void
moe_add_lora(const struct moe_tile *tile, size_t rank, const float *p,
             size_t ldp, const void *w, enum dtype w_dtype, size_t ldw)
{
    const struct weighted_sum m = {
        .y = tile->t,
        .w = (const char *)w + tile->col * dtype_size(w_dtype),
        .p = p + tile->row * ldp,
        .ldy = tile->ld,
        .ldw = ldw,
        .ldp = ldp,
        .rows = rank,
        .cols = tile->n_cols,
        .n = tile->n_rows,
        .w_dtype = w_dtype,
        .add = true,
    };

    weighted_sum(&m);
}

/* ---- sums ---- */

void
moe_add_partials(const struct moe *moe, const struct moe_block *block,
                 float *sum, const float *weights)
{
    const struct router_slots s = { block->slots, block->n, moe->config.top_k };

    for (size_t p = 0; p < moe->config.n_parts && moe->config.n_parts > 1; p++)
        router_scatter(moe->par, &s, sum, weights, moe->parts[p].partial,
                       moe->config.hidden);
}
