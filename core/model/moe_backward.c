/* SPDX-License-Identifier: ISC */
/*
 * The backward pass.  For a block's rows, with dY the output's gradient:
 *   da0 = dY W_down + s (dY B_d) A_d     of h, before the routing weight w
 *   grad_w = <da0, h> + <dY, down's bias>,  da = w da0
 *   dg = da up silu'(gate),  du = da silu(gate)     or of another activation
 *   dX += dg W_gate + s (dg B_g) A_g + du W_up + s (du B_u) A_u
 *   dA = s (dy B)^T x,  dB = dy^T s (x A^T)     of a layer x -> y
 */
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/moe_part.h"

/* A block's backward, of which each part does its columns. */
struct backward {
    const struct moe *moe;
    const struct moe_saved *saved;
    const uint16_t *grad_output; /* [qlen, hidden] */
    const struct moe_grads *grads;
    struct moe_block block;
};

/* grad += p^T w, p [block, rank] (times the routing weight), w [block, cols] */
struct outer {
    const float *p;
    size_t ldp;
    bool weighted;
    const uint16_t *w;
    size_t cols;
};

/* Columns: 512 rows of them (64 KiB) stay in the L2 cache for all of p's. */
enum { OUTER_COLS = 64 };

/* A part's share of it: what its threads see. */
struct backward_share {
    const struct backward *of;
    struct moe_part *part;
    struct outer outers[MOE_N_LORA]; /* a gradient each */
};

/* ---- the ends of products ---- */

static size_t
n_panels(const struct moe_part *part)
{
    return (part->n - 1) / GEMM_PANEL + 1;
}

/* From da0 to h, dg, du and, for the weights' gradients, <da0, h>. */
static void
end_da0(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
        size_t n_cols, int thread)
{
    const struct moe_tile tile = { t, ldt, row, n_rows, col, n_cols };
    const struct backward_share *p = ctx;
    const struct backward *b = p->of;
    const struct moe_config *c = &b->moe->config;
    struct moe_part *part = p->part;
    size_t r = c->lora_rank, ldh = gemm_ld_bf16(part->n);
    float g[GEMM_PANEL], u[GEMM_PANEL], h[GEMM_PANEL];

    (void)thread;
    for (size_t i = row; i < row + n_rows; i++) {
        size_t at = (b->block.row + i) * c->intermediate + part->first + col;

        moe_fetch(b->saved->gate + at, n_cols * 2);
        moe_fetch(b->saved->up + at, n_cols * 2);
        moe_fetch(part->h + i * ldh + col, n_cols * 2);
        moe_fetch(part->dg + i * ldh + col, n_cols * 2);
        moe_fetch(part->du + i * ldh + col, n_cols * 2);
    }
    moe_add_lora(&tile, r, part->dyb, r,
                 moe_lora_at(b->moe, MOE_DOWN_A, b->block.expert) + part->first,
                 DT_BF16, c->intermediate);
    for (size_t i = row; i < row + n_rows; i++) {
        const float *da0 = t + (i - row) * ldt;
        size_t to = i * ldh + col;
        size_t at = (b->block.row + i) * c->intermediate + part->first + col;
        float w = b->saved->weights[b->block.slots[i]];

        cvt_to_f32(g, b->saved->gate + at, DT_BF16, n_cols);
        cvt_to_f32(u, b->saved->up + at, DT_BF16, n_cols);
        vec_act_back(c->act, h, g, u, da0, n_cols);
        vec_scale(g, w, n_cols);
        vec_scale(u, w, n_cols);
        cvt_from_f32(part->h + to, DT_BF16, h, n_cols);
        cvt_from_f32(part->dg + to, DT_BF16, g, n_cols);
        cvt_from_f32(part->du + to, DT_BF16, u, n_cols);
        part->dw[i * n_panels(part) + col / GEMM_PANEL] =
            vec_dot(da0, h, n_cols);
    }
}

/* A product that adds to dX: what LoRA adds to it is q A. */
struct dx_product {
    const struct backward_share *share;
    const float *q; /* [block, rank] */
    enum moe_lora_matrix a;
};

/* Into dX, or, where there are several parts, into partial sums. */
static void
end_dx(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
       size_t n_cols, int thread)
{
    const struct moe_tile tile = { t, ldt, row, n_rows, col, n_cols };
    const struct dx_product *p = ctx;
    const struct backward *b = p->share->of;
    const struct moe *moe = b->moe;
    size_t r = moe->config.lora_rank, hidden = moe->config.hidden;

    (void)thread;
    for (size_t i = 0; i < n_rows && !p->share->part->partial; i++)
        moe_fetch(moe->dx + moe_token(moe, &b->block, row + i) * hidden + col,
                  n_cols * 4);
    moe_add_lora(&tile, r, p->q, r, moe_lora_at(moe, p->a, b->block.expert),
                 DT_BF16, hidden);
    for (size_t i = 0; i < n_rows && !p->share->part->partial; i++)
        vec_add(moe->dx + moe_token(moe, &b->block, row + i) * hidden + col,
                t + i * ldt, n_cols);
}

