#include "core/model/table_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define N_BUCKETS ((size_t)1 << 17) /* of f32's bits from the 15th up */

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
spread_new(struct spread *s, size_t dim)
{
    s->dim = dim;
    s->first = xcalloc(dim, sizeof(double));
    s->sum = xcalloc(dim, sizeof(double));
    s->square = xcalloc(dim, sizeof(double));
}

static void
spread_free(struct spread *s)
{
    free(s->first);
    free(s->sum);
    free(s->square);
}

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
    spread_new(&s->x, t->in);
    spread_new(&s->y, t->out);
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
    spread_free(&s->x);
    spread_free(&s->y);
    free(s->fixed);
    free(s->buckets);
    free(s->alive);
    free(s);
}

static bool
all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static void
add_input(struct table_stats *s, const struct table_row *row, const float *x)
{
    spread_add(&s->x, x, s->rows == 0);
    for (size_t d = 0; d < s->in; d++) {
        double e = (double)row->error[d];

        s->error2 += e * e;
        s->over += fabs(e) > s->threshold;
    }
    for (size_t i = 0; i < row->n; i++)
        s->alive[row->idx[i]] = true;
    for (size_t i = 0; i < row->n_fixed; i++)
        s->fixed[row->fixed[i]]++;
    s->active += (double)row->n;
    s->positives += (double)row->positives;
    s->fixed_sum += (double)row->n_fixed;
}

static void
add_row_error(struct table_stats *s, double rel)
{
    s->buckets[f32_bits((float)rel) >> 14]++;
    s->row_max = rel > s->row_max ? rel : s->row_max;
}

static void
add_output(struct table_stats *s, const float *y, const float *dense)
{
    double diff2 = 0, dense2 = 0, y2 = 0, dot = 0;

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
    add_row_error(s, diff2 == 0 ? 0 : sqrt(diff2 / dense2));
    if (y2 > 0 && dense2 > 0) {
        double cosine = dot / sqrt(y2 * dense2);

        s->n_cosines++;
        s->cosine_sum += cosine;
        s->cosine_min = cosine < s->cosine_min ? cosine : s->cosine_min;
    }
}

void
table_stats_add(struct table_stats *s, const struct table_work *work,
                const float *y, size_t ldy, const float *dense, size_t ldd,
                const float *x, size_t ldx, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct table_row row = table_row(work, i);

        if (row.bad || !all_finite(y + i * ldy, s->out) ||
            !all_finite(dense + i * ldd, s->out) ||
            !all_finite(x + i * ldx, s->in) || !all_finite(row.error, s->in)) {
            s->bad_rows++;
            continue;
        }
        add_input(s, &row, x + i * ldx);
        add_output(s, y + i * ldy, dense + i * ldd);
        s->rows++;
    }
}

/* The smallest bucket that 99 of 100 rows are not over, its upper end. */
static double
p99(const struct table_stats *s)
{
    uint64_t left = s->rows - s->rows / 100, i = 0;
    double v;

    for (; s->buckets[i] < left; i++)
        left -= s->buckets[i];
    v = (double)f32_from_bits((uint32_t)(i + 1) << 14);
    return i == 0 ? 0 : v < s->row_max ? v : s->row_max;
}

void
table_stats_get(const struct table_stats *s, struct table_report *r)
{
    double n = (double)s->rows;

    *r = (struct table_report){
        .rows = s->rows,
        .bad_rows = s->bad_rows,
        .active_mean = s->active / n,
        .positives_mean = s->positives / n,
        .dead = s->n_basis,
        .fvu_input = s->error2 / spread_total(&s->x, s->rows),
        .exceed = isnan(s->threshold) ? NAN : s->over / n / (double)s->in,
        .fixed_mean = s->fixed_sum / n,
        .fvu_output = s->diff2 / spread_total(&s->y, s->rows),
        .rel_l2 = sqrt(s->diff2 / s->dense2),
        .row_p99 = s->rows ? p99(s) : NAN,
        .row_max = s->rows ? s->row_max : NAN,
        .cosine_mean = s->cosine_sum / (double)s->n_cosines,
        .cosine_min = s->n_cosines ? s->cosine_min : NAN,
        .max_abs = s->rows ? s->max_abs : NAN,
    };
    for (size_t i = 0; i < s->n_basis; i++)
        r->dead -= s->alive[i];
}

const uint64_t *
table_stats_fixed(const struct table_stats *s)
{
    return s->fixed;
}
