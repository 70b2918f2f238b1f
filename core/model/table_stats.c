/* SPDX-License-Identifier: ISC */
#include "core/model/table_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"

#define N_BUCKETS ((size_t)1 << 17) /* of f32's bits from the 15th up */

const char *const table_metric_names[TABLE_N_METRICS] = {
    "rows",           "bad_rows",    "active_mean",
    "positives_mean", "dead",        "fvu_input",
    "threshold",      "exceed",      "compensated_mean",
    "fvu_output",     "rel_l2",      "row_rel_l2_p99",
    "row_rel_l2_max", "cosine_mean", "cosine_min",
    "max_abs",
};

/* The spread of vectors about their mean, by sums of what they differ from the
 * first one in. */
struct spread {
    size_t dim;
    double *first, *sum, *square; /* [dim] */
};

struct table_stats {
    size_t in, out, n_basis;
    double threshold;
    struct spread x, y;
    double active, positives, over, fixed_sum;
    double error2, diff2, dense2; /* squares: x - x^, y - Y, Y */
    double cosine_sum, cosine_min, max_abs, row_max;
    uint64_t rows, bad_rows, n_cosines;
    uint64_t *fixed;   /* [in] */
    uint64_t *buckets; /* [N_BUCKETS] rows by their rel_l2 */
    bool *alive;       /* [n_basis] */
};

static void
spread_add(struct spread *s, const float *x, bool first)
{
    for (size_t i = 0; i < s->dim; i++) {
        double v;

        if (first)
            s->first[i] = (double)x[i];
        v = (double)x[i] - s->first[i];
        s->sum[i] += v;
        s->square[i] += v * v;
    }
}

static double
spread_total(const struct spread *s, uint64_t n)
{
    double total = 0;

    for (size_t i = 0; i < s->dim; i++)
        total += s->square[i] - s->sum[i] * s->sum[i] / (double)n;
    return total;
}

struct table_stats *
table_stats_new(const struct table *t, double threshold)
{
    struct table_stats *s = xcalloc(1, sizeof(*s));

    s->in = t->in;
    s->out = t->out;
    s->n_basis = t->n_basis;
    s->threshold = threshold;
    s->cosine_min = INFINITY;
    for (int i = 0; i < 2; i++) {
        struct spread *p = i ? &s->y : &s->x;

        p->dim = i ? t->out : t->in;
        p->first = xcalloc(p->dim, sizeof(double));
        p->sum = xcalloc(p->dim, sizeof(double));
        p->square = xcalloc(p->dim, sizeof(double));
    }
    s->fixed = xcalloc(t->in, sizeof(*s->fixed));
    s->buckets = xcalloc(N_BUCKETS, sizeof(*s->buckets));
    s->alive = xcalloc(t->n_basis, sizeof(*s->alive));
    return s;
}

void
table_stats_free(struct table_stats *s)
{
    if (!s)
        return;
    for (int i = 0; i < 2; i++) {
        free((i ? &s->y : &s->x)->first);
        free((i ? &s->y : &s->x)->sum);
        free((i ? &s->y : &s->x)->square);
    }
    free(s->fixed);
    free(s->buckets);
    free(s->alive);
    free(s);
}

void
table_stats_add(struct table_stats *s, const struct table_work *work,
                const float *y, size_t ldy, const float *dense, size_t ldd,
                const float *x, size_t ldx, size_t n)
{
    for (size_t i = 0; i < n; i++, x += ldx, y += ldy, dense += ldd) {
        struct table_row row = table_row(work, i);
        double diff2 = 0, dense2 = 0, y2 = 0, dot = 0, rel;

        if (row.bad || !cvt_fits(y, DT_F32, s->out) ||
            !cvt_fits(dense, DT_F32, s->out) || !cvt_fits(x, DT_F32, s->in) ||
            !cvt_fits(row.error, DT_F32, s->in)) {
            s->bad_rows++;
            continue;
        }
        spread_add(&s->x, x, s->rows == 0);
        for (size_t d = 0; d < s->in; d++) {
            double e = (double)row.error[d];

            s->error2 += e * e;
            s->over += fabs(e) > s->threshold;
        }
        for (size_t k = 0; k < row.n; k++)
            s->alive[row.idx[k]] = true;
        for (size_t k = 0; k < row.n_fixed; k++)
            s->fixed[row.fixed[k]]++;
        s->active += (double)row.n;
        s->positives += (double)row.positives;
        s->fixed_sum += (double)row.n_fixed;

        spread_add(&s->y, dense, s->rows == 0);
        for (size_t c = 0; c < s->out; c++) {
            double a = (double)y[c], b = (double)dense[c], d = fabs(a - b);

            diff2 += d * d;
            y2 += a * a;
            dense2 += b * b;
            dot += a * b;
            s->max_abs = d > s->max_abs ? d : s->max_abs;
        }
        s->diff2 += diff2;
        s->dense2 += dense2;
        rel = diff2 == 0 ? 0 : sqrt(diff2 / dense2);
        s->buckets[f32_bits((float)rel) >> 14]++;
        s->row_max = rel > s->row_max ? rel : s->row_max;
        if (y2 > 0 && dense2 > 0) {
            double cosine = dot / sqrt(y2 * dense2);

            s->n_cosines++;
            s->cosine_sum += cosine;
            s->cosine_min = cosine < s->cosine_min ? cosine : s->cosine_min;
        }
        s->rows++;
    }
}

void
table_stats_get(const struct table_stats *s, double v[TABLE_N_METRICS])
{
    double n = (double)s->rows, p99;
    uint64_t left = s->rows - s->rows / 100, bucket = 0;
    size_t dead = s->n_basis;

    /* the smallest bucket that 99 of 100 rows are not over: its upper end */
    for (; s->buckets[bucket] < left; bucket++)
        left -= s->buckets[bucket];
    p99 = bucket ? (double)f32_from_bits((uint32_t)(bucket + 1) << 14) : 0;

    for (size_t i = 0; i < s->n_basis; i++)
        dead -= s->alive[i];
    v[TABLE_ROWS] = n;
    v[TABLE_BAD_ROWS] = (double)s->bad_rows;
    v[TABLE_ACTIVE] = s->active / n;
    v[TABLE_POSITIVES] = s->positives / n;
    v[TABLE_DEAD] = (double)dead;
    v[TABLE_FVU_INPUT] = s->error2 / spread_total(&s->x, s->rows);
    v[TABLE_THRESHOLD] = s->threshold;
    v[TABLE_EXCEED] = isnan(s->threshold) ? NAN : s->over / n / (double)s->in;
    v[TABLE_FIXED] = s->fixed_sum / n;
    v[TABLE_FVU_OUTPUT] = s->diff2 / spread_total(&s->y, s->rows);
    v[TABLE_REL_L2] = sqrt(s->diff2 / s->dense2);
    v[TABLE_ROW_P99] = s->rows ? fmin(p99, s->row_max) : NAN;
    v[TABLE_ROW_MAX] = s->rows ? s->row_max : NAN;
    v[TABLE_COSINE_MEAN] = s->cosine_sum / (double)s->n_cosines;
    v[TABLE_COSINE_MIN] = s->n_cosines ? s->cosine_min : NAN;
    v[TABLE_MAX_ABS] = s->rows ? s->max_abs : NAN;
}

const uint64_t *
table_stats_fixed(const struct table_stats *s)
{
    return s->fixed;
}
