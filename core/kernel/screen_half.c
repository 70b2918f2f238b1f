/* SPDX-License-Identifier: ISC */
/* Screening by bf16 products of all rows of W: for batches. */
#include <float.h>
#include <math.h>

#include "core/kernel/ops.h"
#include "core/kernel/screen_impl.h"
#include "core/kernel/vec.h"

#define PART 1024

#define MARKED_PART 8 /* of W's rows: more are computed faster all at once */

/* ---- a batch's beginning ---- */

struct screen_slack
screen_half_slack(const struct screen *s, const float *x, const uint16_t *half)
{
    const struct gemm_ops *ops = gemm_ops_of(cpu_isa());
    double all = 0, lost = 0;
    float rest[PART];

    for (size_t c = 0, n; c < s->w.k; c += n) {
        n = smaller(s->w.k - c, PART);
        ops->rest(rest, x + c, half + c, n);
        all += (double)vec_dot(x + c, x + c, n);
        lost += (double)vec_dot(rest, rest, n);
    }
    return screen_slack(s->w.k, sqrt(all), sqrt(lost));
}

static void
start_rows(void *ctx, size_t begin, size_t end)
{
    const struct screen_batch *b = ctx;
    struct screen_work *w = b->w;
    size_t cap = topk_cap(screen_kept(w->k));

    for (size_t i = begin; i < end; i++) {
        w->slack[i] = screen_half_slack(b->s, b->x + i * b->ldx,
                                        w->half + i * gemm_ld_bf16(b->s->w.k));
        for (size_t t = 0; t < w->threads && !b->thresholds; t++)
            topk_start(&w->top[t * SCREEN_ROWS + i],
                       w->keys + (t * SCREEN_ROWS + i) * cap,
                       w->scratch + t * cap, screen_kept(b->k));
    }
}

/* ---- all products ---- */

/* U of a row's products with n rows of W from 'col' on. */
static void
make_upper(const struct screen_batch *b, struct screen_slack slack, float *t,
           size_t col, size_t n)
{
    const struct screen *s = b->s;

    b->ops->add(t, s->bias + col, n);
    b->ops->axpy(t, slack.a, s->half.norm + col, n);
    if (!s->half.lossless)
        b->ops->axpy(t, slack.b, s->half.lost + col, n);
}

/* Offers U of a block: see struct gemm_end. */
static void
offer(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
      size_t n_cols, int thread)
{
    const struct screen_batch *b = ctx;
    struct topk *top = b->w->top + (size_t)thread * SCREEN_ROWS + row;

    for (size_t i = 0; i < n_rows; i++) {
        const struct screen_slack slack = b->w->slack[row + i];

        if (slack.a <= 0)
            continue;
        make_upper(b, slack, t + i * ldt, col, n_cols);
        topk_put(&top[i], t + i * ldt, (uint32_t)col, n_cols);
    }
}

/* Marks those of a block that may be over their thresholds, and what is not
 * finite; 'col' is a multiple of GEMM_PANEL. */
static void
mark(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
     size_t n_cols, int thread)
{
    const struct screen_batch *b = ctx;
    const struct sums_ops *sums = sums_ops_of(cpu_isa());
    size_t words = screen_words(b->s->w.n);

    (void)thread;
    for (size_t i = 0; i < n_rows; i++, t += ldt) {
        uint64_t *bits = b->w->bits + (row + i) * words + col / 64;
        const struct screen_slack slack = b->w->slack[row + i];

        if (slack.a <= 0)
            continue;
        make_upper(b, slack, t, col, n_cols);
        b->ops->axpy(t, -SCREEN_UNDER, b->thresholds + col, n_cols);
        for (size_t c = 0; c < n_cols; c += 64)
            bits[c / 64] =
                sums->outside(t + c, smaller(n_cols - c, 64), -FLT_MAX, 0);
    }
}

/* ---- a batch's end ---- */

/*
 * The k-th largest of the lower bounds of n kept rows of W, or 0 if fewer are
 * over 0.  low, at [n] are scratch.
 */
