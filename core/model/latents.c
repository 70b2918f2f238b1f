/* SPDX-License-Identifier: ISC */
#include "core/model/latents.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/mem.h"

#define WORK_BYTES                                            \
    ((size_t)128 << 20) /* of all rows' candidates, or idx, v \
                         */

struct latents_work {
    struct gemm *gemm;
    struct screen_work *screen; /* NULL: none is screened */
    size_t in, k, rows, threads;
    size_t ld;         /* the larger of k and n with thresholds */
    struct topk *top;  /* [threads, rows] a thread's candidates for a row */
    uint64_t *keys;    /* [threads, rows, topk_cap(k)] */
    uint64_t *scratch; /* [threads, topk_cap(k)] */
    float *room;       /* [rows, in] x - shift; those not screened */
    uint16_t *rounded; /* [rows, gemm_ld_bf16(in)], with bf16 */
    uint32_t *idx;     /* [rows, ld] */
    float *v;       /* [rows, ld]; before that, z where there are thresholds */
    double *notes;  /* [rows, 2] the caller's */
    size_t *n;      /* [rows] */
    bool *bad;      /* [rows] */
    bool *proved;   /* [rows] */
    size_t *exact;  /* [rows] those that are not screened, */
    size_t n_exact; /* how many */
    void *memory;   /* of all of them */
    size_t nbytes;
};

/* What the threads share in one step. */
struct step {
    struct latents_work *w;
    const struct latents *l;
    const float *x;
    size_t ldx;
};

struct screen *
latents_screen(const struct latents *l, const struct screen_stored *stored,
               bool waits)
{
    struct screen_counts counts = { 0 };
    struct screen *screen = NULL;
    struct err err;

    /* without memory for it, the exact way is as good */
    if (screen_open(&screen, &l->w, l->bias, stored, waits, &err) < 0)
        return NULL;
    screen_count(screen, &counts);
    if (counts.nbytes > 0)
        return screen;
    screen_close(screen);
    return NULL;
}

/* ---- the workspace ---- */

void
latents_size(struct latents_sizes *sizes, const struct latents *l)
{
    size_t *size = l->thresholds ? &sizes->over : &sizes->k;

    sizes->in = larger(sizes->in, l->w.k);
    *size = larger(*size, l->thresholds ? l->w.n : l->k);
    sizes->bf16 |= l->bf16;
    if (l->screen)
        sizes->screened = larger(sizes->screened, l->w.n);
}

int
latents_work_open(struct latents_work **work, struct gemm *gemm,
                  const struct latents_sizes *sizes, size_t rows,
                  struct err *err)
{
    struct latents_work *w = xcalloc(1, sizeof(*w));
    size_t threads = (size_t)par_threads(gemm_par(gemm)), in = sizes->in;
    size_t cap = topk_cap(sizes->k), ld = larger(sizes->k, sizes->over);
    size_t row = threads * cap * sizeof(*w->keys) +
                 ld * (sizeof(*w->idx) + sizeof(*w->v));

    rows = smaller(rows, larger(WORK_BYTES / row, 1));

    const struct mem_array arrays[] = {
        { &w->top, threads, rows, sizeof(*w->top) },
        { &w->keys, threads * rows, cap, sizeof(*w->keys) },
        { &w->scratch, threads, cap, sizeof(*w->scratch) },
        { &w->room, rows, in, sizeof(*w->room) },
        { &w->rounded, sizes->bf16 ? rows : 0, gemm_ld_bf16(in),
          sizeof(*w->rounded) },
        { &w->idx, rows, ld, sizeof(*w->idx) },
        { &w->v, rows, ld, sizeof(*w->v) },
        { &w->notes, rows, 2, sizeof(*w->notes) },
        { &w->n, rows, 1, sizeof(*w->n) },
        { &w->bad, rows, 1, sizeof(*w->bad) },
        { &w->proved, rows, 1, sizeof(*w->proved) },
        { &w->exact, rows, 1, sizeof(*w->exact) },
    };

    w->gemm = gemm;
    w->in = in;
    w->k = sizes->k;
    w->ld = ld;
    w->rows = rows;
    w->threads = threads;
    w->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &w->nbytes,
                           "the workspace of latents", err);
    if (w->memory && (!sizes->screened ||
                      screen_work_open(&w->screen, gemm, in, sizes->screened,
                                       sizes->k, err) == 0)) {
        *work = w;
        return 0;
    }
    latents_work_close(w);
    *work = NULL;
    return -1;
}

void
latents_work_close(struct latents_work *w)
{
    if (!w)
        return;
    screen_work_close(w->screen);
    mem_big_free(w->memory, w->nbytes, 1);
    free(w);
}

size_t
latents_rows(const struct latents_work *w)
{
    return w->rows;
}

float *
latents_room(const struct latents_work *w)
{
    return w->room;
}

double *
latents_notes(const struct latents_work *w)
{
    return w->notes;
}

struct par *
latents_par(const struct latents_work *w)
{
    return gemm_par(w->gemm);
}

/* ---- z ---- */

static void
shift(void *ctx, size_t begin, size_t end)
{
    const struct step *s = ctx;
    size_t in = s->l->w.k;

    for (size_t i = begin; i < end; i++)
        for (size_t d = 0; d < in; d++)
            s->w->room[i * in + d] = s->x[i * s->ldx + d] - s->l->shift[d];
}

/* Offers a block of z to the rows' top-k, or keeps it for latents_select(): see
 * struct gemm_end. */
