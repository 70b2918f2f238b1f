/* SPDX-License-Identifier: ISC */
/*
 * Screening by a shadow of W in int8, which is half as long as bf16: for a few
 * rows of x, where reading W takes the time, and for CPUs without fast products
 * of bf16.  All upper bounds are kept, so that no number of rows of W that are
 * near the k-th largest is too many for the proof.
 */
#include <math.h>
#include <string.h>

#include "core/kernel/ops.h"
#include "core/kernel/screen_impl.h"
#include "core/kernel/vec.h"

#define UNIT SCREEN_UNIT
#define FOLD 8  /* lower bounds of which the largest is kept */
#define SOME 32 /* rows of W that are computed exactly at once */

/* Added to a number, it rounds it. */
#define ROUND 0x1.8p23f

static size_t
ld_of(size_t in)
{
    return (in + SHADOW_STEP - 1) / SHADOW_STEP * SHADOW_STEP;
}

/* ---- x in int16 ---- */

/* x in steps of *scale, with zeros after it, and its slack. */
static struct screen_slack
quantize(int16_t *to, float *scale, const float *x, size_t in)
{
    const double most = 0x1p31 / 128 - (double)in;
    double norm = 0, lost = 0, step;
    float rest[UNIT], by;

    for (size_t c = 0, n; c < in; c += n) {
        n = smaller(in - c, UNIT);
        norm += (double)vec_dot(x + c, x + c, n);
    }
    norm = sqrt(norm);
    step = fmax((double)gemm_ops_of(cpu_isa())->absmax(x, DT_F32, in) / 32766,
                norm * sqrt((double)in) * (1 + 0x1p-10) / most);
    *scale = (float)step;
    by = 1 / *scale;
    if (!(step >= 0x1p-80 && step <= 0x1p80)) /* NaN, too */
        return (struct screen_slack){ 0, 0 };
    for (size_t c = 0, n; c < in; c += n) {
        n = smaller(in - c, UNIT);
        for (size_t j = 0; j < n; j++)
            rest[j] = x[c + j] * by + ROUND - ROUND;
        for (size_t j = 0; j < n; j++)
            to[c + j] = (int16_t)(int32_t)rest[j];
        for (size_t j = 0; j < n; j++) /* the product is exact in f64 */
            rest[j] =
                (float)((double)x[c + j] - (double)rest[j] * (double)*scale);
        lost += (double)vec_dot(rest, rest, n);
    }
    memset(to + in, 0, (ld_of(in) - in) * sizeof(*to));
    return screen_slack(in, norm, sqrt(lost));
}

static void
start_rows(void *ctx, size_t begin, size_t end)
{
    const struct screen_batch *b = ctx;
    struct screen_work *w = b->w;
    size_t in = b->s->w.k;

    for (size_t i = begin; i < end; i++)
        w->slack[i] = quantize(w->x + i * ld_of(in), &w->x_scale[i],
                               b->x + i * b->ldx, in);
}

/* ---- all bounds ---- */

/*
 * Of how many lower bounds the largest is kept.  The k-th largest of these is
 * under that of all, as some of the k have a larger one with them, but where
 * there are few of the k, hardly; and there is less to search.
 */
static size_t
fold_of(const struct screen_batch *b)
{
    return b->k * 4 * FOLD <= b->s->w.n ? FOLD : 1;
}

/* U of row i of x and n rows of W from 'first' on, of their sums, and the
 * largest of their lower bounds. */
static void
bound(const struct screen_batch *b, size_t i, size_t first, size_t n)
{
    const struct screen *s = b->s;
    const struct screen_slack slack = b->w->slack[i];
    const size_t fold = fold_of(b);

    shadow_ops_of(cpu_isa())->bound(&(struct shadow_bound){
        .u = b->w->u + i * screen_ld(s->w.n) + first,
        .low = b->w->low + i * screen_units(s->w.n) + first / fold,
        .scale = s->scale + first,
        .bias = s->bias + first,
        .norm = s->shadow.norm + first,
        .lost = s->shadow.lost + first,
        .x_scale = b->w->x_scale[i],
        .a = slack.a,
        .b = slack.b,
        /* screen_least(), with room for its roundings */
        .shrink = 1 - 0x1p-20f,
        .twice = 2 + 0x1p-9f,
        .n = n,
        .width = UNIT / fold,
    });
}

static void
bound_units(void *ctx, size_t begin, size_t end)
{
    const struct screen_batch *b = ctx;
    const struct screen *s = b->s;

    for (size_t unit = begin; unit < end; unit++) {
        size_t first = unit * UNIT, n = smaller(s->w.n - first, UNIT);

        shadow_ops_of(cpu_isa())->products(&(struct shadow_args){
            .t = b->w->u + first,
            .ldt = screen_ld(s->w.n),
            .w = s->int8 + first * s->w.k,
            .rows = n,
            .cols = s->w.k,
            .x = b->w->x,
            .ldx = ld_of(s->w.k),
            .n_x = b->n,
            .ahead = cpu_ahead(),
        });
        for (size_t i = 0; i < b->n; i++)
            if (b->w->slack[i].a > 0)
                bound(b, i, first, n);
    }
}

/* ---- which can be among the k largest ---- */

/* Those of n bounds that are over 0 and reach 'least': their indices, ascending
 * and at most 'most'.  Returns how many, or SIZE_MAX. */