static double
lower_kth(const struct screen_batch *b, struct screen_slack slack,
          const uint32_t *idx, const float *u, size_t n, float *low,
          uint32_t *at, struct topk *top)
{
    const struct screen_form *f = &b->s->half;
    double least = INFINITY;
    size_t n_low;

    for (size_t j = 0; j < n; j++)
        low[j] = (float)screen_least(
            u[j], (double)slack.a * (double)f->norm[idx[j]] +
                      (double)slack.b * (double)f->lost[idx[j]]);
    topk_put(top, low, 0, n);
    n_low = topk_take(top, at, low);
    for (size_t j = 0; j < n_low; j++)
        least = fmin(least, (double)low[j]);
    return n_low < b->k ? 0 : least;
}

/* Of the kept rows of W only those can be among the k largest that reach the
 * k-th lower bound; and none of the others, if the smallest U that was kept is
 * under it. */
static void
settle_row(struct screen_batch *b, size_t i, size_t thread)
{
    struct screen_work *w = b->w;
    size_t most_kept = screen_kept(w->k), cap = topk_cap(most_kept), n, m = 0;
    uint32_t *idx = w->idx + thread * 2 * most_kept;
    float *u = w->v + thread * 2 * most_kept, *p = u + most_kept;
    struct topk *all = &w->top[i], top;
    double least = INFINITY, kth;

    b->found.proved[i] = false;
    if (w->slack[i].a <= 0)
        return;
    all->room = w->scratch + thread * cap;
    for (size_t t = 1; t < w->threads; t++)
        topk_add(all, &w->top[t * SCREEN_ROWS + i]);
    n = topk_take(all, idx, u);
    topk_start(&top, w->key + thread * topk_cap(w->k), all->room, b->k);
    kth = lower_kth(b, w->slack[i], idx, u, n, p, idx + most_kept, &top);
    for (size_t j = 0; j < n; j++) {
        double most = screen_most(u[j]);

        least = fmin(least, most);
        if (most >= kth)
            idx[m++] = idx[j];
    }
    if (all->bad || (n == screen_kept(b->k) && n < b->s->w.n && !(least < kth)))
        return;
    screen_rescore(b, i, idx, p, m);
    screen_finish(b, i, thread, idx, p, m);
}

/* The marked ones, computed exactly, where they are not too many: one costs as
 * much as some of a batch's products with all of W. */
static void
settle_marked(struct screen_batch *b, size_t i)
{
    size_t n = b->s->w.n, words = screen_words(n), m = 0;
    const uint64_t *bits = b->w->bits + i * words;
    uint32_t *idx = b->found.idx + i * b->found.ld;
    float *p = b->found.v + i * b->found.ld;

    b->found.proved[i] = false;
    if (b->w->slack[i].a <= 0)
        return;
    for (size_t j = 0; j < words; j++)
        m += (size_t)__builtin_popcountll(bits[j]);
    if (m > n / MARKED_PART + 1)
        return;
    m = 0;
    for (size_t j = 0; j < words; j++)
        for (uint64_t left = bits[j]; left; left &= left - 1)
            idx[m++] = (uint32_t)(64 * j) + (uint32_t)__builtin_ctzll(left);
    screen_rescore(b, i, idx, p, m);
    screen_finish(b, i, 0, idx, p, m);
}

static void
settle_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct screen_batch *b = ctx;

    for (size_t i = begin; i < end; i++)
        if (b->thresholds)
            settle_marked(b, i);
        else
            settle_row(b, i, (size_t)thread);
}

void
screen_by_half(struct screen_batch *b)
{
    struct screen_work *w = b->w;
    const struct gemm_matrix *m = &b->s->w;
    const struct gemm_job job = {
        .w = *m,
        .panels = &b->s->panels,
        .end = { .hook = b->thresholds ? mark : offer, .ctx = b },
    };
    struct par *par = gemm_par(w->gemm);

    gemm_to_bf16(w->gemm, w->half, b->x, b->ldx, b->n, m->k);
    par_for(par, b->n, 4, start_rows, b);
    gemm_bf16(w->gemm, &job, 1, w->half, NULL, gemm_ld_bf16(m->k), b->n);
    par_for_thread(par, b->n, 1, settle_rows, b);
}
