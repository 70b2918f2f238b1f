#include "core/model/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/sparse.h"
#include "core/kernel/vec.h"
#include "core/mem.h"

#define PART_TERMS 64   /* of compensation, summed before they meet y */
#define PART_COLS  4096 /* 16 KiB of them on the stack */

/* What one thread knows of one row while its p is made. */
struct found {
    struct topk top;
    size_t positives;
};

struct table_work {
    struct gemm *gemm;
    size_t in, k, rows, threads;
    size_t width; /* in of the table last applied: rows of what follows */
    struct found *found; /* [threads, rows] */
    uint64_t *keys;      /* [threads, rows, topk_cap(k)] */
    uint64_t *room;      /* [threads, topk_cap(k)] */
    uint64_t *order;     /* [threads, 2 in] */
    uint32_t *idx;       /* [rows, k] */
    float *v;            /* [rows, k] */
    size_t *n;           /* [rows] */
    bool *bad;           /* [rows] */
    size_t *positives;   /* [rows] */
    float *shifted;      /* [rows, in]: x - decoder_bias, masked errors */
    float *error;        /* [rows, in] */
    uint32_t *fixed;     /* [rows, in] */
    float *gathered;     /* [threads, in] */
    size_t *n_fixed;     /* [rows] */
};

/* What the threads share in one step. */
struct step {
    struct table_work *w;
    const struct table *t;
    const struct table_fix *fix;
    const float *x;
    float *y;
    size_t ldx, ldy, n, piece;
    bool count;
};

size_t
table_ratio(size_t in, double ratio)
{
    /* 0.07 of 100 are 7: what doubles lose must not round up */
    double n = ceil(ratio * (double)in * (1 - 0x1p-50));

    return n >= (double)in ? in : n <= 0 ? 0 : (size_t)n;
}

/* ---- memory ---- */

static bool
take(void *to, size_t n, size_t size, struct err *err)
{
    void *p = mem_big(n, size, "the workspace of tables", err);

    memcpy(to, &p, sizeof(p));
    return p != NULL;
}

int
table_open(struct table_work **work, struct gemm *gemm, size_t in, size_t k,
           size_t rows, struct err *err)
{
    struct table_work *w = xcalloc(1, sizeof(*w));
    size_t threads = (size_t)par_threads(gemm_par(gemm));

    *work = NULL;
    *w = (struct table_work){
        .gemm = gemm, .in = in, .k = k, .rows = rows, .threads = threads
    };
    w->n = xcalloc(rows, sizeof(*w->n));
    w->bad = xcalloc(rows, sizeof(*w->bad));
    w->positives = xcalloc(rows, sizeof(*w->positives));
    w->n_fixed = xcalloc(rows, sizeof(*w->n_fixed));
    w->found = xcalloc(threads * rows, sizeof(*w->found));
    if (!take(&w->keys, threads * rows * topk_cap(k), sizeof(*w->keys), err) ||
        !take(&w->room, threads * topk_cap(k), sizeof(*w->room), err) ||
        !take(&w->order, threads * 2 * in, sizeof(*w->order), err) ||
        !take(&w->idx, rows * k, sizeof(*w->idx), err) ||
        !take(&w->v, rows * k, sizeof(*w->v), err) ||
        !take(&w->shifted, rows * in, sizeof(*w->shifted), err) ||
        !take(&w->error, rows * in, sizeof(*w->error), err) ||
        !take(&w->fixed, rows * in, sizeof(*w->fixed), err) ||
        !take(&w->gathered, threads * in, sizeof(*w->gathered), err)) {
        table_close(w);
        return -1;
    }
    *work = w;
    return 0;
}

