#include "core/model/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/linear.h"

#define PART_TERMS 64   /* of compensation, summed before they are added to y */
#define PART_COLS  4096 /* 16 KiB of them on the stack */
#define FEW_DIMS   8    /* one in 8: a batch of 64 takes the layer's time */
#define LANES      16
#define BLOCK      64 /* rows and columns transposed at a time */

/* One thread's candidates for one row while its p is computed. */
struct candidates {
    struct topk top;
    size_t positives;
};

struct table_work {
    struct gemm *gemm;
    size_t in, k, rows, threads;
    size_t width; /* in of the table last applied: rows of what follows */
    struct candidates *candidates; /* [threads, rows] */
    uint64_t *keys;                /* [threads, rows, topk_cap(k)] */
    uint64_t *scratch;             /* [threads, topk_cap(k)] */
    uint64_t *order;               /* [threads, 2 in] */
    uint32_t *idx;                 /* [rows, k] */
    float *v;                      /* [rows, k] */
    size_t *n;                     /* [rows] */
    bool *bad;                     /* [rows] */
    size_t *positives;             /* [rows] */
    float *shifted;  /* [rows, in]: x - decoder_bias, masked errors */
    float *error;    /* [rows, in] */
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
    bool count;
};

size_t
table_ratio(size_t in, double ratio)
{
    /* 0.07 of 100 are 7: what doubles lose must not round up */
    double n = ceil(ratio * (double)in * (1 - 0x1p-50));

    return n >= (double)in ? in : n <= 0 ? 0 : (size_t)n;
}

/* ---- a layer's table ---- */

int
table_open(struct table *t, const struct lut *lut, const struct lut_layer *l,
           struct err *err)
{
    struct lut_table *f = &t->file;

    *t = (struct table){ 0 };
    if (lut_table_open(f, lut, l, err) < 0)
        return -1;
    t->in = l->in;
    t->out = l->out;
    t->n_basis = l->n_basis;
    t->k = l->k;
    t->dtype = f->dtype;
    t->encoder_weight = f->encoder_weight;
    t->decoder_weight = f->decoder_weight;
    t->products = f->products;
    t->encoder_bias = f->encoder_bias;
    t->decoder_bias = f->decoder_bias;
    t->bias_product = f->bias_product;
    t->centered = l->centered;
    t->weight_t = f->compensation_weight_t;
    t->bias = xcalloc(l->out, sizeof(*t->bias));
    return 0;
}

void
table_close(struct table *t)
{
    if (t->transposed)
        mem_big_free(t->transposed, t->in * t->out, t->dtype == DT_F32 ? 4 : 2);
    free(t->bias);
    lut_table_close(&t->file);
    *t = (struct table){ 0 };
}

bool
table_bind(struct table *t, const struct linear *l)
{
    if (l->in != t->in || l->out > t->out - t->n_bound)
        return false;
    t->part[t->n_parts++] = (struct table_part){ l->w, l->dtype, l->out };
    if (l->bias)
        memcpy(t->bias + t->n_bound, l->bias, l->out * sizeof(*l->bias));
    t->n_bound += l->out;
    return true;
}

bool
table_bind_end(struct table *t)
{
    if (t->n_bound != t->out)
        return false;
    if (!t->file.layer->target_bias) /* as the exporter leaves it */
        vec_add(t->file.bias_product, t->bias, t->out);
    return true;
}

int
table_transpose(struct table *t, const struct table_fix *fix, struct err *err)
{
    size_t size = t->dtype == DT_F32 ? 4 : 2, col = 0;
    bool few = fix->how == FIX_TOP && fix->top <= t->in / FEW_DIMS;

    for (size_t i = 0; i < t->n_parts; i++)
        few &= t->part[i].dtype == t->dtype;
    if (!few || t->n_parts == 0 || t->weight_t)
        return 0;
    t->transposed =
        mem_big(t->in * t->out, size, "a layer's transposed weights", err);
    if (!t->transposed)
        return -1;
    for (size_t p = 0; p < t->n_parts; col += t->part[p++].out)
        for (size_t r0 = 0; r0 < t->part[p].out; r0 += BLOCK)
            for (size_t c0 = 0; c0 < t->in; c0 += BLOCK)
                for (size_t c = c0; c < smaller(c0 + BLOCK, t->in); c++)
                    for (size_t r = r0; r < smaller(r0 + BLOCK, t->part[p].out);
                         r++) {
                        char *to = (char *)t->transposed +
                                   (c * t->out + col + r) * size;
                        const char *from =
                            (const char *)t->part[p].w + (r * t->in + c) * size;

                        if (size == 4)
                            memcpy(to, from, 4);
                        else
                            memcpy(to, from, 2);
                    }
    t->weight_t = t->transposed;
    return 0;
}

