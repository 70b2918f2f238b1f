#include "core/model/moe_backward.h"

#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/kernel/mix.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/moe_operator.h"
#include "core/model/moe_part.h"
#include "core/model/moe_route.h"
#include "core/model/moe_team.h"
#include "core/model/moe_weights.h"
#include "core/par.h"

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
    vec_silu_back(h, g, u, da0, n);
    vec_scale(g, w, n);
    vec_scale(u, w, n);
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

/* Columns: 512 rows of them stay in the second cache for all of p's. */
enum { N_OUTER = 6, OUTER_COLS = 64 };

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
backward_part(void *ctx, struct part *part)
{
    struct pass *pass = ctx;

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

/* Of 'hidden' columns, of which every part has a share. */
static bool
is_shared(enum moe_lora_matrix m)
{
    return m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_B;
}

static void
clear_grads(void *ctx, struct part *part)
{
    const struct pass *pass = ctx;

    for (size_t m = 0; m < MOE_N_LORA; m++)
        memset(part->grad[m], 0,
               pass->moe->config.lora_rank *
                   (is_shared((enum moe_lora_matrix)m)
                        ? pass->moe->config.hidden
                        : part->n) *
                   sizeof(float));
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

/* A [rank, width], of which this is columns [first, first + n). */
static void
put_a(const struct pass *pass, enum moe_lora_matrix m, const float *grad,
      size_t first, size_t n)
{
    size_t rank = pass->moe->config.lora_rank;
    uint64_t shape[3];

    moe_lora_shape(&pass->moe->config, m, shape);
    for (size_t j = 0; j < rank; j++)
        put(pass->grads, m, (pass->block.expert * rank + j) * shape[2] + first,
            grad + j * n, n);
}

/* B [width, rank], whose rows [first, first + n) are columns here. */
static void
put_b(const struct pass *pass, enum moe_lora_matrix m, const float *grad,
      size_t first, size_t n)
{
    size_t rank = pass->moe->config.lora_rank;
    uint64_t shape[3];
    float row[64];

    moe_lora_shape(&pass->moe->config, m, shape);
    for (size_t c = 0; c < n; c++)
        for (size_t j = 0, some; j < rank; j += some) {
            some = smaller(rank - j, 64);
            for (size_t i = 0; i < some; i++)
                row[i] = grad[(j + i) * n + c];
            put(pass->grads, m,
                (pass->block.expert * shape[1] + first + c) * rank + j, row,
                some);
        }
}

/* A matrix's gradient of the parts: their sum, or slice by slice. */
static void
put_grads(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pass *pass = ctx;
    const struct moe_config *c = &pass->moe->config;
    const struct part *parts = pass->moe->parts;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        enum moe_lora_matrix m = (enum moe_lora_matrix)i;
        bool is_b = m == MOE_GATE_B || m == MOE_UP_B || m == MOE_DOWN_B;

        if (!pass->grads->lora[m])
            continue;
        if (is_shared(m))
            for (size_t p = 1; p < c->n_parts; p++)
                vec_add(parts[0].grad[m], parts[p].grad[m],
                        c->lora_rank * c->hidden);
        for (size_t p = 0; p < (is_shared(m) ? 1 : c->n_parts); p++)
            (is_b ? put_b : put_a)(pass, m, parts[p].grad[m],
                                   is_shared(m) ? 0 : parts[p].first,
                                   is_shared(m) ? c->hidden : parts[p].n);
    }
}

static void
backward_block(struct pass *pass)
{
    const struct moe *moe = pass->moe;
    size_t k = moe->config.top_k, e = pass->block.expert;

    if (pass->block.row == moe->route.begin[e * k])
        run_parts(pass->moe, clear_grads, pass);
    run_parts(pass->moe, backward_part, pass);
    add_partials(pass, moe->dx, false);
    weight_grads(pass);
    if (pass->block.row + pass->block.n == moe->route.begin[(e + 1) * k])
        par_for(moe->par, MOE_N_LORA, 1, put_grads, pass);
}

/* ---- all of it ---- */

static void
clear_outputs(struct pass *pass)
{
    const struct moe_config *c = &pass->moe->config;
    const struct moe_grads *g = pass->grads;
    size_t size = dtype_table[g->lora_dtype].bits / 8;

    memset(pass->moe->dx, 0, pass->batch.qlen * c->hidden * sizeof(float));
    for (size_t m = 0; m < MOE_N_LORA; m++)
        if (g->lora[m])
            memset(g->lora[m], 0,
                   moe_lora_numbers(c, (enum moe_lora_matrix)m) * size);
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
