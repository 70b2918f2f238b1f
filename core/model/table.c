/* SPDX-License-Identifier: ISC */
#include "core/model/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/linear.h"
#include "core/model/table_dims.h"

#define PART_COLS 4096 /* 16 KiB of them on the stack */

struct table_work {
    struct gemm *gemm;
    struct latents_work *latents;
    size_t in, rows, threads;
    bool count;        /* positives */
    size_t width;      /* in of the table last applied: rows of what follows */
    uint64_t *order;   /* [threads, 2 in] */
    size_t *positives; /* [threads, rows] */
    float *error;      /* [rows, in] */
    uint32_t *fixed;   /* [rows, in] */
    float *gathered;   /* [threads, in] */
    size_t *n_fixed;   /* [rows] */
    void *memory;      /* of all of them */
    size_t nbytes;
};

/* What the threads share in one step. */
struct step {
    struct table_work *w;
    const struct table *t;
    const struct table_fix *fix;
    const float *x;
    float *y;
    size_t ldx, ldy, n, piece;
};

size_t
table_ratio(size_t in, double ratio)
{
    /* 0.07 of 100 are 7: what doubles lose must not round up */
    double n = ceil(ratio * (double)in * (1 - 0x1p-50));

    return n >= (double)in ? in : n <= 0 ? 0 : (size_t)n;
}

/* ---- the workspace ---- */

void
table_work_close(struct table_work *w)
{
    if (!w)
        return;
    latents_work_close(w->latents);
    mem_big_free(w->memory, w->nbytes, 1);
    free(w);
}

size_t
table_work_rows(const struct table_work *w)
{
    return w->rows;
}

int
table_work_open(struct table_work **work, struct gemm *gemm,
                const struct latents_sizes *sizes, size_t rows, struct err *err)
{
    struct table_work *w = xcalloc(1, sizeof(*w));
    size_t threads = (size_t)par_threads(gemm_par(gemm)), in = sizes->in;

    *work = NULL;
    if (latents_work_open(&w->latents, gemm, sizes, rows, err) < 0) {
        free(w);
        return -1;
    }
    rows = latents_rows(w->latents);

    const struct mem_array arrays[] = {
        { &w->order, threads, 2 * in, sizeof(*w->order) },
        { &w->positives, threads, rows, sizeof(*w->positives) },
        { &w->error, rows, in, sizeof(*w->error) },
        { &w->fixed, rows, in, sizeof(*w->fixed) },
        { &w->gathered, threads, in, sizeof(*w->gathered) },
        { &w->n_fixed, rows, 1, sizeof(*w->n_fixed) },
    };

    w->gemm = gemm;
    w->in = in;
    w->rows = rows;
    w->threads = threads;
    w->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &w->nbytes,
                           "the workspace of tables", err);
    if (w->memory)
        *work = w;
    else
        table_work_close(w);
    return *work ? 0 : -1;
}

/* ---- encode ---- */

static void
count_positives(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows,
                size_t col, size_t n_cols, int thread)
{
    struct table_work *w = ctx;
    size_t *n = w->positives + (size_t)thread * w->rows + row;

    (void)col;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_cols; j++)
            n[i] += t[i * ldt + j] > 0;
}

void
table_encode(struct table_work *w, const struct table *t, const float *x,
             size_t ldx, size_t n, int flags)
{
    struct latents l = t->latents;

    w->width = t->in;
    w->count = flags & TABLE_COUNT;
    if (w->count) {
        memset(w->positives, 0, w->threads * w->rows * sizeof(*w->positives));
        l.hook = count_positives;
        l.ctx = w;
    }
    latents_encode(w->latents, &l, x, ldx, n);
}

void
table_select(struct table_work *w, const struct table *t, size_t n)
{
    latents_select(w->latents, &t->latents);
    memset(w->n_fixed, 0, n * sizeof(*w->n_fixed));
}

/* ---- combine ---- */

