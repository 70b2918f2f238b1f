#include "core/model/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/screen.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/linear.h"
#include "core/model/table_dims.h"

#define OVER_BYTES ((size_t)128 << 20) /* of all rows' idx and v */
#define PART_COLS  4096                /* 16 KiB of them on the stack */
#define LANES      16

/* One thread's candidates for one row while its p is computed. */
struct candidates {
    struct topk top;
    size_t positives;
};

struct table_work {
    struct gemm *gemm;
    struct screen_work *screen; /* NULL: none is screened */
    bool *proved;               /* [rows] */
    size_t *exact;              /* [rows] those that are not screened, */
    size_t n_exact;             /* how many, */
    size_t in, k, rows, threads;
    size_t ld;    /* the larger of k and n_basis with thresholds */
    bool count;   /* positives */
    size_t width; /* in of the table last applied: rows of what follows */
    struct candidates *candidates; /* [threads, rows] */
    uint64_t *keys;                /* [threads, rows, topk_cap(k)] */
    uint64_t *scratch;             /* [threads, topk_cap(k)] */
    uint64_t *order;               /* [threads, 2 in] */
    uint32_t *idx;                 /* [rows, ld] */
    float *v;                      /* [rows, ld]; before that, p where there
                                    * are thresholds */
    size_t *n;                     /* [rows] */
    bool *bad;                     /* [rows] */
    size_t *positives;             /* [rows] */
    float *shifted;  /* [rows, in]: x - decoder_bias, masked errors */
    float *error;    /* [rows, in]; before that, x of the rows in 'exact' */
    uint32_t *fixed; /* [rows, in] */
    float *gathered; /* [threads, in] */
    size_t *n_fixed; /* [rows] */
    void *memory;    /* of all of them */
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
    screen_work_close(w->screen);
    mem_big_free(w->memory, w->nbytes, 1);
    free(w);
}

void
table_size(struct table_sizes *sizes, const struct table *t)
{
    size_t *size = t->thresholds ? &sizes->over : &sizes->k;

    sizes->in = larger(sizes->in, t->in);
    *size = larger(*size, t->k);
    if (t->screen)
        sizes->screened = larger(sizes->screened, t->n_basis);
}

size_t
table_work_rows(const struct table_work *w)
{
    return w->rows;
}

int
table_work_open(struct table_work **work, struct gemm *gemm,
                const struct table_sizes *sizes, size_t rows, struct err *err)
{
    struct table_work *w = xcalloc(1, sizeof(*w));
    size_t threads = (size_t)par_threads(gemm_par(gemm)), in = sizes->in;
    size_t cap = topk_cap(sizes->k), ld = larger(sizes->k, sizes->over);
    size_t row = ld * (sizeof(*w->idx) + sizeof(*w->v));

    if (sizes->over)
        rows = smaller(rows, larger(OVER_BYTES / row, 1));

    const struct mem_array arrays[] = {
        { &w->candidates, threads, rows, sizeof(*w->candidates) },
        { &w->keys, threads * rows, cap, sizeof(*w->keys) },
        { &w->scratch, threads, cap, sizeof(*w->scratch) },
        { &w->order, threads, 2 * in, sizeof(*w->order) },
        { &w->idx, rows, ld, sizeof(*w->idx) },
        { &w->v, rows, ld, sizeof(*w->v) },
        { &w->n, rows, 1, sizeof(*w->n) },
        { &w->proved, rows, 1, sizeof(*w->proved) },
        { &w->exact, rows, 1, sizeof(*w->exact) },
        { &w->bad, rows, 1, sizeof(*w->bad) },
        { &w->positives, rows, 1, sizeof(*w->positives) },
        { &w->shifted, rows, in, sizeof(*w->shifted) },
        { &w->error, rows, in, sizeof(*w->error) },
        { &w->fixed, rows, in, sizeof(*w->fixed) },
        { &w->gathered, threads, in, sizeof(*w->gathered) },
        { &w->n_fixed, rows, 1, sizeof(*w->n_fixed) },
    };

    w->gemm = gemm;
    w->in = in;
    w->k = sizes->k;
    w->ld = ld;
    w->rows = rows;
    w->threads = threads;
    w->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &w->nbytes,
                           "the workspace of tables", err);
    if (w->memory && (!sizes->screened ||
                      screen_work_open(&w->screen, gemm, in, sizes->screened,
                                       sizes->k, err) == 0)) {
        *work = w;
        return 0;
    }
    table_work_close(w);
    *work = NULL;
    return -1;
}

/* One row alone is not worth waking a thread for little. */
static void
over_rows(struct step *s,
          void (*fn)(void *ctx, size_t begin, size_t end, int thread))
{
    par_for(s->n > 1 ? gemm_par(s->w->gemm) : NULL, s->n, 1, fn, s);
}

/* ---- encode ---- */

static void
shift(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *s = ctx;
    size_t in = s->t->in;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        for (size_t d = 0; d < in; d++)
            s->w->shifted[i * in + d] =
                s->x[i * s->ldx + d] - s->t->decoder_bias[d];
}