/* ---- gradients of the adapter ---- */

static float *
transposed(const struct backward_share *p, size_t i)
{
    return p->part->outer_t + i * p->of->moe->config.lora_rank * p->of->block.n;
}

static void
transpose_p(void *ctx, size_t begin, size_t end)
{
    const struct backward_share *p = ctx;
    const struct backward *b = p->of;
    size_t rows = b->block.n;

    for (size_t i = begin; i < end; i++) {
        const struct outer *o = &p->outers[i];
        float *to = transposed(p, i);

        for (size_t r = 0; r < rows; r++) {
            float w = o->weighted ? b->saved->weights[b->block.slots[r]] : 1;

            for (size_t j = 0; j < b->moe->config.lora_rank; j++)
                to[j * rows + r] = w * o->p[r * o->ldp + j];
        }
    }
}

static size_t
n_chunks(const struct outer *o)
{
    return (o->cols - 1) / OUTER_COLS + 1;
}

/* Chunks of the outer products, which are numbered one after the other. */
static void
add_outer(void *ctx, size_t begin, size_t end)
{
    const struct backward_share *p = ctx;
    size_t rows = p->of->block.n;

    for (size_t c = begin; c < end; c++) {
        size_t i = 0, at = c;
        const struct outer *o;
        struct weighted_sum m;

        for (; at >= n_chunks(&p->outers[i]); i++)
            at -= n_chunks(&p->outers[i]);
        o = &p->outers[i];
        at *= OUTER_COLS;
        m = (struct weighted_sum){
            .y = p->part->grad[i] + at,
            .w = o->w + at,
            .p = transposed(p, i),
            .ldy = o->cols,
            .ldw = gemm_ld_bf16(o->cols),
            .ldp = rows,
            .rows = rows,
            .cols = smaller(o->cols - at, OUTER_COLS),
            .n = p->of->moe->config.lora_rank,
            .w_dtype = DT_BF16,
            /* the expert's first block begins the sums */
            .add = p->of->block.row >
                   moe_first_row(p->of->moe, p->of->block.expert),
        };
        weighted_sum(&m);
    }
}

/* ---- a block ---- */

/* s dy B of rows [at, at + n) of B [.., rank]: B^T's rows its k. */
static void
lora_back(const struct backward_share *p, float *c, enum moe_lora_matrix b,
          size_t at, size_t n, uint16_t *dy)
{
    const struct moe *moe = p->of->moe;
    size_t r = moe->config.lora_rank;
    const struct gemm_matrix w = {
        .weight = { .data = moe_lora_at(moe, b, p->of->block.expert) + at * r,
                    .dtype = DT_BF16,
                    .ld = r },
        .n = r,
        .k = n,
        .by_k = true,
    };

    moe_lora_product(moe, p->part, c, &w, dy, p->of->block.n);
}

/*
 * The steps, each from what those before it have left:
 *   moe_gather                     x, dy
 *   lora_back of dy                dyb = s dy B_down
 *   product with W_down, end_da0   da0; h, dg, du of it, and dw = <da0, h>
 *   moe_lora_gate_up, _down        xa = s x A^T, ha = s h A^T, as forward did
 *   lora_back of dg, du            dgb = s dg B_gate, dub = s du B_up
 *   products with W_gate, W_up,    dX, or the part's share of it
 *     end_dx
 *   transpose_p, add_outer         dA and dB
 */
