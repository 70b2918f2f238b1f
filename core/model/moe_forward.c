/* The forward pass: expert by expert, block by block, each part its columns. */
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/moe_part.h"

/* A block's forward, which the parts share. */
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

static void
gather_input(void *ctx, size_t begin, size_t end, int thread)
{
    const struct forward_share *p = ctx;

    (void)thread;
    moe_gather(p->of->moe, &p->of->block, p->part->x, p->of->batch->input,
               begin, end);
}

/* Rows of B [n, rank] as columns of to [rank, n], f32: little-endian, as
 * weighted_sum() reads it. */
static void
transpose_rows(float *to, const uint16_t *b, size_t n, size_t rank,
               size_t begin, size_t end)
{
    float row[64];

    for (size_t i = begin; i < end; i++)
        for (size_t j = 0, some; j < rank; j += some) {
            some = smaller(rank - j, 64);
            cvt_to_f32(row, b + i * rank + j, DT_BF16, some);
            for (size_t k = 0; k < some; k++)
                put_le32(&to[(j + k) * n + i], f32_bits(row[k]));
        }
}

static void
transpose_gate_up_b(void *ctx, size_t begin, size_t end, int thread)
{
    const struct forward_share *p = ctx;
    const struct moe *moe = p->of->moe;
    size_t r = moe->config.lora_rank, n = p->part->n, at = p->part->first * r;
    size_t expert = p->of->block.expert;

    (void)thread;
    transpose_rows(p->part->b_t, moe_lora_at(moe, MOE_GATE_B, expert) + at, n,
                   r, begin, end);
    transpose_rows(p->part->b_t + r * n,
                   moe_lora_at(moe, MOE_UP_B, expert) + at, n, r, begin, end);
}

static void
transpose_down_b(void *ctx, size_t begin, size_t end, int thread)
{
    const struct forward_share *p = ctx;
    const struct moe *moe = p->of->moe;

    (void)thread;
    transpose_rows(p->part->b_t,
                   moe_lora_at(moe, MOE_DOWN_B, p->of->block.expert),
                   moe->config.hidden, moe->config.lora_rank, begin, end);
}

static void
round_tile(uint16_t *to, size_t ld, const struct moe_tile *tile)
{
    for (size_t i = 0; i < tile->n_rows; i++)
        cvt_from_f32(to + (tile->row + i) * ld + tile->col, DT_BF16,
                     tile->t + i * tile->ld, tile->n_cols);
}

static void
end_gate(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
         size_t n_cols, int thread)
{
    const struct moe_tile tile = { t, ldt, row, n_rows, col, n_cols };
    const struct forward_share *p = ctx;
    size_t r = p->of->moe->config.lora_rank;

    (void)thread;
    moe_add_lora(&tile, r, p->part->xa, 2 * r, p->part->b_t, DT_F32,
                 p->part->n);
    round_tile(p->gate, p->ld, &tile);
}

static void
end_up(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
       size_t n_cols, int thread)
{
    const struct moe_tile tile = { t, ldt, row, n_rows, col, n_cols };
    const struct forward_share *p = ctx;
    size_t r = p->of->moe->config.lora_rank, n = p->part->n;

    (void)thread;
    moe_add_lora(&tile, r, p->part->xa + r, 2 * r, p->part->b_t + r * n, DT_F32,
                 n);
    round_tile(p->up, p->ld, &tile);
}

/* h = silu(gate) * up, rounded once. */
static void
activate(void *ctx, size_t begin, size_t end, int thread)
{
    const struct forward_share *p = ctx;
    size_t ldh = gemm_ld_bf16(p->part->n);
    float g[256], u[256];

    (void)thread;
    for (size_t i = begin; i < end; i++)
        for (size_t c = 0, n; c < p->part->n; c += n) {
            n = smaller(p->part->n - c, 256);
            cvt_to_f32(g, p->gate + i * p->ld + c, DT_BF16, n);
            cvt_to_f32(u, p->up + i * p->ld + c, DT_BF16, n);
            vec_silu_mul(g, u, n);
            cvt_from_f32(p->part->h + i * ldh + c, DT_BF16, g, n);
        }
}

/* Into the output; of several parts partial sums are kept. */
static void
end_down(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
         size_t n_cols, int thread)
{
    const struct moe_tile tile = { t, ldt, row, n_rows, col, n_cols };
    const struct forward_share *p = ctx;
    const struct forward *f = p->of;
    size_t r = f->moe->config.lora_rank, hidden = f->moe->config.hidden;

    (void)thread;
    moe_add_lora(&tile, r, p->part->ha, r, p->part->b_t, DT_F32, hidden);
    for (size_t i = row; i < row + n_rows && !p->part->partial; i++)
        vec_axpy(f->output + moe_token(f->moe, &f->block, i) * hidden + col,
                 f->batch->weights[f->block.slots[i]], t + (i - row) * ldt,
                 n_cols);
}

static void
forward_part(void *ctx, struct moe_part *part)
{
    const struct forward *f = ctx;
    const struct moe *moe = f->moe;
    size_t hidden = moe->config.hidden, rows = f->block.n, e = f->block.expert;
    struct par *par = gemm_par(part->gemm);
    struct forward_share p = { f, part, part->gate, part->up, part->n };
    const struct gemm_job gate_up[] = {
        moe_base_job(moe, part, K_GATE, e, NULL, 0,
                     (struct gemm_end){ .hook = end_gate, .ctx = &p }),
        moe_base_job(moe, part, K_UP, e, NULL, 0,
                     (struct gemm_end){ .hook = end_up, .ctx = &p }),
    };
    const struct gemm_job down =
        moe_base_job(moe, part, K_DOWN, e, part->partial, hidden,
                     (struct gemm_end){ .hook = end_down, .ctx = &p });

    if (f->saved) {
        p.ld = moe->config.intermediate;
        p.gate = f->saved->gate + f->block.row * p.ld + part->first;
        p.up = f->saved->up + f->block.row * p.ld + part->first;
    }
    par_for(par, rows, 8, gather_input, &p); /* x */
    moe_lora_gate_up(moe, part, part->xa, part->x, &f->block);
    par_for(par, part->n, 256, transpose_gate_up_b, &p);
    moe_base_products(moe, part, gate_up, 2, part->x, rows);
    par_for(par, rows, 4, activate, &p); /* h */
    moe_lora_down(moe, part, part->ha, part->h, &f->block);
    par_for(par, hidden, 256, transpose_down_b, &p);
    moe_base_products(moe, part, &down, 1, part->h, rows);
}

int
moe_forward(struct moe *moe, const struct moe_batch *batch, float *output,
            bool save, struct err *err)
{
    struct moe_saved *saved = NULL;

    if (moe_check_weights(moe, err) < 0 ||
        moe_route_rows(moe, batch->expert_ids, batch->qlen, err) < 0 ||
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
