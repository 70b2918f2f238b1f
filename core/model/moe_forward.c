/* SPDX-License-Identifier: ISC */
/* The forward pass: expert by expert, block by block, each part its columns. */
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/moe_part.h"

/* A block's forward, of which each part does its columns. */
struct forward {
    const struct moe *moe;
    const struct moe_batch *batch;
    const struct moe_saved *saved; /* NULL: nothing is kept */
    float *output;                 /* [qlen, hidden] */
    struct moe_block block;
};

/* A part's share of it: what its threads see. */
struct forward_share {
    const struct forward *of;
    struct moe_part *part;
    uint16_t *gate, *up; /* [block, n], rows 'ld' apart */
    size_t ld;
};

/* The product that makes gate or up. */
struct forward_product {
    const struct forward_share *share;
    uint16_t *to;          /* gate or up */
    const float *xa, *b_t; /* [block, rank], 2 rank apart; [rank, n] */
};

/* Rows of B [n, rank] become columns of to [rank, n], f32: little-endian, as
 * weighted_sum() reads it. */
struct transposing {
    float *to;
    const uint16_t *b;
    size_t n, rank;
};

/* A cache line at a time, as rows of 'to' are mostly a multiple of 4 KiB: of
 * these the first cache level keeps few. */
static void
transpose_rows(void *ctx, size_t begin, size_t end)
{
    const struct transposing t = *(const struct transposing *)ctx;
    uint16_t wide[2] = { 0 }; /* a bf16 is the upper half of an f32 */

    for (size_t i = begin, some; i < end; i += some) {
        some = smaller(end - i, 16);
        for (size_t j = 0; j < t.rank; j++)
            for (size_t k = i; k < i + some; k++) {
                memcpy(&wide[1], &t.b[k * t.rank + j], 2);
                memcpy(&t.to[j * t.n + k], wide, 4);
            }
    }
}

/* B^T of an expert's matrix, from row 'first' on. */
static void
transpose_b(const struct forward_share *p, enum moe_lora_matrix m, float *to,
            size_t first, size_t n)
{
    const struct moe *moe = p->of->moe;
    size_t r = moe->config.lora_rank;
    struct transposing t = {
        to, moe_lora_at(moe, m, p->of->block.expert) + first * r, n, r
    };

    par_for(gemm_par(p->part->gemm), n, 256, transpose_rows, &t);
}

/* gate or up: what LoRA adds, then the rounding. */
static void
end_gate_up(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows,
            size_t col, size_t n_cols, int thread)
{
    const struct moe_tile tile = { t, ldt, row, n_rows, col, n_cols };
    const struct forward_product *p = ctx;
    size_t r = p->share->of->moe->config.lora_rank;

    (void)thread;
    for (size_t i = 0; i < n_rows; i++)
        moe_fetch(p->to + (row + i) * p->share->ld + col, n_cols * 2);
    moe_add_lora(&tile, r, p->xa, 2 * r, p->b_t, DT_F32, p->share->part->n);
    for (size_t i = 0; i < n_rows; i++)
        cvt_from_f32(p->to + (row + i) * p->share->ld + col, DT_BF16,
                     t + i * ldt, n_cols);
}

/* h of gate and up, rounded once. */
static void
activate(void *ctx, size_t begin, size_t end)
{
    const struct forward_share *p = ctx;
    size_t ldh = gemm_ld_bf16(p->part->n);
    float g[256], u[256];

    for (size_t i = begin; i < end; i++)
        for (size_t c = 0, n; c < p->part->n; c += n) {
            n = smaller(p->part->n - c, 256);
            cvt_to_f32(g, p->gate + i * p->ld + c, DT_BF16, n);
            cvt_to_f32(u, p->up + i * p->ld + c, DT_BF16, n);
            vec_act(p->of->moe->config.act, g, u, n);
            cvt_from_f32(p->part->h + i * ldh + c, DT_BF16, g, n);
        }
}