void
table_close(struct table_work *w)
{
    if (!w)
        return;
    mem_big_free(w->gathered, w->threads * w->in, sizeof(*w->gathered));
    mem_big_free(w->fixed, w->rows * w->in, sizeof(*w->fixed));
    mem_big_free(w->error, w->rows * w->in, sizeof(*w->error));
    mem_big_free(w->shifted, w->rows * w->in, sizeof(*w->shifted));
    mem_big_free(w->v, w->rows * w->k, sizeof(*w->v));
    mem_big_free(w->idx, w->rows * w->k, sizeof(*w->idx));
    mem_big_free(w->order, w->threads * 2 * w->in, sizeof(*w->order));
    mem_big_free(w->room, w->threads * topk_cap(w->k), sizeof(*w->room));
    mem_big_free(w->keys, w->threads * w->rows * topk_cap(w->k),
                 sizeof(*w->keys));
    free(w->found);
    free(w->n_fixed);
    free(w->positives);
    free(w->bad);
    free(w->n);
    free(w);
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

/* A block of p: see struct gemm_end. */
static void
look(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
     size_t n_cols, int thread)
{
    struct step *s = ctx;
    struct found *f = s->w->found + (size_t)thread * s->w->rows + row;

    for (size_t i = 0; i < n_rows; i++) {
        topk_put(&f[i].top, t + i * ldt, (uint32_t)col, n_cols);
        for (size_t j = 0; s->count && j < n_cols; j++)
            f[i].positives += t[i * ldt + j] > 0;
    }
}

void
table_encode(struct table_work *w, const struct table *t, const float *x,
             size_t ldx, size_t n, int flags)
{
    struct step s = {
        .w = w, .t = t, .x = x, .ldx = ldx, .n = n, .count = flags & TABLE_COUNT
    };
    const struct gemm_job job = {
        .w = { .data = t->encoder_weight,
               .dtype = t->dtype,
               .n = t->n_basis,
               .k = t->in,
               .ld = t->in },
        .end = { .bias = t->encoder_bias, .hook = look, .ctx = &s },
    };
    size_t cap = topk_cap(w->k);

    w->width = t->in;
    for (size_t i = 0; i < w->threads; i++)
        for (size_t k = 0; k < n; k++) {
            struct found *f = &w->found[i * w->rows + k];

            topk_start(&f->top, w->keys + (i * w->rows + k) * cap,
                       w->room + i * cap, t->k);
            f->positives = 0;
        }
    if (t->centered)
        over_rows(&s, shift);
    gemm_exact(w->gemm, &job, 1, t->centered ? w->shifted : x,
               t->centered ? t->in : ldx, n);
}

static void
select_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *s = ctx;
    struct table_work *w = s->w;

    for (size_t i = begin; i < end; i++) {
        struct found *f = &w->found[i];

        f->top.room = w->room + (size_t)thread * topk_cap(w->k);
        for (size_t k = 1; k < w->threads; k++) {
            topk_add(&f->top, &f[k * w->rows].top);
            f->positives += f[k * w->rows].positives;
        }
        w->n[i] = topk_take(&f->top, w->idx + i * w->k, w->v + i * w->k);
        w->bad[i] = f->top.bad;
        w->positives[i] = f->positives;
        w->n_fixed[i] = 0;
        if (w->bad[i])
            w->n[i] = 0;
    }
}

size_t
table_select(struct table_work *w, const struct table *t, size_t n)
{
    struct step s = { .w = w, .t = t, .n = n };
    size_t n_bad = 0;

    over_rows(&s, select_rows);
    for (size_t i = 0; i < n; i++)
        n_bad += w->bad[i];
    return n_bad;
}

/* ---- combine ---- */

