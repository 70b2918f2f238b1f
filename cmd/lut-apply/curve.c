/* --svg: the output's FVU against the ratio of compensated inputs. */
#include "cmd/lut-apply/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/table_stats.h"
#include "core/out.h"
#include "core/svg.h"

/* Pixels. */
#define WIDTH   640
#define HEIGHT  400
#define LEFT    70
#define TOP     44
#define INNER_W 480.0
#define INNER_H 290.0

#define N_POINTS 21 /* ratios 0, 0.05 .. 1 */
#define N_TICKS  5

struct curve {
    struct out *out;
    struct table_stats *stats[N_POINTS];
    double fvu[N_POINTS], top;
};

int
curve_open(struct curve **curve, const struct apply_run *run, struct err *err)
{
    struct curve *c;
    struct out *out;

    *curve = NULL;
    if (!run->cmd->svg)
        return 0;
    if (out_open(&out, run->cmd->svg, run->cmd->out_flags, false, err) < 0)
        return -1;
    c = xcalloc(1, sizeof(*c));
    c->out = out;
    for (size_t i = 0; i < N_POINTS; i++)
        c->stats[i] = table_stats_new(&run->layer.bound.table, NAN);
    *curve = c;
    return 0;
}

static double
ratio_of(size_t i)
{
    return (double)i / (N_POINTS - 1);
}

void
curve_add(struct curve *c, struct apply_run *run, size_t n)
{
    const struct table *t = &run->layer.bound.table;
    struct table_fix fix = { .how = FIX_TOP, .by = run->layer.fix.by };

    for (size_t i = 0; c && i < N_POINTS; i++) {
        fix.top = table_ratio(t->in, ratio_of(i));
        table_combine(run->work, t, run->y, t->out, n);
        table_compensate(run->work, t, &fix, run->y, t->out, run->x, t->in, n,
                         TABLE_ERROR);
        table_stats_add(c->stats[i], run->work, run->y, t->out, run->dense,
                        t->out, run->x, t->in, n);
    }
}

static double
y_of(const struct curve *c, double fvu)
{
    return TOP + INNER_H * (1 - fvu / c->top);
}

/* The axis ends at 1, 2 or 5 times a power of ten, over all points. */
static void
settle_axis(struct curve *c)
{
    double max = 0, unit;

    for (size_t i = 0; i < N_POINTS; i++) {
        struct table_report r;

        table_stats_get(c->stats[i], &r);
        c->fvu[i] = r.fvu_output;
        max = c->fvu[i] > max ? c->fvu[i] : max;
    }
    unit = max > 0 && isfinite(max) ? pow(10, floor(log10(max))) : 1;
    c->top = max <= unit       ? unit
             : max <= 2 * unit ? 2 * unit
             : max <= 5 * unit ? 5 * unit
                               : 10 * unit;
}

static void
put_axes(struct str *to, const struct curve *c)
{
    for (int i = 0; i <= N_TICKS; i++) {
        double v = c->top * i / N_TICKS, x = LEFT + INNER_W * i / N_TICKS;

        str_addf(to,
                 "<path d=\"M%d %.1fh%.0f\" stroke=\"#ccc\"/>"
                 "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                 LEFT, y_of(c, v), INNER_W, LEFT - 6, y_of(c, v) + 4, v);
        str_addf(to,
                 "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.1f"
                 "</text>\n",
                 x, TOP + INNER_H + 18, (double)i / N_TICKS);
    }
    str_addf(to,
             "<text x=\"%d\" y=\"%.0f\">ratio of each row's inputs that are "
             "compensated, the largest errors first</text>\n",
             LEFT, TOP + INNER_H + 40);
}

static void
put_picture(struct str *to, struct curve *c, const struct apply_run *run)
{
    const char *name = run->layer.bound.file.layer->name;
    struct table_report r;

    settle_axis(c);
    table_stats_get(c->stats[0], &r);
    svg_begin(to, WIDTH, HEIGHT);
    str_addf(to, "<text x=\"%d\" y=\"20\" font-size=\"13\">", LEFT);
    svg_name(to, name, strlen(name), SIZE_MAX);
    str_addf(to,
             ": FVU of the output</text>\n<text x=\"%d\" y=\"36\">%llu rows, "
             "%zu of %zu directions</text>\n",
             LEFT, (unsigned long long)r.rows, run->layer.bound.table.k,
             run->layer.bound.table.n_basis);
    put_axes(to, c);
    if (r.rows) {
        svg_line_begin(to);
        for (size_t i = 0; i < N_POINTS; i++)
            svg_line_to(to, LEFT + INNER_W * ratio_of(i), y_of(c, c->fvu[i]));
        svg_line_end(to);
        for (size_t i = 0; i < N_POINTS; i += N_POINTS / 4)
            str_addf(to,
                     "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"#c30\"/>"
                     "<text x=\"%.1f\" y=\"%.1f\">%.3g</text>\n",
                     LEFT + INNER_W * ratio_of(i), y_of(c, c->fvu[i]),
                     LEFT + INNER_W * ratio_of(i) + 5, y_of(c, c->fvu[i]) - 6,
                     c->fvu[i]);
    }
    svg_end(to);
}

int
curve_commit(struct curve *c, const struct apply_run *run, struct err *err)
{
    struct str s = { 0 };
    struct out *out;
    int rc;

    if (!c)
        return 0;
    put_picture(&s, c, run);
    rc = out_write(c->out, s.s, s.n, err);
    str_free(&s);
    if (rc < 0)
        return -1;
    out = c->out;
    c->out = NULL;
    return out_commit(out, err);
}

void
curve_close(struct curve *c)
{
    if (!c)
        return;
    out_abort(c->out);
    for (size_t i = 0; i < N_POINTS; i++)
        table_stats_free(c->stats[i]);
    free(c);
}
