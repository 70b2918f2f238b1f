/*
 * The backward pass.  For a block's rows, with dY the output's gradient:
 *   da0 = dY W_down + s (dY B_d) A_d     of h, before the routing weight w
 *   grad_w = <da0, h>,  da = w da0
 *   dg = da up silu'(gate),  du = da silu(gate)
 *   dX += dg W_gate + s (dg B_g) A_g + du W_up + s (du B_u) A_u
 *   dA = s (dy B)^T x,  dB = dy^T s (x A^T)     of a layer x -> y
 */
#include <math.h>
#include <string.h>

#include "cmd/moe-sft/moe_impl.h"
#include "core/kernel/cvt.h"
#include "core/kernel/mix.h"
#include "core/kernel/vec.h"

/* ---- the ends of products ---- */

struct end {
    const struct pass *pass;
    struct part *part;
    const float *p;    /* [block, rank] */
    const uint16_t *a; /* [rank, n] */
    size_t lda;
};

static void
add_lora(const struct end *e, float *t, size_t ldt, size_t row, size_t n_rows,
         size_t col, size_t n_cols)
{
    size_t r = e->pass->moe->config.lora_rank;
    const struct mix m = {
        .y = t,
        .w = e->a + col,
        .p = e->p + row * r,
        .ldy = ldt,
        .ldw = e->lda,
        .ldp = r,
        .rows = r,
        .cols = n_cols,
        .n = n_rows,
        .w_dtype = DT_BF16,
        .add = true,
    };

    mix(&m);
}

/* From da0 to dg and du; returns <da0, h>. */
static float
activation_back(const struct pass *pass, struct part *part, const float *da0,
                size_t row, size_t col, size_t n)
{
    size_t at = (pass->block.row + row) * pass->moe->config.intermediate +
                part->first + col;
    size_t to = row * gemm_ld_bf16(part->n) + col;
    float g[GEMM_PANEL], u[GEMM_PANEL], h[GEMM_PANEL], w;

    w = row_weight(pass, row);
    cvt_to_f32(g, pass->gate + at, DT_BF16, n);
    cvt_to_f32(u, pass->up + at, DT_BF16, n);
    for (size_t i = 0; i < n; i++) {
        float sig = 1 / (1 + expf(-g[i])), silu = g[i] * sig;

        h[i] = silu * u[i];
        g[i] = w * da0[i] * u[i] * (sig + silu * (1 - sig));
        u[i] = w * da0[i] * silu;
    }
    cvt_from_f32(part->h + to, DT_BF16, h, n);
    cvt_from_f32(part->dg + to, DT_BF16, g, n);
    cvt_from_f32(part->du + to, DT_BF16, u, n);
    return vec_dot(da0, h, n);
}

static void
end_da0(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
        size_t n_cols, int thread)
{
    const struct end *e = ctx;
    struct part *part = e->part;
    size_t panels = (part->n - 1) / GEMM_PANEL + 1;

    (void)thread;
    add_lora(e, t, ldt, row, n_rows, col, n_cols);
    for (size_t i = 0; i < n_rows; i++)
        part->gw[(row + i) * panels + col / GEMM_PANEL] =
            activation_back(e->pass, part, t + i * ldt, row + i, col, n_cols);
}

static void
end_dx(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
       size_t n_cols, int thread)
{
    const struct end *e = ctx;
    const struct moe *moe = e->pass->moe;

    (void)thread;
    add_lora(e, t, ldt, row, n_rows, col, n_cols);
    for (size_t i = 0; i < n_rows && !e->part->partial; i++)
        vec_add(moe->dx + row_token(e->pass, row + i) * moe->config.hidden +
                    col,
                t + i * ldt, n_cols);
}

/* ---- the products ---- */

/* s dy B of columns [at, at + n) of dy: B is [.., rank], B^T's rows its k. */
static void
lora_back(struct pass *pass, struct part *part, float *c,
          enum moe_lora_matrix b, size_t at, size_t n, uint16_t *dy)
{
    size_t r = pass->moe->config.lora_rank;
    struct gemm_matrix w = {
        .data = lora_of(pass, b) + at * r,
        .dtype = DT_BF16,
        .n = r,
        .k = n,
        .ld = r,
        .by_k = true,
    };

    lora_product(pass, part, c, &w, dy);
}

static void
down_back(struct pass *pass, struct part *part)
{
    struct end e = {
        .pass = pass,
        .part = part,
        .p = part->qd,
        .a = lora_of(pass, MOE_DOWN_A) + part->first,
        .lda = pass->moe->config.intermediate,
    };
    struct gemm_job job = base_job(pass, part, K_DOWN_T);

    lora_back(pass, part, part->qd, MOE_DOWN_B, 0, pass->moe->config.hidden,
              part->dy);
    job.end.hook = end_da0;
    job.end.ctx = &e;
    base_products(pass, part, &job, 1, part->dy);
}

