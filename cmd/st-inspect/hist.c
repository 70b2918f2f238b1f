/* SPDX-License-Identifier: ISC */
/* Histograms: their range and bins, and the drawing, as rows and as SVG. */
#include "cmd/st-inspect/stats.h"

#include <math.h>
#include <string.h>

#include "cmd/st-inspect/text.h"
#include "core/chart.h"
#include "core/tty.h"

#define BAR_COLUMNS 40

void
hist_range(struct tensor_stats *st)
{
    st->lo = st->min;
    st->hi = st->max;
    if (st->lo == st->hi) { /* beyond 2^52 a half would be lost */
        double half = fmax(0.5, fabs(st->lo) * 0x1p-52);

        st->lo -= half;
        st->hi += half;
    }
}

static double
hist_edge(const struct tensor_stats *st, size_t n_bins, size_t i)
{
    /* halved: the difference of the largest numbers would be infinite */
    double step = (st->hi / 2 - st->lo / 2) / (double)n_bins * 2;

    if (i == n_bins)
        return st->hi;
    if (isinf((double)i * step))
        return (st->lo / 2 + (double)i * (step / 2)) * 2;
    return st->lo + (double)i * step;
}

/* As numpy.histogram: each bin holds its lower edge, the last one both. */
size_t
hist_bin(const struct tensor_stats *st, size_t n_bins, double v)
{
    double x = (v / 2 - st->lo / 2) / (st->hi / 2 - st->lo / 2);
    double at = x * (double)n_bins; /* NaN where a range has no half */
    size_t i = !(at > 0) ? 0 : at >= (double)n_bins ? n_bins - 1 : (size_t)at;

    if (i > 0 && v < hist_edge(st, n_bins, i))
        i--;
    else if (i + 1 < n_bins && v >= hist_edge(st, n_bins, i + 1))
        i++;
    return i;
}

static uint64_t
highest(const struct tensor_stats *st, size_t n_bins)
{
    uint64_t max = 1;

    for (size_t i = 0; i < n_bins; i++)
        if (st->hist[i] > max)
            max = st->hist[i];
    return max;
}

void
hist_rows(struct record *row, const struct tensor_stats *st, size_t n_bins,
          const struct st_tensor *t)
{
    static const char *const parts[8] = {
        "", "▏", "▎", "▍", "▌", "▋", "▊", "▉"
    };
    uint64_t max = highest(st, n_bins);

    for (size_t i = 0; st->n_finite && i < n_bins; i++) {
        double share = (double)st->hist[i] / (double)max;
        /* of a column; whatever is not zero shows */
        unsigned eighths = (unsigned)lrint(share * BAR_COLUMNS * 8);

        if (st->hist[i] && eighths == 0)
            eighths = 1;
        record_begin(row);
        record_text(row, "name", t->name, t->name_n);
        record_f64(row, "from", hist_edge(st, n_bins, i));
        record_f64(row, "to", hist_edge(st, n_bins, i + 1));
        record_u64(row, "count", st->hist[i]);
        record_key(row, "bar");
        for (; eighths >= 8; eighths -= 8)
            str_adds(row->to, "█");
        str_adds(row->to, parts[eighths]);
        record_end(row);
    }
}

/* 'counts' are the chart's. */
static struct chart
hist_chart(const struct tensor_stats *st, size_t n_bins,
           const struct st_tensor *t, double *counts)
{
    for (size_t i = 0; st->n_finite && i < n_bins; i++)
        counts[i] = (double)st->hist[i];
    return (struct chart){ .title = t->name,
                           .title_n = t->name_n,
                           .x = "value",
                           .y = "elements",
                           .left = st->lo,
                           .right = st->hi,
                           .whole_y = true,
                           .columns = counts,
                           .n_columns = st->n_finite ? n_bins : 0 };
}

void
hist_plot(struct str *to, const struct tensor_stats *st, size_t n_bins,
          const struct st_tensor *t)
{
    double counts[MAX_BINS];
    struct chart c = hist_chart(st, n_bins, t, counts);

    chart_text(to, &c);
    str_addc(to, '\n');
}

int
hist_svg(struct out *out, const struct inspect_cmd *cmd,
         const struct selection *sel, const struct tensor_stats *stats,
         struct err *err)
{
    size_t n_bins = (size_t)cmd->n_bins;
    struct str to = { 0 }, about = { 0 };
    double counts[MAX_BINS];
    int rc = 0;

    str_addf(&about, ": elements by value, of %zu tensor%s in %zu bin%s",
             sel->n, plural(sel->n), n_bins, plural(n_bins));
    chart_grid_begin(&to, sel->dir.path, about.s, sel->n);
    for (size_t i = 0; rc == 0 && i < sel->n; i++) {
        struct chart c = hist_chart(&stats[i], n_bins, sel->t[i]->t, counts);

        chart_grid_add(&to, &c, i);
        rc = out_write(out, to.s, to.n, err);
        str_clear(&to);
    }
    chart_grid_end(&to);
    rc = rc == 0 ? out_write(out, to.s, to.n, err) : rc;
    str_free(&about);
    str_free(&to);
    return rc;
}