static void
backward_part(void *ctx, struct moe_part *part)
{
    const struct backward *b = ctx;
    const struct moe *moe = b->moe;
    size_t hidden = moe->config.hidden, r = moe->config.lora_rank;
    size_t first = part->first, n = part->n, chunks = 0;
    size_t rows = b->block.n, e = b->block.expert;
    struct par *par = gemm_par(part->gemm);
    struct backward_share p = {
        b,
        part,
        {
            /* dA_gate += (dg B)^T x, and so on; transposed: dB += (x A^T)^T dg
             */
            [MOE_GATE_A] = { part->dgb, r, false, part->x, hidden },
            [MOE_GATE_B] = { part->xa, 2 * r, false, part->dg, n },
            [MOE_UP_A] = { part->dub, r, false, part->x, hidden },
            [MOE_UP_B] = { part->xa + r, 2 * r, false, part->du, n },
            [MOE_DOWN_A] = { part->dyb, r, true, part->h, n },
            [MOE_DOWN_B] = { part->ha, r, true, part->dy, hidden },
        },
    };
    struct dx_product dx_gate = { &p, part->dgb, MOE_GATE_A };
    struct dx_product dx_up = { &p, part->dub, MOE_UP_A };
    const struct gemm_job down =
        moe_base_job(moe, part, K_DOWN_T, e, NULL, 0,
                     (struct gemm_end){ .hook = end_da0, .ctx = &p });
    const struct gemm_job gate =
        moe_base_job(moe, part, K_GATE_T, e, part->partial, hidden,
                     (struct gemm_end){ .hook = end_dx, .ctx = &dx_gate });
    const struct gemm_job up =
        moe_base_job(moe, part, K_UP_T, e, part->partial, hidden,
                     (struct gemm_end){ .accumulate = part->partial != NULL,
                                        .hook = end_dx,
                                        .ctx = &dx_up });

    moe_gather(moe, part, &b->block, part->x, b->saved->input);
    moe_gather(moe, part, &b->block, part->dy, b->grad_output);
    lora_back(&p, part->dyb, MOE_DOWN_B, 0, hidden, part->dy);
    moe_base_products(moe, part, &down, 1, part->dy, rows);
    moe_lora_gate_up(moe, part, part->xa, part->x, &b->block);
    moe_lora_down(moe, part, part->ha, part->h, &b->block);
    lora_back(&p, part->dgb, MOE_GATE_B, first, n, part->dg);
    lora_back(&p, part->dub, MOE_UP_B, first, n, part->du);
    moe_base_products(moe, part, &gate, 1, part->dg, rows);
    moe_base_products(moe, part, &up, 1, part->du, rows);
    for (size_t i = 0; i < MOE_N_LORA; i++)
        chunks += n_chunks(&p.outers[i]);
    par_for(par, MOE_N_LORA, 1, transpose_p, &p);
    par_for(par, chunks, 1, add_outer, &p);
}

/* Of a block's slots, summed over the panels of all parts. */
static void
put_weight_grads(void *ctx, size_t begin, size_t end)
{
    const struct backward *b = ctx;
    const struct moe_config *c = &b->moe->config;
    const struct moe_part *parts = b->moe->parts;
    const float *bias = b->moe->bias[2 * c->n_experts + b->block.expert];
    float dy[256];

    for (size_t i = begin; i < end; i++) {
        const uint16_t *row = parts->dy + i * gemm_ld_bf16(c->hidden);
        float sum = 0;

        for (size_t p = 0; p < c->n_parts; p++) {
            size_t panels = n_panels(&parts[p]);

            for (size_t k = 0; k < panels; k++)
                sum += parts[p].dw[i * panels + k];
        }
        for (size_t at = 0, n; bias && at < c->hidden; at += n) {
            n = smaller(c->hidden - at, 256);
            cvt_to_f32(dy, row + at, DT_BF16, n);
            sum += vec_dot(dy, bias + at, n);
        }
        b->grads->weights[b->block.slots[i]] = sum;
    }
}

/* ---- an expert ---- */

/* Of 'hidden' columns, of which every part has a share. */
static bool
is_shared(enum moe_lora_matrix m)
{
    return m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_B;
}

/* What no slot adds to: a matrix of an expert without rows. */
static void
clear_idle(void *ctx, size_t begin, size_t end)
{
    const struct backward *b = ctx;
    const struct moe *moe = b->moe;
    size_t item = dtype_size(b->grads->lora_dtype);

    for (size_t i = begin; i < end; i++) {
        size_t e = i / MOE_N_LORA, n;
        enum moe_lora_matrix m = (enum moe_lora_matrix)(i % MOE_N_LORA);
        uint64_t shape[3];

        if (!b->grads->lora[m] ||
            moe_first_row(moe, e) < moe_first_row(moe, e + 1))
            continue;
        moe_lora_shape(&moe->config, m, shape);
        n = shape[1] * shape[2] * item;
        memset((char *)b->grads->lora[m] + e * n, 0, n);
    }
}

static void
put(const struct moe_grads *g, enum moe_lora_matrix m, size_t at,
    const float *from, size_t n)
{
    if (g->lora_dtype == DT_F32)
        memcpy((float *)g->lora[m] + at, from, n * sizeof(*from));
    else
        cvt_from_f32((uint16_t *)g->lora[m] + at, DT_BF16, from, n);
}

/* Columns of a transposed matrix that are read at a time: a cache line. */
enum { LINE = 16, N_PUTS = 8 };

/*
 * An expert's gradients, from the parts, each matrix in N_PUTS: those that
 * is_shared() are added up, the others are side by side.  A [rank, width] has
 * columns [first, first + n) of a part; B [width, rank] has them as rows.
 */
