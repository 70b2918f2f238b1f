/* Histograms: their range and bins, and the drawing, as rows and as SVG. */
#include "cmd/st-inspect/stats.h"

#include <math.h>
#include <string.h>

#include "cmd/st-inspect/text.h"
#include "core/plot.h"
#include "core/svg.h"
#include "core/tty.h"

#define BAR_COLUMNS 40

/* An SVG is a grid of small plots, each with its tensor's name. */
#define GRID_COLUMNS 4
#define CELL_WIDTH   340 /* pixels, with its margins */
#define CELL_LEFT    64
#define CELL_HEIGHT  140
#define TITLE_HEIGHT 28
#define INNER_W      236.0
#define INNER_H      72.0
#define NAME_CHARS   38 /* of a name; names differ at the end */
#define X_CHARS      11 /* of a number below */
#define PATH_CHARS   60

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
hist_rows(struct str *to, const struct tensor_stats *st, size_t n_bins,
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
        str_esc(to, t->name, t->name_n);
        str_addc(to, '\t');
        put_g6_tab(to, hist_edge(st, n_bins, i));
        put_g6_tab(to, hist_edge(st, n_bins, i + 1));
        put_u64_tab(to, st->hist[i]);
        for (; eighths >= 8; eighths -= 8)
            str_adds(to, "█");
        str_addf(to, "%s\n", parts[eighths]);
    }
}

void
hist_plot(struct str *to, const struct tensor_stats *st, size_t n_bins,
          const struct st_tensor *t)
{
    const struct plot_axes axes = { .x = "value",
                                    .y = "elements",
                                    .left = st->lo,
                                    .right = st->hi,
                                    .whole_y = true };
    double counts[MAX_BINS];

    for (size_t i = 0; st->n_finite && i < n_bins; i++)
        counts[i] = (double)st->hist[i];
    str_esc_end(to, t->name, t->name_n, NAME_CHARS);
    str_adds(to, ": ");
    plot_columns(to, &axes, counts, st->n_finite ? n_bins : 0);
    str_addc(to, '\n');
}

int
hist_svg(struct out *out, const struct inspect_cmd *cmd,
         const struct selection *sel, const struct tensor_stats *stats,
         struct err *err)
{
    size_t n_rows = (sel->n + GRID_COLUMNS - 1) / GRID_COLUMNS;
    size_t n_bins = (size_t)cmd->n_bins;
    double width = INNER_W / (double)n_bins, bottom = 26 + INNER_H;
    struct str to = { 0 };
    int rc = 0;

    svg_begin(&to, GRID_COLUMNS * CELL_WIDTH,
              TITLE_HEIGHT + n_rows * CELL_HEIGHT);
    str_adds(&to, "<text x=\"12\" y=\"20\" font-size=\"13\">");
    svg_name(&to, sel->dir.path, strlen(sel->dir.path), PATH_CHARS);
    str_addf(&to, ": elements by value, of %zu tensor%s in %zu bin%s</text>\n",
             sel->n, plural(sel->n), n_bins, plural(n_bins));
    for (size_t i = 0; rc == 0 && i < sel->n; i++) {
        const struct st_tensor *t = sel->t[i]->t;
        const struct tensor_stats *st = &stats[i];
        uint64_t max = highest(st, n_bins);
        const uint64_t counts[] = { 0, max, max / 2 };
        const double values[] = { st->lo, st->lo / 2 + st->hi / 2, st->hi };
        double largest = fmax(fabs(st->lo), fabs(st->hi));
        int digits = svg_digits(
            values, 3, scale_digits(largest, st->hi / 2 - st->lo / 2, 3),
            X_CHARS);

        str_addf(&to, "<g transform=\"translate(%zu,%zu)\">",
                 CELL_LEFT + i % GRID_COLUMNS * CELL_WIDTH,
                 TITLE_HEIGHT + i / GRID_COLUMNS * CELL_HEIGHT);
        /* The title, which appears when the pointer is on the plot, has the
         * whole name. */
        str_adds(&to, "<title>");
        svg_name(&to, t->name, t->name_n, SIZE_MAX);
        str_adds(&to, "</title><text x=\"-52\" y=\"14\">");
        svg_name(&to, t->name, t->name_n, NAME_CHARS);
        str_adds(&to, "</text>\n");
        for (int k = 0; st->n_finite && k < 2 + (max > 1); k++)
            svg_tick_y(&to, 0,
                       bottom - INNER_H * (double)counts[k] / (double)max,
                       INNER_W, max < 1000000 ? 6 : 3, (double)counts[k]);
        for (int k = 0; st->n_finite && k <= 2; k++)
            svg_tick_x(&to, INNER_W * k / 2, bottom, digits, values[k]);
        for (size_t k = 0; st->n_finite && k < n_bins; k++) {
            double h = INNER_H * (double)st->hist[k] / (double)max;

            if (st->hist[k])
                str_addf(&to,
                         "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                         "height=\"%.2f\"/>\n",
                         (double)k * width, bottom - h, width * 0.92, h);
        }
        str_adds(&to, "</g>\n");
        rc = out_write(out, to.s, to.n, err);
        str_clear(&to);
    }
    svg_end(&to);
    rc = rc == 0 ? out_write(out, to.s, to.n, err) : rc;
    str_free(&to);
    return rc;
}