/* Row i's terms over the rows of 'from', added to columns c .. c + n. */
static void
add_terms(const struct table_work *w, const struct table *t, size_t i,
          const void *from, size_t ld, size_t c, size_t n, float *y)
{
    const struct sparse sum = {
        .y = y,
        .w = (const char *)from + c * (t->dtype == DT_F32 ? 4 : 2),
        .idx = w->idx + i * w->k,
        .v = w->v + i * w->k,
        .ldw = ld,
        .cols = n,
        .n = w->n[i],
        .w_dtype = t->dtype,
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
        add_terms(s->w, t, i, t->products, t->out, c, n, y);
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

static size_t
choose(const struct step *s, uint32_t *fixed, const float *error, uint64_t *key)
{
    const struct table_fix *fix = s->fix;
    size_t n = 0;

    if (fix->how == FIX_TOP) {
        n = smaller(fix->top, s->t->in);
        topk_magnitudes(fixed, n, error, fix->by, s->t->in, key);
        return n;
    }
    for (size_t d = 0; d < s->t->in; d++)
        if (!(fabsf(fix->by ? error[d] * fix->by[d] : error[d]) <=
              fix->threshold))
            fixed[n++] = (uint32_t)d;
    return n;
}

/* y += a sum of up to 'in' terms, some at a time: what one f32 alone loses
 * grows with their number. */
static void
add_many(const struct sparse *all)
{
    float part[PART_COLS];
    struct sparse s = *all;

    s.y = part;
    for (size_t c = 0; c < all->cols; c += s.cols) {
        s.cols = all->cols - c < PART_COLS ? all->cols - c : PART_COLS;
        s.w = (const char *)all->w + c * (s.w_dtype == DT_F32 ? 4 : 2);
        for (size_t i = 0; i < all->n; i += s.n) {
            s.n = all->n - i < PART_TERMS ? all->n - i : PART_TERMS;
            s.idx = all->idx + i;
            s.v = all->v + i;
            memset(part, 0, s.cols * sizeof(*part));
            sparse_sum(&s);
            vec_add(all->y + c, part, s.cols);
        }
    }
}

/* From the dims of C alone: into y where weight_t is, else a row with zeros
 * elsewhere. */
static void
fix_row(struct step *s, size_t i, int thread)
{
    struct table_work *w = s->w;
    size_t in = s->t->in, n = w->n_fixed[i];
    const float *error = w->error + i * in;
    float *to = s->t->weight_t ? w->gathered + (size_t)thread * w->in
                               : w->shifted + i * in;
    const struct sparse sum = {
        .y = s->y + i * s->ldy,
        .w = s->t->weight_t,
        .idx = w->fixed + i * in,
        .v = to,
        .ldw = s->t->out,
        .cols = s->t->out,
        .n = n,
        .w_dtype = s->t->dtype,
    };

    if (s->t->weight_t) {
        for (size_t k = 0; k < n; k++)
            to[k] = error[sum.idx[k]];
        add_many(&sum);
        return;
    }
    memset(to, 0, in * sizeof(*to));
    for (size_t k = 0; k < n; k++)
        to[sum.idx[k]] = error[sum.idx[k]];
}

static void
compensate(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *s = ctx;
    struct table_work *w = s->w;
    size_t in = s->t->in;

    for (size_t i = begin; i < end; i++) {
        float *error = w->error + i * in;

        w->n_fixed[i] = 0;
        memcpy(error, s->t->decoder_bias, in * sizeof(*error));
        add_terms(w, s->t, i, s->t->decoder_weight, in, 0, in, error);
        for (size_t d = 0; d < in; d++)
            error[d] = s->x[i * s->ldx + d] - error[d];
        if (s->fix->how == FIX_NONE)
            continue;
        if (!w->bad[i])
            w->n_fixed[i] = choose(s, w->fixed + i * in, error,
                                   w->order + (size_t)thread * 2 * w->in);
        fix_row(s, i, thread);
    }
}

/* y, or y += the layer by its own weights. */
static void
apply_parts(struct gemm *gemm, const struct table *t, float *y, size_t ldy,
            const float *x, size_t ldx, size_t n, bool add)
{
    struct gemm_job jobs[TABLE_PARTS];
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
    static const struct table_fix none = { FIX_NONE, 0, 0, NULL };
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
    if (s.fix->how != FIX_NONE && !t->weight_t)
        apply_parts(w->gemm, t, y, ldy, w->shifted, t->in, n, true);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; w->bad[i] && c < t->out; c++)
            y[i * ldy + c] = NAN;
}

size_t
table_apply(struct table_work *w, const struct table *t,
            const struct table_fix *fix, float *y, size_t ldy, const float *x,
            size_t ldx, size_t n, int flags)
{
    size_t n_bad;

    table_encode(w, t, x, ldx, n, flags);
    n_bad = table_select(w, t, n);
    table_combine(w, t, y, ldy, n);
    table_compensate(w, t, fix, y, ldy, x, ldx, n, flags);
    return n_bad;
}

struct table_row
table_row(const struct table_work *w, size_t i)
{
    return (struct table_row){
        .bad = w->bad[i],
        .n = w->n[i],
        .idx = w->idx + i * w->k,
        .v = w->v + i * w->k,
        .error = w->error + i * w->width,
        .n_fixed = w->n_fixed[i],
        .fixed = w->fixed + i * w->width,
        .positives = w->positives[i],
    };
}

/* ---- transposed weights ---- */

#define FEW_DIMS        8 /* one in so many: a batch of 64 takes the layer's time */
#define TRANSPOSE_BLOCK 64

/* Row r, column c of the block to row c, column r. */
static void
transpose_block(char *to, size_t ld_to, const char *from, size_t ld_from,
                size_t n_rows, size_t n_cols, size_t size)
{
    for (size_t c = 0; c < n_cols; c++)
        for (size_t r = 0; r < n_rows; r++) {
            char *p = to + (c * ld_to + r) * size;
            const char *q = from + (r * ld_from + c) * size;

            if (size == 4)
                memcpy(p, q, 4);
            else
                memcpy(p, q, 2);
        }
}

static bool
can_transpose(const struct table *t, const struct table_fix *fix)
{
    bool few = fix->how == FIX_TOP && fix->top <= t->in / FEW_DIMS;

    for (size_t i = 0; i < t->n_parts; i++)
        few &= t->part[i].dtype == t->dtype;
    return few && t->n_parts > 0 && !t->weight_t;
}

int
table_transpose(struct table *t, const struct table_fix *fix, struct err *err)
{
    size_t size = t->dtype == DT_F32 ? 4 : 2, col = 0;

    if (!can_transpose(t, fix))
        return 0;
    t->transposed =
        mem_big(t->in * t->out, size, "a layer's transposed weights", err);
    if (!t->transposed)
        return -1;
    for (size_t p = 0; p < t->n_parts; col += t->part[p++].out)
        for (size_t r = 0; r < t->part[p].out; r += TRANSPOSE_BLOCK)
            for (size_t c = 0; c < t->in; c += TRANSPOSE_BLOCK)
                transpose_block(
                    (char *)t->transposed + (c * t->out + col + r) * size,
                    t->out, (const char *)t->part[p].w + (r * t->in + c) * size,
                    t->in, smaller(TRANSPOSE_BLOCK, t->part[p].out - r),
                    smaller(TRANSPOSE_BLOCK, t->in - c), size);
    t->weight_t = t->transposed;
    return 0;
}

void
table_untranspose(struct table *t)
{
    if (!t->transposed)
        return;
    mem_big_free(t->transposed, t->in * t->out, t->dtype == DT_F32 ? 4 : 2);
    t->weight_t = t->transposed = NULL;
}

/* ---- the layer itself ---- */

void
table_dense(struct gemm *gemm, const struct table *t, float *y, size_t ldy,
            const float *x, size_t ldx, size_t n)
{
    apply_parts(gemm, t, y, ldy, x, ldx, n, false);
}

static void
norms_of_columns(double *sum, const struct table *t)
{
    float *row = xmalloc(t->in * sizeof(*row));

    for (size_t p = 0; p < t->n_parts; p++) {
        const struct table_part *part = &t->part[p];
        size_t nbytes = t->in * (part->dtype == DT_F32 ? 4 : 2);

        for (size_t r = 0; r < part->out; r++) {
            cvt_to_f32(row, (const char *)part->w + r * nbytes, part->dtype,
                       t->in);
            for (size_t d = 0; d < t->in; d++)
                sum[d] += (double)row[d] * (double)row[d];
        }
    }
    free(row);
}

static void
norms_of_rows(double *sum, const struct table *t)
{
    float *row = xmalloc(t->out * sizeof(*row));
    size_t nbytes = t->out * (t->dtype == DT_F32 ? 4 : 2);

    for (size_t d = 0; d < t->in; d++) {
        cvt_to_f32(row, (const char *)t->weight_t + d * nbytes, t->dtype,
                   t->out);
        for (size_t c = 0; c < t->out; c++)
            sum[d] += (double)row[c] * (double)row[c];
    }
    free(row);
}

void
table_norms(float *norms, const struct table *t)
{
    double *sum = xcalloc(t->in, sizeof(*sum));

    if (t->weight_t)
        norms_of_rows(sum, t);
    else
        norms_of_columns(sum, t);
    for (size_t d = 0; d < t->in; d++)
        norms[d] = (float)sqrt(sum[d]);
    free(sum);
}