static void
put_grads(void *ctx, size_t begin, size_t end)
{
    const struct backward *b = ctx;
    const struct moe_config *c = &b->moe->config;
    const struct moe_part *parts = b->moe->parts;
    size_t rank = c->lora_rank, e = b->block.expert;

    for (size_t i = begin; i < end; i++) {
        enum moe_lora_matrix m = (enum moe_lora_matrix)(i / N_PUTS);
        bool is_b = m == MOE_GATE_B || m == MOE_UP_B || m == MOE_DOWN_B;
        bool shared = is_shared(m);
        uint64_t shape[3];
        float rows[LINE][64];

        if (!b->grads->lora[m])
            continue;
        moe_lora_shape(c, m, shape);
        for (size_t p = 0; p < (shared ? 1 : c->n_parts); p++) {
            float *grad = parts[p].grad[m]; /* [rank, n] */
            size_t first = shared ? 0 : parts[p].first;
            size_t n = shared ? c->hidden : parts[p].n;
            size_t all = is_b ? n : rank;
            size_t at = i % N_PUTS * all / N_PUTS;
            size_t to = (i % N_PUTS + 1) * all / N_PUTS;

            for (size_t j = is_b ? 0 : at; j < (is_b ? rank : to); j++)
                for (size_t q = 1; shared && q < c->n_parts; q++)
                    vec_add(grad + j * n + (is_b ? at : 0),
                            parts[q].grad[m] + j * n + (is_b ? at : 0),
                            is_b ? to - at : n);
            for (size_t j = at; !is_b && j < to; j++)
                put(b->grads, m, (e * rank + j) * shape[2] + first,
                    grad + j * n, n);
            for (size_t cols; is_b && at < to; at += cols) {
                cols = smaller(to - at, LINE);
                for (size_t j = 0, some; j < rank; j += some) {
                    some = smaller(rank - j, 64);
                    for (size_t k = 0; k < some; k++)
                        for (size_t l = 0; l < cols; l++)
                            rows[l][k] = grad[(j + k) * n + at + l];
                    for (size_t l = 0; l < cols; l++)
                        put(b->grads, m,
                            (e * shape[1] + first + at + l) * rank + j, rows[l],
                            some);
                }
            }
        }
    }
}

/* ---- all of it ---- */

/* dX, whole, to grad_input. */
struct rounding {
    uint16_t *to;
    const float *dx;
    size_t hidden;
};

static void
round_rows(void *ctx, size_t begin, size_t end)
{
    const struct rounding *r = ctx;

    cvt_from_f32(r->to + begin * r->hidden, DT_BF16, r->dx + begin * r->hidden,
                 (end - begin) * r->hidden);
}

int
moe_backward(struct moe *moe, const uint16_t *grad_output,
             const struct moe_grads *grads, struct err *err)
{
    const struct moe_config *c = &moe->config;
    struct rounding r = { grads->input, moe->dx, c->hidden };
    struct backward idle = { .moe = moe, .grads = grads };
    const struct moe_saved *saved;

    if (moe_check_weights(moe, err) < 0)
        return -1;
    if (moe->depth == 0)
        return err_set(err, EX_DATAERR,
                       "the cache is empty: no forward was saved");
    saved = &moe->saved[moe->depth - 1];
    if (moe_route_rows(moe, saved->ids, saved->qlen, err) < 0 ||
        moe_pack(moe, false, err) < 0)
        return -1;
    memset(moe->dx, 0, saved->qlen * c->hidden * sizeof(*moe->dx));
    par_for(moe->par, c->n_experts * MOE_N_LORA, MOE_N_LORA, clear_idle, &idle);
    if (grads->weights)
        memset(grads->weights, 0, saved->qlen * c->top_k * sizeof(float));
    for (size_t e = 0; e < c->n_experts; e++) {
        size_t end = moe_first_row(moe, e + 1);

        for (size_t row = moe_first_row(moe, e); row < end;) {
            struct backward b = { moe, saved, grad_output, grads,
                                  moe_block_at(moe, e, row) };

            /* the adapter's are summed over an expert's blocks, then written */
            moe_for_parts(moe, backward_part, &b);
            moe_add_partials(moe, &b.block, moe->dx, NULL);
            if (grads->weights)
                par_for(moe->par, b.block.n, 16, put_weight_grads, &b);
            row += b.block.n;
            if (row == end)
                par_for(moe->par, N_PUTS * MOE_N_LORA, 1, put_grads, &b);
        }
    }
    if (grads->input)
        par_for(moe->par, saved->qlen, 16, round_rows, &r);
    moe->depth--;
    return 0;
}