/* Units are rows, or pieces of the columns of one. */
static void
combine(void *ctx, size_t begin, size_t end)
{
    struct step *s = ctx;
    const struct table *t = s->t;
    size_t n_pieces = (t->out + s->piece - 1) / s->piece;

    for (size_t u = begin; u < end; u++) {
        size_t i = u / n_pieces, c = u % n_pieces * s->piece;

        latents_sum(s->w->latents, i, &t->products, s->y + i * s->ldy + c, c,
                    smaller(t->out - c, s->piece));
    }
}

void
table_combine(struct table_work *w, const struct table *t, float *y, size_t ldy,
              size_t n)
{
    struct step s = { .w = w, .t = t, .y = y, .ldy = ldy, .n = n };
    size_t pieces = n ? (w->threads + n - 1) / n : 1;

    s.piece = (t->out / pieces / 64 + 1) * 64;
    par_for(gemm_par(w->gemm), n * ((t->out + s.piece - 1) / s.piece), 1,
            combine, &s);
}

/* ---- compensation ---- */

/* y += a sum of up to 'in' terms, some at a time: what one f32 alone loses
 * grows with their number. */
static void
add_many(const struct sparse_sum *all)
{
    float part[PART_COLS];
    struct sparse_sum s = *all;

    s.y = part;
    for (size_t c = 0; c < all->cols; c += s.cols) {
        s.cols = all->cols - c < PART_COLS ? all->cols - c : PART_COLS;
        s.w = (const char *)all->w + c * dtype_size(s.w_dtype);
        for (size_t i = 0; i < all->n; i += s.n) {
            s.n = all->n - i < TABLE_TERMS ? all->n - i : TABLE_TERMS;
            s.idx = all->idx + i;
            s.v = all->v + i;
            memset(part, 0, s.cols * sizeof(*part));
            sparse_sum(&s);
            vec_add(all->y + c, part, s.cols);
        }
    }
}

void
table_reconstruct(struct table_work *w, const struct table *t, float *xhat,
                  size_t ldx, size_t n)
{
    latents_decode(w->latents, &t->decoder, xhat, ldx, n);
}

/*
 * A row's error, its dims in C, and what they give: added to y where weight_t
 * is there, else errors of C alone, with zeros elsewhere, for apply_parts(), or
 * of FIX_DIMS one after the other, for table_add_dims().
 */
static void
compensate(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *s = ctx;
    struct table_work *w = s->w;
    const struct table *t = s->t;
    const struct table_fix *fix = s->fix;
    size_t in = t->in;

    for (size_t i = begin; i < end; i++) {
        float *error = w->error + i * in;
        float *to = latents_room(w->latents) + i * in;
        bool bad = latents_row(w->latents, i).bad;
        uint32_t *fixed = w->fixed + i * in;
        size_t n = 0;

        w->n_fixed[i] = 0;
        latents_sum(w->latents, i, &t->decoder, error, 0, in);
        for (size_t d = 0; d < in; d++)
            error[d] = s->x[i * s->ldx + d] - error[d];
        if (fix->how == FIX_NONE)
            continue;
        if (!bad && fix->how == FIX_DIMS) {
            n = fix->n_dims;
            memcpy(fixed, fix->dims, n * sizeof(*fixed));
        }
        if (!bad && fix->how == FIX_TOP) {
            n = smaller(fix->top, in);
            topk_magnitudes(fixed, n, error, fix->by, in,
                            w->order + (size_t)thread * 2 * w->in);
        }
        for (size_t d = 0; !bad && fix->how == FIX_OVER && d < in; d++)
            if (!(fabsf(fix->by ? error[d] * fix->by[d] : error[d]) <=
                  fix->threshold))
                fixed[n++] = (uint32_t)d;
        w->n_fixed[i] = n;
        if (fix->how == FIX_DIMS) {
            for (size_t k = 0; k < fix->n_dims; k++)
                to[k] = bad ? 0 : error[fix->dims[k]];
        } else if (t->weight_t) {
            to = w->gathered + (size_t)thread * w->in;
            for (size_t k = 0; k < n; k++)
                to[k] = error[fixed[k]];
            add_many(&(struct sparse_sum){ .y = s->y + i * s->ldy,
                                           .w = t->weight_t,
                                           .idx = fixed,
                                           .v = to,
                                           .ldw = t->out,
                                           .cols = t->out,
                                           .n = n,
                                           .w_dtype = t->weight_dtype });
        } else {
            memset(to, 0, in * sizeof(*to));
            for (size_t k = 0; k < n; k++)
                to[fixed[k]] = error[fixed[k]];
        }
    }
}

