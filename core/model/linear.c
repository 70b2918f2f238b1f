/* SPDX-License-Identifier: ISC */
#include "core/model/linear.h"

#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/model/engine.h"
#include "core/model/lora.h"
#include "core/model/model.h"
#include "core/model/tables.h"

struct gemm_job
linear_job(const struct linear *l, float *y, bool add)
{
    return (struct gemm_job){
        .w = { .weight = l->w, .n = l->out, .k = l->in, .by_k = l->by_k },
        .c = y,
        .ldc = l->out,
        .end = { .bias = l->bias, .accumulate = add },
    };
}

struct gemm_job
linear_back_job(const struct linear *l, float *dx, bool add)
{
    return (struct gemm_job){
        .w = { .weight = l->w, .n = l->in, .k = l->out, .by_k = !l->by_k },
        .c = dx,
        .ldc = l->in,
        .end = { .accumulate = add },
    };
}

/* Products by gemm_int8(), of which x [n_rows, k] is rounded. */
static void
linear_int8(struct engine *e, const struct gemm_job *jobs, size_t n,
            const float *x, size_t k, size_t n_rows)
{
    int8_t *rounded = (int8_t *)e->rounded;

    gemm_x_int8(e->gemm, rounded, e->row_scale, x, DT_F32, k, n_rows, k);
    gemm_int8(e->gemm, jobs, n, rounded, e->row_scale, gemm_ld_int8(k), n_rows);
}

struct rounding {
    struct engine *e;
    const float *x;
    size_t k;
};

static void
round_rows(void *ctx, size_t begin, size_t end)
{
    const struct rounding *r = ctx;

    for (size_t i = begin; i < end; i++) {
        uint16_t *rounded = r->e->rounded + i * r->k; /* as in a file */

        cvt_from_f32(rounded, DT_BF16, r->x + i * r->k, r->k);
        cvt_to_f32(r->e->widened + i * r->k, rounded, DT_BF16, r->k);
    }
}

/* Is a prompt's product that of its inputs, rounded and widened again?  That of
 * a generated token always is. */
static bool
is_widened(const struct gemm_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (jobs[i].w.weight.dtype != DT_BF16)
            return false;
    return !gemm_bf16_is_native();
}

/* Rows that are all of prompts or all generated. */
static void
products(struct engine *e, const struct gemm_job *jobs, size_t n,
         const float *x, size_t n_rows, bool generated)
{
    size_t k = jobs->w.k;

    if (jobs->w.weight.dtype == DT_I8) {
        linear_int8(e, jobs, n, x, k, n_rows);
    } else if (e->options.compute == COMPUTE_F32) {
        gemm_exact(e->gemm, jobs, n, x, k, n_rows);
    } else if (generated || is_widened(jobs, n)) {
        par_for(e->par, n_rows, 4, round_rows, &(struct rounding){ e, x, k });
        gemm_exact(e->gemm, jobs, n, e->widened, k, n_rows);
    } else {
        gemm_to_bf16(e->gemm, e->rounded, x, k, n_rows, k);
        gemm_bf16(e->gemm, jobs, n, e->rounded, NULL, gemm_ld_bf16(k), n_rows);
    }
}

/* Some consecutive rows and the layers without their adapters. */
static void
apply_rows(struct engine *e, const struct apply *to, size_t n, const float *x,
           size_t row, size_t n_rows, bool generated)
{
    struct gemm_job jobs[MAX_APPLY];

    for (size_t i = 0; i < n; i++)
        jobs[i] = linear_job(to[i].linear, to[i].y + row * to[i].linear->out,
                             to[i].add);
    products(e, jobs, n, x + row * jobs->w.k, n_rows, generated);
}

size_t
linear_alike(const struct engine *e, const struct chunk *chunk, size_t *span)
{
    const struct span *spans = chunk->spans, *first = &spans[*span];
    size_t n = 0;

    for (; *span < chunk->n_spans; ++*span) {
        if (e->options.compute != COMPUTE_F32 &&
            spans[*span].generated != first->generated)
            break;
        n += spans[*span].n;
    }
    return n;
}

void
linear_dense(struct engine *e, const struct chunk *chunk,
             const struct apply *to, size_t n, const float *x)
{
    for (size_t i = 0; i < chunk->n_spans;) {
        const struct span *span = &chunk->spans[i];
        size_t n_rows = linear_alike(e, chunk, &i);

        apply_rows(e, to, n, x, span->row, n_rows, span->generated);
    }
}

void
linear_apply(struct engine *e, const struct chunk *chunk,
             const struct apply *to, size_t n, const float *x)
{
    const struct apply *left = to;
    struct apply without_table[MAX_APPLY];
    size_t n_left = n;

    if (e->model->tables) {
        n_left = tables_apply(e, chunk, to, n, x, without_table);
        left = without_table;
    }
    if (n_left > 0)
        linear_dense(e, chunk, left, n_left, x);
    for (size_t i = 0; i < n; i++)
        lora_apply(e, &to[i], x, chunk->n_rows);
}

void
linear_rows(struct engine *e, const struct apply *to, size_t n, const float *x,
            size_t n_rows, bool generated)
{
    apply_rows(e, to, n, x, 0, n_rows, generated);
    for (size_t i = 0; i < n; i++)
        lora_apply(e, &to[i], x, n_rows);
}

void
linear_some(struct engine *e, const struct apply_some *to, size_t n,
            const float *x, size_t n_rows, bool generated)
{
    struct gemm_job jobs[GEMM_MAX_JOBS];

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        jobs[i] =
            linear_job(to[i].apply.linear, to[i].apply.y, to[i].apply.add);
        jobs[i].row = to[i].row;
        jobs[i].m = to[i].n;
    }
    products(e, jobs, n, x, n_rows, generated);
    for (size_t i = 0; i < n; i++)
        lora_apply(e, &to[i].apply, x + to[i].row * to[i].apply.linear->in,
                   to[i].n);
}

void
linear_exact(struct engine *e, const struct apply *to, const float *x,
             size_t n_rows)
{
    struct gemm_job job = linear_job(to->linear, to->y, to->add);

    gemm_exact(e->gemm, &job, 1, x, to->linear->in, n_rows);
    lora_apply(e, to, x, n_rows);
}

/* ---- back ---- */

struct scaling {
    const struct linear *l;
    const float *dy;
    float *scaled;
};

static void
scale_rows(void *ctx, size_t begin, size_t end)
{
    const struct scaling *s = ctx;
    size_t n = s->l->out;

    for (size_t i = begin; i < end; i++)
        for (size_t k = 0; k < n; k++)
            s->scaled[i * n + k] = s->dy[i * n + k] * s->l->w.scale[k];
}

static void
back_int8(struct engine *e, const struct linear *l, const struct gemm_job *job,
          const float *dy, size_t n_rows)
{
    par_for(e->par, n_rows, 4, scale_rows,
            &(struct scaling){ l, dy, e->widened });
    linear_int8(e, job, 1, e->widened, l->out, n_rows);
}

void
linear_backward(struct engine *e, const struct linear *l, float *dx, bool add,
                const float *dy, float *low, size_t n_rows)
{
    struct gemm_job job = linear_back_job(l, dx, add);
    const struct lora *lora = l->lora;
    size_t k = l->out;

    if (dx && l->w.dtype == DT_I8) {
        back_int8(e, l, &job, dy, n_rows);
    } else if (dx && e->options.compute == COMPUTE_F32) {
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
