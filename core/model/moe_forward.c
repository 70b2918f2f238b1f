#include "core/model/moe_forward.h"

#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/kernel/mix.h"
#include "core/kernel/vec.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/moe_operator.h"
#include "core/model/moe_part.h"
#include "core/model/moe_route.h"
#include "core/model/moe_team.h"
#include "core/model/moe_weights.h"
#include "core/par.h"

/* What is added to a base product and where it goes. */
struct end {
    const struct pass *pass;
    const float *p, *bt; /* s x A^T [block, rank] and B^T [rank, n] */
    size_t ldp, n;
    uint16_t *to; /* gate, up: rows ld apart */
    size_t ld;
    float *output; /* down: [qlen, n]; NULL: a partial sum */
};

static void
add_lora(const struct end *e, float *t, size_t ldt, size_t row, size_t n_rows,
         size_t col, size_t n_cols)
{
    const struct mix m = {
        .y = t,
        .w = e->bt + col,
        .p = e->p + row * e->ldp,
        .ldy = ldt,
        .ldw = e->n,
        .ldp = e->ldp,
        .rows = e->pass->moe->config.lora_rank,
        .cols = n_cols,
        .n = n_rows,
        .w_dtype = DT_F32,
        .add = true,
    };

    mix(&m);
}

static void
end_gate(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
         size_t n_cols, int thread)
{
    const struct end *e = ctx;

    (void)thread;
    add_lora(e, t, ldt, row, n_rows, col, n_cols);
    for (size_t i = 0; i < n_rows; i++)
        cvt_from_f32(e->to + (row + i) * e->ld + col, DT_BF16, t + i * ldt,
                     n_cols);
}

static void
end_down(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
         size_t n_cols, int thread)
{
    const struct end *e = ctx;

    (void)thread;
    add_lora(e, t, ldt, row, n_rows, col, n_cols);
    for (size_t i = 0; i < n_rows && e->output; i++)
        vec_axpy(e->output + row_token(e->pass, row + i) * e->n + col,
                 row_weight(e->pass, row + i), t + i * ldt, n_cols);
}

/* B [n, rank] to B^T [rank, n] in f32, little-endian, as mix() reads it. */
struct turning {
    float *to;
    const uint16_t *b;
    size_t n, rank;
};

static void
turn_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct turning *t = ctx;
    float row[64];

    (void)thread;
    for (size_t i = begin; i < end; i++)
        for (size_t j = 0, some; j < t->rank; j += some) {
            some = smaller(t->rank - j, 64);
            cvt_to_f32(row, t->b + i * t->rank + j, DT_BF16, some);
            for (size_t k = 0; k < some; k++)
                put_le32(&t->to[(j + k) * t->n + i], f32_bits(row[k]));
        }
}

static void
transpose_b(struct part *part, float *to, const uint16_t *b, size_t n,
            size_t rank)
{
    struct turning t = { to, b, n, rank };

    par_for(gemm_par(part->gemm), n, 256, turn_rows, &t);
}

static void
gate_up(struct pass *pass, struct part *part, uint16_t *gate, uint16_t *up,
        size_t ld)
{
    size_t r = pass->moe->config.lora_rank, n = part->n;
    struct end ends[2] = {
        { .pass = pass, .p = part->ug, .bt = part->bt, .to = gate },
        { .pass = pass, .p = part->ug + r, .bt = part->bt + r * n, .to = up },
    };
    struct gemm_job jobs[2] = { base_job(pass, part, K_GATE),
                                base_job(pass, part, K_UP) };

    transpose_b(part, part->bt, lora_of(pass, MOE_GATE_B) + part->first * r, n,
                r);
    transpose_b(part, part->bt + r * n,
                lora_of(pass, MOE_UP_B) + part->first * r, n, r);
    for (size_t i = 0; i < 2; i++) {
        ends[i].ldp = 2 * r;
        ends[i].n = n;
        ends[i].ld = ld;
        jobs[i].end.hook = end_gate;
        jobs[i].end.ctx = &ends[i];
    }
    base_products(pass, part, jobs, 2, part->x);
}

/* h = silu(gate) * up, rounded once. */
struct activation {
    uint16_t *h;
    const uint16_t *gate, *up;
    size_t n, ldh, ld;
};

static void
activate(void *ctx, size_t begin, size_t end, int thread)
{
    const struct activation *a = ctx;
    float g[256], u[256];

    (void)thread;
    for (size_t i = begin; i < end; i++)
        for (size_t c = 0, n; c < a->n; c += n) {
            n = smaller(a->n - c, 256);
            cvt_to_f32(g, a->gate + i * a->ld + c, DT_BF16, n);
            cvt_to_f32(u, a->up + i * a->ld + c, DT_BF16, n);
            vec_silu_mul(g, u, n);
            cvt_from_f32(a->h + i * a->ldh + c, DT_BF16, g, n);
        }
}

static void
down(struct pass *pass, struct part *part)
{
    size_t r = pass->moe->config.lora_rank, hidden = pass->moe->config.hidden;
    struct end e = {
        .pass = pass,
        .p = part->ud,
        .bt = part->bt,
        .ldp = r,
        .n = hidden,
        .output = part->partial ? NULL : pass->output,
    };
    struct gemm_job job = base_job(pass, part, K_DOWN);

    lora_down(pass, part);
    transpose_b(part, part->bt, lora_of(pass, MOE_DOWN_B), hidden, r);
    job.end.hook = end_down;
    job.end.ctx = &e;
    job.c = part->partial;
    job.ldc = hidden;
    base_products(pass, part, &job, 1, part->h);
}

static void
forward_part(void *ctx, struct part *part)
{
    struct pass *pass = ctx;
    size_t ld = pass->moe->config.intermediate;
    size_t at = pass->block.row * ld + part->first;
    struct activation a = {
        part->h, part->gate, part->up, part->n, gemm_ld_bf16(part->n), part->n
    };
    uint16_t *gate = part->gate, *up = part->up;

    if (pass->gate) {
        a.gate = gate = pass->gate + at;
        a.up = up = pass->up + at;
        a.ld = ld;
    }
    gather(pass, part, part->x, pass->batch.input);
    lora_gate_up(pass, part);
    gate_up(pass, part, gate, up, a.ld);
    par_for(gemm_par(part->gemm), pass->block.n, 4, activate, &a);
    down(pass, part);
}

void
forward_block(struct pass *pass)
{
    run_parts(pass->moe, forward_part, pass);
    add_partials(pass, pass->output, true);
}