/* y = W x, or y += W x, by the layer's own weights. */
static void
apply_parts(struct gemm *gemm, const struct table *t, float *y, size_t ldy,
            const float *x, size_t ldx, size_t n, bool add)
{
    struct gemm_job jobs[LUT_MAX_PARTS];
    size_t col = 0;

    for (size_t i = 0; i < t->n_parts; i++) {
        jobs[i] = (struct gemm_job){ .w = t->part[i],
                                     .c = y + col,
                                     .ldc = ldy,
                                     .end = { .accumulate = add } };
        col += t->part[i].n;
    }
    gemm_exact(gemm, jobs, t->n_parts, x, ldx, n);
}

void
table_compensate(struct table_work *w, const struct table *t,
                 const struct table_fix *fix, float *y, size_t ldy,
                 const float *x, size_t ldx, size_t n, int flags)
{
    static const struct table_fix none = { .how = FIX_NONE };
    struct step s = { .w = w,
                      .t = t,
                      .fix = fix ? fix : &none,
                      .x = x,
                      .ldx = ldx,
                      .y = y,
                      .ldy = ldy,
                      .n = n };
    const float *room = latents_room(w->latents);

    if (s.fix->how != FIX_NONE || flags & TABLE_ERROR)
        par_for_thread(gemm_par(w->gemm), n, 1, compensate, &s);
    if (s.fix->how == FIX_DIMS)
        table_add_dims(gemm_par(w->gemm), t, s.fix->n_dims, y, ldy, room, t->in,
                       n);
    else if (s.fix->how != FIX_NONE && !t->weight_t)
        apply_parts(w->gemm, t, y, ldy, room, t->in, n, true);
    for (size_t i = 0; i < n; i++) {
        bool bad = latents_row(w->latents, i).bad;

        for (size_t c = 0; bad && c < t->out; c++)
            y[i * ldy + c] = NAN;
    }
}

size_t
table_apply(struct table_work *w, const struct table *t,
            const struct table_fix *fix, float *y, size_t ldy, const float *x,
            size_t ldx, size_t n, int flags)
{
    size_t n_bad = 0;

    table_encode(w, t, x, ldx, n, flags);
    table_select(w, t, n);
    table_combine(w, t, y, ldy, n);
    table_compensate(w, t, fix, y, ldy, x, ldx, n, flags);
    for (size_t i = 0; i < n; i++)
        n_bad += !cvt_fits(y + i * ldy, DT_F32, t->out);
    return n_bad;
}

struct table_row
table_row(const struct table_work *w, size_t i)
{
    const struct latents_row found = latents_row(w->latents, i);
    struct table_row row = {
        .bad = found.bad,
        .n = found.bad ? 0 : found.n,
        .idx = found.idx,
        .v = found.v,
        .error = w->error + i * w->width,
        .n_fixed = w->n_fixed[i],
        .fixed = w->fixed + i * w->width,
    };

    for (size_t k = 0; w->count && k < w->threads; k++)
        row.positives += w->positives[k * w->rows + i];
    return row;
}

/* ---- the layer itself ---- */

void
table_dense(struct gemm *gemm, const struct table *t, float *y, size_t ldy,
            const float *x, size_t ldx, size_t n)
{
    apply_parts(gemm, t, y, ldy, x, ldx, n, false);
    for (size_t i = 0; i < n; i++)
        vec_add(y + i * ldy, t->bias, t->out);
}