/* Adds a layer's share of dX. */
static void
input_back(struct pass *pass, struct part *part, enum kind kind, uint16_t *dy,
           const float *p, enum moe_lora_matrix a, bool add)
{
    size_t hidden = pass->moe->config.hidden;
    struct end e = { pass, part, p, lora_of(pass, a), hidden };
    struct gemm_job job = base_job(pass, part, kind);

    job.c = part->partial;
    job.ldc = hidden;
    job.end.accumulate = part->partial && add;
    job.end.hook = end_dx;
    job.end.ctx = &e;
    base_products(pass, part, &job, 1, dy);
}

/* ---- gradients of the adapter ---- */

/* grad += p^T w, p [block, rank] (times the routing weight), w [block, cols] */
struct outer {
    const float *p;
    size_t ldp;
    bool weighted;
    const uint16_t *w;
    size_t cols;
    enum moe_lora_matrix m;
};

enum { N_OUTER = 6, OUTER_COLS = 256 };

struct outers {
    const struct pass *pass;
    struct part *part;
    struct outer list[N_OUTER];
};

static float *
transposed(const struct outers *o, size_t i)
{
    return o->part->pt + i * o->pass->moe->config.lora_rank * o->pass->block.n;
}

static void
transpose_p(void *ctx, size_t begin, size_t end, int thread)
{
    const struct outers *o = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const struct outer *l = &o->list[i];
        float *to = transposed(o, i);

        for (size_t r = 0; r < o->pass->block.n; r++) {
            float w = l->weighted ? row_weight(o->pass, r) : 1;

            for (size_t j = 0; j < o->pass->moe->config.lora_rank; j++)
                to[j * o->pass->block.n + r] = w * l->p[r * l->ldp + j];
        }
    }
}

static size_t
outer_chunks(const struct outer *l)
{
    return (l->cols - 1) / OUTER_COLS + 1;
}

static void
add_outer(void *ctx, size_t begin, size_t end, int thread)
{
    const struct outers *o = ctx;
    size_t rank = o->pass->moe->config.lora_rank;

    (void)thread;
    for (size_t c = begin; c < end; c++) {
        size_t i = 0, at = c;
        const struct outer *l;
        struct mix m;

        for (; at >= outer_chunks(&o->list[i]); i++)
            at -= outer_chunks(&o->list[i]);
        l = &o->list[i];
        at *= OUTER_COLS;
        m = (struct mix){
            .y = o->part->grad[l->m] + at,
            .w = l->w + at,
            .p = transposed(o, i),
            .ldy = l->cols,
            .ldw = gemm_ld_bf16(l->cols),
            .ldp = o->pass->block.n,
            .rows = o->pass->block.n,
            .cols = smaller(l->cols - at, OUTER_COLS),
            .n = rank,
            .w_dtype = DT_BF16,
            .add = true,
        };
        mix(&m);
    }
}

static void
lora_grads(struct pass *pass, struct part *part)
{
    size_t r = pass->moe->config.lora_rank, hidden = pass->moe->config.hidden;
    size_t n = part->n, chunks = 0;
    struct outers o = {
        pass,
        part,
        {
            { part->pg, r, false, part->x, hidden, MOE_GATE_A },
            { part->ug, 2 * r, false, part->dg, n, MOE_GATE_B },
            { part->pu, r, false, part->x, hidden, MOE_UP_A },
            { part->ug + r, 2 * r, false, part->du, n, MOE_UP_B },
            { part->qd, r, true, part->h, n, MOE_DOWN_A },
            { part->ud, r, true, part->dy, hidden, MOE_DOWN_B },
        },
    };

    for (size_t i = 0; i < N_OUTER; i++)
        chunks += outer_chunks(&o.list[i]);
    par_for(gemm_par(part->gemm), N_OUTER, 1, transpose_p, &o);
    par_for(gemm_par(part->gemm), chunks, 1, add_outer, &o);
}

/* ---- a block ---- */

static void
backward_part(struct pass *pass, struct part *part)
{
    gather(pass, part, part->x, pass->batch.input);
    gather(pass, part, part->dy, pass->grad_output);
    down_back(pass, part);
    lora_gate_up(pass, part);
    lora_down(pass, part);
    lora_back(pass, part, part->pg, MOE_GATE_B, part->first, part->n, part->dg);
    lora_back(pass, part, part->pu, MOE_UP_B, part->first, part->n, part->du);
    input_back(pass, part, K_GATE_T, part->dg, part->pg, MOE_GATE_A, false);
    input_back(pass, part, K_UP_T, part->du, part->pu, MOE_UP_A, true);
    lora_grads(pass, part);
}