/* Offers a block of p to the rows' top-k: see struct gemm_end. */
static void
offer(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
      size_t n_cols, int thread)
{
    struct step *s = ctx;
    struct candidates *f = s->w->candidates + (size_t)thread * s->w->rows + row;

    for (size_t i = 0; i < n_rows; i++) {
        topk_put(&f[i].top, t + i * ldt, (uint32_t)col, n_cols);
        for (size_t j = 0; s->w->count && j < n_cols; j++)
            f[i].positives += t[i * ldt + j] > 0;
    }
}

/* Keeps a block of p, for select_rows(): see struct gemm_end. */
static void
keep(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
     size_t n_cols, int thread)
{
    const struct step *s = ctx;
    const struct table_work *w = s->w;

    (void)thread;
    for (size_t i = 0; i < n_rows; i++)
        memcpy(w->v + w->exact[row + i] * w->ld + col, t + i * ldt,
               n_cols * sizeof(*t));
}

/* Screens what can be: the others are left in 'exact', their x side by side.
 * Returns these. */
static const float *
screen_rows(struct table_work *w, const struct table *t, const float *x,
            size_t *ldx, size_t n)
{
    const struct screen_found found = { w->idx, w->v, w->n, w->proved, w->ld };

    if (t->thresholds)
        screen_over(w->screen, t->screen, t->thresholds, x, *ldx, n, &found);
    else
        screen_top(w->screen, t->screen, t->k, x, *ldx, n, &found);
    for (size_t i = 0; i < n; i++) {
        w->bad[i] = false;
        if (w->proved[i])
            continue;
        memcpy(w->error + w->n_exact * t->in, x + i * *ldx, t->in * sizeof(*x));
        w->exact[w->n_exact++] = i;
    }
    *ldx = t->in;
    return w->error;
}

void
table_encode(struct table_work *w, const struct table *t, const float *x,
             size_t ldx, size_t n, int flags)
{
    struct step s = { .w = w, .t = t, .x = x, .ldx = ldx, .n = n };
    const struct gemm_job job = {
        .w = table_encoder(t),
        .end = { .bias = t->encoder_bias,
                 .hook = t->thresholds ? keep : offer,
                 .ctx = &s },
    };
    size_t cap = topk_cap(w->k);

    w->width = t->in;
    w->n_exact = 0;
    w->count = flags & TABLE_COUNT;
    if (t->centered) {
        over_rows(&s, shift);
        x = w->shifted;
        ldx = t->in;
    }
    if (w->screen && t->screen && !w->count && screen_pays(t->screen, n))
        x = screen_rows(w, t, x, &ldx, n);
    else
        while (w->n_exact < n) {
            w->exact[w->n_exact] = w->n_exact;
            w->n_exact++;
        }
    for (size_t i = 0; i < w->threads && !t->thresholds; i++)
        for (size_t k = 0; k < w->n_exact; k++) {
            struct candidates *f = &w->candidates[i * w->rows + k];

            topk_start(&f->top, w->keys + (i * w->rows + k) * cap,
                       w->scratch + i * cap, t->k);
            f->positives = 0;
        }
    gemm_exact(w->gemm, &job, 1, x, ldx, w->n_exact);
}

/* Row i's p, which v has, to those that are over their thresholds. */
static void
select_row_over(struct table_work *w, const struct table *t, size_t i)
{
    float *v = w->v + i * w->ld;

    w->positives[i] = 0;
    for (size_t j = 0; w->count && j < t->n_basis; j++)
        w->positives[i] += v[j] > 0;
    w->bad[i] = false;
    w->n[i] = select_over(w->idx + i * w->ld, v, v, t->thresholds, t->n_basis,
                          &w->bad[i]);
    if (w->bad[i])
        w->n[i] = 0;
}

static void
select_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *s = ctx;
    struct table_work *w = s->w;

    for (size_t e = begin; e < end; e++) {
        struct candidates *f = &w->candidates[e];
        size_t i = w->exact[e];

        if (s->t->thresholds) {
            select_row_over(w, s->t, i);
            continue;
        }
        f->top.room = w->scratch + (size_t)thread * topk_cap(w->k);
        for (size_t k = 1; k < w->threads; k++) {
            topk_add(&f->top, &f[k * w->rows].top);
            f->positives += f[k * w->rows].positives;
        }
        w->n[i] = topk_take(&f->top, w->idx + i * w->ld, w->v + i * w->ld);
        w->bad[i] = f->top.bad;
        w->positives[i] = f->positives;
        if (w->bad[i])
            w->n[i] = 0;
    }
}

void
table_select(struct table_work *w, const struct table *t, size_t n)
{
    struct step s = { .w = w, .t = t, .n = w->n_exact };

    over_rows(&s, select_rows);
    memset(w->n_fixed, 0, n * sizeof(*w->n_fixed));
}

/* ---- combine ---- */