/* ---- the workspace ---- */

int
table_work_open(struct table_work **work, struct gemm *gemm, size_t in,
                size_t k, size_t rows, struct err *err)
{
    struct table_work *w = xcalloc(1, sizeof(*w));
    size_t threads = (size_t)par_threads(gemm_par(gemm)), cap = topk_cap(k);
    const struct mem_array arrays[] = {
        { &w->candidates, threads, rows, sizeof(*w->candidates) },
        { &w->keys, threads * rows, cap, sizeof(*w->keys) },
        { &w->scratch, threads, cap, sizeof(*w->scratch) },
        { &w->order, threads, 2 * in, sizeof(*w->order) },
        { &w->idx, rows, k, sizeof(*w->idx) },
        { &w->v, rows, k, sizeof(*w->v) },
        { &w->n, rows, 1, sizeof(*w->n) },
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
    w->k = k;
    w->rows = rows;
    w->threads = threads;
    w->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &w->nbytes,
                           "the workspace of tables", err);
    *work = w->memory ? w : NULL;
    if (!w->memory)
        free(w);
    return *work ? 0 : -1;
}

void
table_work_close(struct table_work *w)
{
    if (w)
        mem_big_free(w->memory, w->nbytes, 1);
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

/* Offers a block of p to the rows' top-k: see struct gemm_end. */
static void
offer(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
      size_t n_cols, int thread)
{
    struct step *s = ctx;
    struct candidates *f = s->w->candidates + (size_t)thread * s->w->rows + row;

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
        .end = { .bias = t->encoder_bias, .hook = offer, .ctx = &s },
    };
    size_t cap = topk_cap(w->k);

    w->width = t->in;
    for (size_t i = 0; i < w->threads; i++)
        for (size_t k = 0; k < n; k++) {
            struct candidates *f = &w->candidates[i * w->rows + k];

            topk_start(&f->top, w->keys + (i * w->rows + k) * cap,
                       w->scratch + i * cap, t->k);
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
        struct candidates *f = &w->candidates[i];

        f->top.room = w->scratch + (size_t)thread * topk_cap(w->k);
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

void
table_select(struct table_work *w, const struct table *t, size_t n)
{
    struct step s = { .w = w, .t = t, .n = n };

    over_rows(&s, select_rows);
}

/* ---- combine ---- */

/* Row i's terms over the rows of 'from', added to columns c .. c + n. */
static void
add_terms(const struct table_work *w, const struct table *t, size_t i,
          const void *from, size_t ld, size_t c, size_t n, float *y)
{
    const struct sparse_sum sum = {
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
            s.n = all->n - i < PART_TERMS ? all->n - i : PART_TERMS;
            s.idx = all->idx + i;
            s.v = all->v + i;
            memset(part, 0, s.cols * sizeof(*part));
            sparse_sum(&s);
            vec_add(all->y + c, part, s.cols);
        }
    }
}

/*
 * A row's error, its dims in C, and what they give: added to y where weight_t
 * is there, else errors of C alone, with zeros elsewhere, for apply_parts().
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
        memcpy(error, t->decoder_bias, in * sizeof(*error));
        add_terms(w, t, i, t->decoder_weight, in, 0, in, error);
        for (size_t d = 0; d < in; d++)
            error[d] = s->x[i * s->ldx + d] - error[d];
        if (fix->how == FIX_NONE)
            continue;
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
        if (t->weight_t) {
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
                                           .w_dtype = t->dtype });
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
        .idx = w->idx + i * w->k,
        .v = w->v + i * w->k,
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

void
table_norms(float *norms, const struct table *t)
{
    double *sum = xcalloc(t->in, sizeof(*sum));
    float *row = xmalloc(larger(t->in, t->out) * sizeof(*row));

    for (size_t d = 0; t->weight_t && d < t->in; d++) {
        size_t nbytes = t->out * (t->dtype == DT_F32 ? 4 : 2);

        cvt_to_f32(row, (const char *)t->weight_t + d * nbytes, t->dtype,
                   t->out);
        for (size_t c = 0; c < t->out; c++)
            sum[d] += (double)row[c] * (double)row[c];
    }
    for (size_t p = 0; !t->weight_t && p < t->n_parts; p++) {
        const struct table_part *part = &t->part[p];
        size_t nbytes = t->in * (part->dtype == DT_F32 ? 4 : 2);

        for (size_t r = 0; r < part->out; r++) {
            cvt_to_f32(row, (const char *)part->w + r * nbytes, part->dtype,
                       t->in);
            for (size_t d = 0; d < t->in; d++)
                sum[d] += (double)row[d] * (double)row[d];
        }
    }
    for (size_t d = 0; d < t->in; d++)
        norms[d] = (float)sqrt(sum[d]);
    free(row);
    free(sum);
}