static void
weight_grads(struct pass *pass)
{
    const struct moe *moe = pass->moe;

    for (size_t i = 0; i < pass->block.n && pass->grads->weights; i++) {
        float sum = 0;

        for (size_t p = 0; p < moe->config.n_parts; p++) {
            size_t panels = (moe->parts[p].n - 1) / GEMM_PANEL + 1;

            for (size_t c = 0; c < panels; c++)
                sum += moe->parts[p].gw[i * panels + c];
        }
        pass->grads->weights[moe->route.slots[pass->block.row + i]] = sum;
    }
}

/* ---- an expert ---- */

static void
clear_grads(struct pass *pass, struct part *part)
{
    for (size_t m = 0; m < MOE_N_LORA; m++)
        memset(part->grad[m], 0,
               pass->moe->config.lora_rank *
                   (m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_B
                        ? pass->moe->config.hidden
                        : part->n) *
                   sizeof(float));
}

static void
put(const struct moe_grads *g, enum moe_lora_matrix m, size_t at, float v)
{
    if (g->lora_dtype == DT_F32)
        ((float *)g->lora[m])[at] = v;
    else
        cvt_from_f32((uint16_t *)g->lora[m] + at, DT_BF16, &v, 1);
}

/* What the parts have of columns [first, first + n) of the matrix, which all
 * of them have ('shared') or one. */
static void
put_grad(struct pass *pass, enum moe_lora_matrix m, const struct part *parts,
         size_t n_parts, size_t first, size_t n)
{
    size_t rank = pass->moe->config.lora_rank, begin;
    uint64_t shape[3];
    bool is_b = m == MOE_GATE_B || m == MOE_UP_B || m == MOE_DOWN_B;

    moe_lora_shape(&pass->moe->config, m, shape);
    begin = pass->block.expert * shape[1] * shape[2];
    for (size_t j = 0; j < rank; j++)
        for (size_t c = 0; c < n; c++) {
            size_t at =
                is_b ? (first + c) * rank + j : j * shape[2] + first + c;
            float sum = parts[0].grad[m][j * n + c];

            for (size_t p = 1; p < n_parts; p++)
                sum += parts[p].grad[m][j * n + c];
            put(pass->grads, m, begin + at, sum);
        }
}

static void
put_grads(struct pass *pass)
{
    const struct moe *moe = pass->moe;

    for (enum moe_lora_matrix m = 0; m < MOE_N_LORA; m++) {
        if (!pass->grads->lora[m])
            continue;
        if (m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_B)
            put_grad(pass, m, moe->parts, moe->config.n_parts, 0,
                     moe->config.hidden);
        else
            for (size_t p = 0; p < moe->config.n_parts; p++)
                put_grad(pass, m, &moe->parts[p], 1, moe->parts[p].first,
                         moe->parts[p].n);
    }
}

static void
backward_block(struct pass *pass)
{
    const struct moe *moe = pass->moe;
    size_t k = moe->config.top_k, e = pass->block.expert;

    if (pass->block.row == moe->route.begin[e * k])
        run_parts(pass, clear_grads);
    run_parts(pass, backward_part);
    add_partials(pass, moe->dx, false);
    weight_grads(pass);
    if (pass->block.row + pass->block.n == moe->route.begin[(e + 1) * k])
        put_grads(pass);
}

/* ---- all of it ---- */

static void
clear_outputs(struct pass *pass)
{
    const struct moe_config *c = &pass->moe->config;
    const struct moe_grads *g = pass->grads;
    size_t size = dtype_table[g->lora_dtype].bits / 8;

    memset(pass->moe->dx, 0, pass->batch.qlen * c->hidden * sizeof(float));
    for (size_t m = 0; m < MOE_N_LORA; m++) {
        uint64_t shape[3];

        moe_lora_shape(c, m, shape);
        if (g->lora[m])
            memset(g->lora[m], 0, shape[0] * shape[1] * shape[2] * size);
    }
    if (g->weights)
        memset(g->weights, 0, pass->batch.qlen * c->top_k * sizeof(float));
}

static void
round_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *pass = ctx;
    size_t hidden = pass->moe->config.hidden;

    (void)thread;
    cvt_from_f32(pass->grads->input + begin * hidden, DT_BF16,
                 pass->moe->dx + begin * hidden, (end - begin) * hidden);
}

void
backward_pass(struct pass *pass)
{
    clear_outputs(pass);
    for_each_block(pass, backward_block);
    if (pass->grads->input)
        par_for(pass->moe->par, pass->batch.qlen, 16, round_rows, pass);
}