static size_t
reaching(uint32_t *idx, const float *u, size_t n, float least, size_t most)
{
    const struct sums_ops *ops = sums_ops_of(cpu_isa());
    size_t m = 0;

    for (size_t c = 0; c < n; c += 64) {
        uint64_t bits =
            ops->outside(u + c, smaller(n - c, 64), -INFINITY, least);

        for (; bits; bits &= bits - 1) {
            if (m == most)
                return SIZE_MAX;
            idx[m++] = (uint32_t)c + (uint32_t)__builtin_ctzll(bits);
        }
    }
    return m;
}

/* Of row i's bounds, which are lost, those that may be over their thresholds,
 * as reaching(). */
static size_t
reaching_thresholds(const struct screen_batch *b, size_t i, uint32_t *idx,
                    size_t most)
{
    float *u = b->w->u + i * screen_ld(b->s->w.n);

    b->ops->axpy(u, -SCREEN_UNDER, b->thresholds, b->s->w.n);
    return reaching(idx, u, b->s->w.n, 0, most);
}

/* The same of the k largest. */
static size_t
reaching_kth(const struct screen_batch *b, size_t i, size_t thread,
             uint32_t *near, size_t most)
{
    struct screen_work *w = b->w;
    size_t kept = screen_kept(w->k), n;
    uint32_t *idx = w->idx + thread * 2 * kept;
    float *v = w->v + thread * 2 * kept, least = INFINITY;
    size_t cap = topk_cap(kept), n_low = screen_units(b->s->w.n);
    struct topk top;

    topk_start(&top, w->keys + thread * SCREEN_ROWS * cap,
               w->scratch + thread * cap, b->k);
    topk_put(&top, w->low + i * n_low, 0, n_low / fold_of(b));
    n = topk_take(&top, idx, v);
    for (size_t j = 0; j < n; j++)
        least = fminf(least, v[j]);
    /* under what screen_most() of any U that reaches the k-th */
    least = n < b->k ? 0 : least * (1 - 0x1p-20f);
    return reaching(near, w->u + i * screen_ld(b->s->w.n), b->s->w.n, least,
                    most);
}

static void
find_near(void *ctx, size_t begin, size_t end, int thread)
{
    struct screen_batch *b = ctx;
    struct screen_work *w = b->w;
    size_t most = screen_near(b->s->w.n);

    for (size_t i = begin; i < end; i++) {
        uint32_t *near = w->near + i * most;
        size_t n = SIZE_MAX;

        if (w->slack[i].a > 0)
            n = b->thresholds ? reaching_thresholds(b, i, near, most)
                              : reaching_kth(b, i, (size_t)thread, near, most);
        b->found.proved[i] = n != SIZE_MAX;
        w->n_near[i] = n == SIZE_MAX ? 0 : n;
    }
}

/* ---- their exact products ---- */

/* Units are SOME of a row's. */
static void
rescore_units(void *ctx, size_t begin, size_t end)
{
    const struct screen_batch *b = ctx;
    struct screen_work *w = b->w;
    size_t most = screen_near(b->s->w.n), unit = 0;

    for (size_t i = 0; i < b->n; i++)
        for (size_t j = 0; j < w->n_near[i]; j += SOME, unit++)
            if (unit >= begin && unit < end)
                screen_rescore(b, i, w->near + i * most + j,
                               w->p + i * most + j,
                               smaller(w->n_near[i] - j, SOME));
}

/* Are the exact products of row i within their bounds?  Where a stored shadow
 * was made of another W, they need not be.  'room' is far more than roundings.
 */
static bool
bounds_hold(const struct screen_batch *b, size_t i)
{
    const struct screen_work *w = b->w;
    const float *u = w->u + i * screen_ld(b->s->w.n);
    const struct screen_slack slack = w->slack[i];
    const struct screen *s = b->s;
    size_t first = i * screen_near(s->w.n);

    for (size_t j = first; j < first + w->n_near[i]; j++) {
        uint32_t row = w->near[j];
        float p = w->p[j] + s->bias[row];
        double t = b->thresholds ? (double)b->thresholds[row] : 0;
        double most = (double)u[row] + (double)SCREEN_UNDER * t;
        double room = 0x1p-10 * (fabs(most) + t);
        double width = (2 + 0x1p-8) * (double)(slack.a * s->shadow.norm[row] +
                                               slack.b * s->shadow.lost[row]);

        /* NaN, too */
        if (!((double)p <= most + room && (double)p >= most - width - room))
            return false;
    }
    return true;
}

static void
finish_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct screen_batch *b = ctx;
    struct screen_work *w = b->w;
    size_t most = screen_near(b->s->w.n);

    for (size_t i = begin; i < end; i++) {
        b->found.proved[i] = b->found.proved[i] && bounds_hold(b, i);
        if (b->found.proved[i])
            screen_finish(b, i, (size_t)thread, w->near + i * most,
                          w->p + i * most, w->n_near[i]);
    }
}

void
screen_by_shadow(struct screen_batch *b)
{
    struct screen_work *w = b->w;
    struct par *par = gemm_par(w->gemm);
    size_t n_units = 0;

    par_for(par, b->n, 4, start_rows, b);
    par_for(par, (b->s->w.n + UNIT - 1) / UNIT, 1, bound_units, b);
    par_for_thread(par, b->n, 1, find_near, b);
    for (size_t i = 0; i < b->n; i++)
        n_units += (w->n_near[i] + SOME - 1) / SOME;
    par_for(par, n_units, 1, rescore_units, b);
    par_for_thread(par, b->n, 1, finish_rows, b);
}