static void
take_block(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows,
           size_t col, size_t n_cols, int thread)
{
    const struct step *s = ctx;
    struct latents_work *w = s->w;
    struct topk *top = w->top + (size_t)thread * w->rows + row;

    for (size_t i = 0; i < n_rows; i++)
        if (s->l->thresholds)
            memcpy(w->v + w->exact[row + i] * w->ld + col, t + i * ldt,
                   n_cols * sizeof(*t));
        else if (s->l->k)
            topk_put(&top[i], t + i * ldt, (uint32_t)col, n_cols);
    if (s->l->hook)
        s->l->hook(s->l->ctx, t, ldt, row, n_rows, col, n_cols, thread);
}

/* Screens rows, if that pays.  Those that are not proved are left in 'exact',
 * and their x in the room, side by side. */
static bool
screened(struct latents_work *w, const struct latents *l, const float *x,
         size_t ldx, size_t n)
{
    const struct screen_found found = { w->idx, w->v, w->n, w->proved, w->ld };
    size_t in = l->w.k;

    if (!w->screen || !l->screen || l->hook ||
        !screen_rows(w->screen, l->screen, l->k, l->thresholds, x, ldx, n,
                     &found))
        return false;
    for (size_t i = 0; i < n; i++) {
        w->bad[i] = false;
        if (w->proved[i])
            continue;
        memmove(w->room + w->n_exact * in, x + i * ldx, in * sizeof(*x));
        w->exact[w->n_exact++] = i;
    }
    return true;
}

void
latents_encode(struct latents_work *w, const struct latents *l, const float *x,
               size_t ldx, size_t n)
{
    struct step s = { w, l, x, ldx };
    const struct gemm_job job = {
        .w = l->w,
        .end = { .bias = l->bias, .hook = take_block, .ctx = &s },
    };
    size_t cap = topk_cap(w->k);

    w->n_exact = 0;
    if (l->shift) {
        par_for(gemm_par(w->gemm), n, 8, shift, &s);
        x = w->room;
        ldx = l->w.k;
    }
    if (screened(w, l, x, ldx, n)) {
        x = w->room;
        ldx = l->w.k;
    } else {
        for (; w->n_exact < n; w->n_exact++)
            w->exact[w->n_exact] = w->n_exact;
    }
    for (size_t i = 0; i < w->threads && l->k && !l->thresholds; i++)
        for (size_t r = 0; r < w->n_exact; r++)
            topk_start(&w->top[i * w->rows + r],
                       w->keys + (i * w->rows + r) * cap, w->scratch + i * cap,
                       l->k);
    if (l->bf16) {
        gemm_to_bf16(w->gemm, w->rounded, x, ldx, n, l->w.k);
        gemm_bf16(w->gemm, &job, 1, w->rounded, NULL, gemm_ld_bf16(l->w.k), n);
    } else {
        gemm_exact(w->gemm, &job, 1, x, ldx, w->n_exact);
    }
}

/* ---- what is active ---- */

static void
select_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct step *s = ctx;
    struct latents_work *w = s->w;

    for (size_t e = begin; e < end; e++) {
        struct topk *top = &w->top[e];
        size_t i = w->exact[e];
        uint32_t *idx = w->idx + i * w->ld;
        float *v = w->v + i * w->ld;

        if (s->l->thresholds) {
            w->bad[i] = false;
            w->n[i] =
                select_over(idx, v, v, s->l->thresholds, s->l->w.n, &w->bad[i]);
            continue;
        }
        top->room = w->scratch + (size_t)thread * topk_cap(w->k);
        for (size_t k = 1; k < w->threads; k++)
            topk_add(top, &top[k * w->rows]);
        w->n[i] = topk_take(top, idx, v);
        w->bad[i] = top->bad;
    }
}

void
latents_select(struct latents_work *w, const struct latents *l)
{
    struct step s = { .w = w, .l = l };

    /* a few rows are not worth waking a thread for little */
    par_for_thread(gemm_par(w->gemm), w->n_exact, 4, select_rows, &s);
}

struct latents_row
latents_row(const struct latents_work *w, size_t i)
{
    return (struct latents_row){ w->bad[i], w->n[i], w->idx + i * w->ld,
                                 w->v + i * w->ld };
}

/* ---- what they are multiplied by ---- */

void
latents_sum(const struct latents_work *w, size_t i, const struct decoder *by,
            float *y, size_t c, size_t n)
{
    const struct sparse_sum sum = {
        .y = y,
        .w = (const char *)by->w + c * dtype_size(by->dtype),
        .idx = w->idx + i * w->ld,
        .v = w->v + i * w->ld,
        .ldw = by->n,
        .cols = n,
        .n = w->bad[i] ? 0 : w->n[i],
        .w_dtype = by->dtype,
    };

    memcpy(y, by->bias + c, n * sizeof(*y));
    sparse_sum(&sum);
}

struct decoding {
    const struct latents_work *w;
    const struct decoder *by;
    float *y;
    size_t ldy;
};

static void
decode(void *ctx, size_t begin, size_t end)
{
    const struct decoding *d = ctx;

    for (size_t i = begin; i < end; i++) {
        float *y = d->y + i * d->ldy;

        latents_sum(d->w, i, d->by, y, 0, d->by->n);
        for (size_t c = 0; d->w->bad[i] && c < d->by->n; c++)
            y[c] = NAN;
    }
}

void
latents_decode(const struct latents_work *w, const struct decoder *by, float *y,
               size_t ldy, size_t n_rows)
{
    struct decoding d = { w, by, y, ldy };

    par_for(gemm_par(w->gemm), n_rows, 1 + 8192 / by->n, decode, &d);
}
