#include "core/model/linear.h"

#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/model/engine.h"
#include "core/model/lora.h"
#include "core/model/model.h"
#include "core/model/tables.h"

struct gemm_job
linear_job(const struct linear *l, float *y, bool add)
{
    return (struct gemm_job){
        .w = { .data = l->w,
               .dtype = l->dtype,
               .n = l->rows,
               .k = l->cols,
               .ld = l->cols },
        .c = y,
        .ldc = l->rows,
        .end = { .bias = l->bias, .accumulate = add },
    };
}

struct rounding {
    struct engine *e;
    const float *x;
    size_t k;
};

static void
round_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct rounding *r = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        uint16_t *rounded = r->e->rounded + i * r->k; /* as in a file */

        cvt_from_f32(rounded, DT_BF16, r->x + i * r->k, r->k);
        cvt_to_f32(r->e->widened + i * r->k, rounded, DT_BF16, r->k);
    }
}

/* Rows through the exact class, their numbers rounded to bf16 before. */
static void
apply_rounded(struct engine *e, const struct gemm_job *jobs, size_t n,
              const float *x, size_t n_rows)
{
    struct rounding r = { e, x, jobs[0].w.k };

    par_for(n_rows > 1 ? e->par : NULL, n_rows, 4, round_rows, &r);
    gemm_exact(e->gemm, jobs, n, e->widened, r.k, n_rows);
}

/* Some consecutive rows, all of prompts or all generated. */
static void
apply_rows(struct engine *e, const struct apply *to, size_t n, const float *x,
           size_t row, size_t n_rows, bool generated)
{
    struct gemm_job jobs[MAX_APPLY];
    size_t k = to[0].linear->cols;

    for (size_t i = 0; i < n; i++)
        jobs[i] = linear_job(to[i].linear, to[i].y + row * to[i].linear->rows,
                             to[i].add);
    if (e->options.compute == COMPUTE_F32) {
        gemm_exact(e->gemm, jobs, n, x + row * k, k, n_rows);
    } else if (generated) {
        apply_rounded(e, jobs, n, x + row * k, n_rows);
    } else {
        gemm_to_bf16(e->gemm, e->rounded, x + row * k, k, n_rows, k);
        gemm_bf16(e->gemm, jobs, n, e->rounded, NULL, gemm_ld_bf16(k), n_rows);
    }
}

static void
apply_base(struct engine *e, const struct chunk *chunk, const struct apply *to,
           size_t n, const float *x)
{
    const struct span *spans = chunk->spans;
    struct apply rest[MAX_APPLY];

    if (e->model->tables) {
        n = tables_apply(e, to, n, x, chunk->n_rows, rest);
        to = rest;
        if (n == 0)
            return;
    }

    if (e->options.compute == COMPUTE_F32) {
        apply_rows(e, to, n, x, 0, chunk->n_rows, false);
        return;
    }
    for (size_t i = 0, end; i < chunk->n_spans; i = end) {
        size_t n_rows = 0;

        for (end = i;
             end < chunk->n_spans && spans[end].generated == spans[i].generated;
             end++)
            n_rows += spans[end].n;
        apply_rows(e, to, n, x, spans[i].row, n_rows, spans[i].generated);
    }
}

static void
add_loras(struct engine *e, const struct apply *to, size_t n, const float *x,
          size_t n_rows)
{
    for (size_t i = 0; i < n; i++)
        lora_apply(e, &to[i], x, n_rows);
}

void
linear_apply(struct engine *e, const struct chunk *chunk,
             const struct apply *to, size_t n, const float *x)
{
    apply_base(e, chunk, to, n, x);
    add_loras(e, to, n, x, chunk->n_rows);
}

/* An expert gets few rows of a chunk: packing it would not pay, and without
 * that a row's bits do not depend on where it comes from. */
void
linear_rows(struct engine *e, const struct apply *to, size_t n, const float *x,
            size_t n_rows)
{
    apply_rows(e, to, n, x, 0, n_rows, true);
    add_loras(e, to, n, x, n_rows);
}

void
linear_exact(struct engine *e, const struct apply *to, const float *x,
             size_t n_rows)
{
    struct gemm_job job = linear_job(to->linear, to->y, to->add);

    gemm_exact(e->gemm, &job, 1, x, to->linear->cols, n_rows);
    lora_apply(e, to, x, n_rows);
}
