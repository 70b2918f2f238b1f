/* SPDX-License-Identifier: ISC */
/*
 * The adapter's gradients: sums over the tokens of a slice, and over slices.
 *
 * A slice's sum is added to those before it as a binary counter carries:
 * after slice s there are as many copies as s + 1 has bits, each the sum of
 * as many slices as its bit says.  Slices that begin later, as of another rank,
 * carry only within their range (lm_ranks.c).
 */
#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/train/lm_impl.h"
#include "core/model/train/loss.h"

/* Columns of a gradient that one task sums: 512 rows of them (128 KiB) stay in
 * the L2 cache for all of p's. */
enum { COLS = 64 };

/* grad [rank, cols] += p^T w, p_t [rank, rows], w [rows, cols]. */
struct outer {
    const struct lm *lm;
    size_t first; /* of copies' numbers */
    const float *p_t, *w;
    size_t rows, cols;
};

/* Columns [col, col + n) of copy i's [rank, cols] are added to copy i - 1's. */
static void
carry(const struct outer *o, size_t i, size_t col, size_t n)
{
    const struct lm_work *w = o->lm->work;
    float *from = w->sums.copies + i * o->lm->n_params + o->first + col;
    float *to = from - o->lm->n_params;

    for (size_t r = 0; r < o->lm->lora.rank; r++)
        vec_add(to + r * o->cols, from + r * o->cols, n);
}

static void
sum_columns(const struct outer *o, size_t col)
{
    const struct lm_work *w = o->lm->work;
    size_t n = smaller(o->cols - col, COLS);

    for (size_t i = 0; i < w->n_segments; i++) {
        const struct lm_segment *s = &w->segments[i];
        size_t copy = lm_n_blocks(w->sums.first_slice, s->slice);
        struct weighted_sum sum = {
            .y = w->sums.copies + copy * o->lm->n_params + o->first + col,
            .w = o->w + s->at * o->cols + col,
            .p = o->p_t + s->at,
            .ldy = o->cols,
            .ldw = o->cols,
            .ldp = o->rows,
            .rows = s->n_at,
            .cols = n,
            .n = o->lm->lora.rank,
            .w_dtype = DT_F32,
            .native = true,
            .add = !s->is_first,
        };

        weighted_sum(&sum);
        for (size_t bit = 1; s->is_last && (s->slice & bit) &&
                             s->slice + 1 >= w->sums.first_slice + 2 * bit;
             bit *= 2)
            carry(o, copy--, col, n);
    }
}

static void
sum_tasks(void *ctx, size_t begin, size_t end)
{
    const struct outer *outers = ctx;

    for (size_t i = begin; i < end; i++) {
        const struct outer *o = outers;
        size_t at = i * COLS;

        if (at >= (o->cols + COLS - 1) / COLS * COLS) {
            at -= (o->cols + COLS - 1) / COLS * COLS;
            o++;
        }
        sum_columns(o, at);
    }
}

struct transposing {
    const struct lm_work *w;
    size_t n_rows, rank;
};

static void
transpose_rows(void *ctx, size_t begin, size_t end)
{
    const struct transposing *t = ctx;

    for (size_t i = begin; i < end; i++)
        for (size_t k = 0; k < t->rank; k++) {
            t->w->sums.low_t[k * t->n_rows + i] =
                t->w->grads.low[i * t->rank + k];
            t->w->sums.high_t[k * t->n_rows + i] =
                t->w->sums.high[i * t->rank + k];
        }
}

/* Which of a layer's rows the segments have: all of the chunk, or those that an
 * expert gets. */
static void
find_rows(const struct lm_work *w, const struct linear_grads *g)
{
    size_t at = 0;

    for (size_t i = 0; i < w->n_segments; i++) {
        struct lm_segment *s = &w->segments[i];

        s->at = g->slots ? at : s->row;
        s->n_at = g->slots ? 0 : s->n;
        if (g->slots)
            for (; at < g->n_rows && g->slots[at] / g->per_row < s->row + s->n;
                 at++)
                s->n_at++;
    }
}

void
lm_sums_add(void *ctx, const struct linear_grads *g)
{
    struct lm *lm = ctx;
    struct lm_work *w = lm->work;
    const struct lora *lora = g->linear->lora;
    const struct lm_tensor *t =
        &lm->tensors[w->adapted[lora - w->parts].tensor];
    size_t n = g->n_rows, rank = lm->lora.rank;
    struct gemm_job job = linear_job(&lora->a, w->sums.high, false);
    struct outer outers[] = {
        { lm, t[0].first, w->sums.low_t, g->x, n, lora->a.in },
        { lm, t[1].first, w->sums.high_t, g->dy, n, lora->b.out },
    };

    find_rows(w, g);
    gemm_exact(w->engine->gemm, &job, 1, g->x, lora->a.in, n);
    vec_scale(w->sums.high, lora->scale, n * rank);
    par_for(w->par, n, 64, transpose_rows, &(struct transposing){ w, n, rank });
    par_for(w->par,
            (lora->a.in + COLS - 1) / COLS + (lora->b.out + COLS - 1) / COLS, 1,
            sum_tasks, outers);
}

/* B's gradients, [rank, out] so far. */
static void
transpose_b(void *ctx, size_t begin, size_t end, int thread)
{
    const struct lm *lm = ctx;
    const struct lm_work *w = lm->work;

    for (size_t i = begin; i < end; i++) {
        const struct lm_tensor *t = &lm->tensors[w->adapted[i].tensor + 1];
        size_t rank = t->cols, out = t->rows;
        float *b = w->sums.copies + t->first;
        float *b_t = w->sums.b_t + (size_t)thread * rank * w->sums.widest;

        memcpy(b_t, b, rank * out * sizeof(*b));
        for (size_t k = 0; k < out; k++)
            for (size_t r = 0; r < rank; r++)
                b[k * rank + r] = b_t[r * out + k];
    }
}

void
lm_sums_finish(struct lm *lm, size_t n_slices)
{
    struct lm_work *w = lm->work;

    if (ranks_count(w->options.ranks) > 1)
        lm_ranks_add(lm, n_slices);
    else
        for (size_t i = lm_n_blocks(0, n_slices) - 1; i > 0; i--)
            grad_add(w->sums.copies + (i - 1) * lm->n_params,
                     w->sums.copies + i * lm->n_params, lm->n_params, w->par);
    par_for_thread(w->par, w->n_adapted, 1, transpose_b, lm);
}