/* Row i's terms over the rows of 'from', added to columns c .. c + n. */
static void
add_terms(const struct table_work *w, size_t i, const void *from,
          enum dtype dtype, size_t ld, size_t c, size_t n, float *y)
{
    const struct sparse_sum sum = {
        .y = y,
        .w = (const char *)from + c * (dtype == DT_F32 ? 4 : 2),
        .idx = w->idx + i * w->ld,
        .v = w->v + i * w->ld,
        .ldw = ld,
        .cols = n,
        .n = w->n[i],
        .w_dtype = dtype,
    };

    sparse_sum(&sum);
}

/* Units are rows, or pieces of the columns of one. */
static void
combine(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *s = ctx;
    const struct table *t = s->t;
    size_t n_pieces = (t->out + s->piece - 1) / s->piece;

    (void)thread;
    for (size_t u = begin; u < end; u++) {
        size_t i = u / n_pieces, c = u % n_pieces * s->piece;
        size_t n = smaller(t->out - c, s->piece);
        float *y = s->y + i * s->ldy + c;

        memcpy(y, t->bias_product + c, n * sizeof(*y));
        add_terms(s->w, i, t->products, t->products_dtype, t->out, c, n, y);
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
        s.w = (const char *)all->w + c * (s.w_dtype == DT_F32 ? 4 : 2);
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

static void
reconstruct_row(const struct table_work *w, const struct table *t, size_t i,
                float *to)
{
    memcpy(to, t->decoder_bias, t->in * sizeof(*to));
    add_terms(w, i, t->decoder_weight, t->decoder_dtype, t->in, 0, t->in, to);
}

static void
reconstruct(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *s = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        float *to = s->y + i * s->ldy;

        reconstruct_row(s->w, s->t, i, to);
        for (size_t d = 0; s->w->bad[i] && d < s->t->in; d++)
            to[d] = NAN;
    }
}

void
table_reconstruct(struct table_work *w, const struct table *t, float *xhat,
                  size_t ldx, size_t n)
{
    struct step s = { .w = w, .t = t, .y = xhat, .ldy = ldx, .n = n };

    over_rows(&s, reconstruct);
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
        float *error = w->error + i * in, *to = w->shifted + i * in;
        uint32_t *fixed = w->fixed + i * in;
        size_t n = 0;

        w->n_fixed[i] = 0;
        reconstruct_row(w, t, i, error);
        for (size_t d = 0; d < in; d++)
            error[d] = s->x[i * s->ldx + d] - error[d];
        if (fix->how == FIX_NONE)
            continue;
        if (!w->bad[i] && fix->how == FIX_DIMS) {
            n = fix->n_dims;
            memcpy(fixed, fix->dims, n * sizeof(*fixed));
        }
        if (!w->bad[i] && fix->how == FIX_TOP) {
            n = smaller(fix->top, in);
            topk_magnitudes(fixed, n, error, fix->by, in,
                            w->order + (size_t)thread * 2 * w->in);
        }
        for (size_t d = 0; !w->bad[i] && fix->how == FIX_OVER && d < in; d++)
            if (!(fabsf(fix->by ? error[d] * fix->by[d] : error[d]) <=
                  fix->threshold))
                fixed[n++] = (uint32_t)d;
        w->n_fixed[i] = n;
        if (fix->how == FIX_DIMS) {
            for (size_t k = 0; k < fix->n_dims; k++)
                to[k] = w->bad[i] ? 0 : error[fix->dims[k]];
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
        const struct table_part *p = &t->part[i];

        jobs[i] = (struct gemm_job){
            .w = { .data = p->w,
                   .dtype = p->dtype,
                   .n = p->out,
                   .k = t->in,
                   .ld = t->in },
            .c = y + col,
            .ldc = ldy,
            .end = { .accumulate = add },
        };
        col += p->out;
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

    if (s.fix->how != FIX_NONE || flags & TABLE_ERROR)
        over_rows(&s, compensate);
    if (s.fix->how == FIX_DIMS)
        table_add_dims(gemm_par(w->gemm), t, s.fix->n_dims, y, ldy, w->shifted,
                       t->in, n);
    else if (s.fix->how != FIX_NONE && !t->weight_t)
        apply_parts(w->gemm, t, y, ldy, w->shifted, t->in, n, true);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; w->bad[i] && c < t->out; c++)
            y[i * ldy + c] = NAN;
}

/* Are all finite?  0 times another is NaN. */
static bool
is_finite(const float *y, size_t n)
{
    float lane[LANES] = { 0 }, sum = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += 0 * y[i + j];
    for (; i < n; i++)
        sum += 0 * y[i];
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum == 0;
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
        n_bad += !is_finite(y + i * ldy, t->out);
    return n_bad;
}

struct table_row
table_row(const struct table_work *w, size_t i)
{
    return (struct table_row){
        .bad = w->bad[i],
        .n = w->n[i],
        .idx = w->idx + i * w->ld,
        .v = w->v + i * w->ld,
        .error = w->error + i * w->width,
        .n_fixed = w->n_fixed[i],
        .fixed = w->fixed + i * w->width,
        .positives = w->positives[i],
    };
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