/* Into the output, or, where there are several parts, into partial sums. */
static void
end_down(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
         size_t n_cols, int thread)
{
    const struct moe_tile tile = { t, ldt, row, n_rows, col, n_cols };
    const struct forward_share *p = ctx;
    const struct forward *f = p->of;
    size_t r = f->moe->config.lora_rank, hidden = f->moe->config.hidden;

    (void)thread;
    for (size_t i = row; i < row + n_rows && !p->part->partial; i++)
        moe_fetch(f->output + moe_token(f->moe, &f->block, i) * hidden + col,
                  n_cols * 4);
    moe_add_lora(&tile, r, p->part->ha, r, p->part->b_t, DT_F32, hidden);
    for (size_t i = row; i < row + n_rows && !p->part->partial; i++)
        vec_axpy(f->output + moe_token(f->moe, &f->block, i) * hidden + col,
                 f->batch->weights[f->block.slots[i]], t + (i - row) * ldt,
                 n_cols);
}

/*
 * The steps, each from what those before it have left:
 *   moe_gather                      x
 *   moe_lora_gate_up, transpose_b   xa = s x A^T, B^T of gate and up
 *   products with W_gate, W_up      gate, up, rounded
 *   activate                        h
 *   moe_lora_down, transpose_b      ha = s h A^T, B^T of down
 *   product with W_down             the output, or the part's share of it
 */
static void
forward_part(void *ctx, struct moe_part *part)
{
    const struct forward *f = ctx;
    const struct moe *moe = f->moe;
    size_t hidden = moe->config.hidden, r = moe->config.lora_rank;
    size_t rows = f->block.n, e = f->block.expert, n = part->n;
    struct par *par = gemm_par(part->gemm);
    struct forward_share p = { f, part, part->gate, part->up, n };
    struct forward_product gate, up;
    struct gemm_job gate_up[2], down;

    if (f->saved) {
        p.ld = moe->config.intermediate;
        p.gate = f->saved->gate + f->block.row * p.ld + part->first;
        p.up = f->saved->up + f->block.row * p.ld + part->first;
    }
    gate = (struct forward_product){ &p, p.gate, part->xa, part->b_t };
    up = (struct forward_product){ &p, p.up, part->xa + r, part->b_t + r * n };
    gate_up[0] =
        moe_base_job(moe, part, K_GATE, e, NULL, 0,
                     (struct gemm_end){ .hook = end_gate_up, .ctx = &gate });
    gate_up[1] =
        moe_base_job(moe, part, K_UP, e, NULL, 0,
                     (struct gemm_end){ .hook = end_gate_up, .ctx = &up });
    down = moe_base_job(moe, part, K_DOWN, e, part->partial, hidden,
                        (struct gemm_end){ .hook = end_down, .ctx = &p });

    moe_gather(moe, part, &f->block, part->x, f->batch->input);
    moe_lora_gate_up(moe, part, part->xa, part->x, &f->block);
    transpose_b(&p, MOE_GATE_B, part->b_t, part->first, n);
    transpose_b(&p, MOE_UP_B, part->b_t + r * n, part->first, n);
    moe_base_products(moe, part, gate_up, 2, part->x, rows);
    par_for(par, rows, 4, activate, &p);
    moe_lora_down(moe, part, part->ha, part->h, &f->block);
    transpose_b(&p, MOE_DOWN_B, part->b_t, 0, hidden);
    moe_base_products(moe, part, &down, 1, part->h, rows);
}

int
moe_forward(struct moe *moe, const struct moe_batch *batch, float *output,
            bool save, struct err *err)
{
    struct moe_saved *saved = NULL;

    if (moe->config.backward_only)
        return err_set(err, EX_DATAERR, "the operator is for backward only");
    if (moe_check_weights(moe, err) < 0 ||
        moe_route_rows(moe, batch->expert_ids, batch->qlen, err) < 0 ||
        moe_pack(moe, false, err) < 0 ||
        (save && moe_saved_next(moe, &saved, err) < 0))
        return -1;
    moe->skipped = moe->route.skipped;
    if (saved)
        moe_saved_batch(&moe->config, saved, batch);
    if (batch->qlen > 0)
        memset(output, 0, batch->qlen * moe->config.hidden * sizeof(*output));
    for (size_t e = 0; e < moe->config.n_experts; e++)
        for (size_t row = moe_first_row(moe, e);
             row < moe_first_row(moe, e + 1);) {
            struct forward f = { moe, batch, saved, output,
                                 moe_block_at(moe, e, row) };

            moe_for_parts(moe, forward_part, &f);
            moe_add_partials(moe, &f.block, output, batch->weights);
            row += f.block.n;
        }
    moe->depth += save;
    return 0;
}

size_t
moe_skipped(const struct moe *moe)
{
    return moe->skipped;
}
