/* stats --svg: the deviations of all dims. */
#include "cmd/saev-read/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/svg.h"
#include "core/tty.h"

/* Pixels. */
#define WIDTH      760
#define HEIGHT     430
#define LEFT       70
#define TITLE_X    12
#define TOP        44
#define INNER_W    560.0
#define INNER_H    320.0
#define LABEL_X    646
#define LABEL_GAP  15
#define PATH_CHARS 44 /* of the dump's path: its end */
#define N_TICKS    6  /* of the ranks, at most */

#define MAX_NAMED 20
#define OUTLIER   3.0 /* times the median deviation: labelled */

struct bar {
    double std;
    size_t dim;
};

/* Dims that deviate, the largest first. */
struct spectrum {
    struct bar *bars; /* [n] */
    size_t n, n_constant, n_unknown;
    size_t n_named;
    double median;
    double low, high; /* powers of ten around all */
};

static int
by_std(const void *pa, const void *pb)
{
    const struct bar *a = pa, *b = pb;

    if (a->std != b->std)
        return a->std > b->std ? -1 : 1;
    return a->dim < b->dim ? -1 : a->dim > b->dim;
}

static int
spectrum_of(struct spectrum *s, const struct dump_stats *st, struct err *err)
{
    *s = (struct spectrum){ .low = 0.1, .high = 1 };
    s->bars = mem_try(st->d, sizeof(*s->bars), "a spectrum", err);
    if (!s->bars)
        return -1;
    for (size_t i = 0; i < st->d; i++) {
        double std = moments_std(&st->dims[i]);

        if (std > 0)
            s->bars[s->n++] = (struct bar){ std, i };
        else if (isnan(std))
            s->n_unknown++;
        else
            s->n_constant++;
    }
    if (s->n == 0)
        return 0;
    qsort(s->bars, s->n, sizeof(*s->bars), by_std);
    s->median = (s->bars[(s->n - 1) / 2].std + s->bars[s->n / 2].std) / 2;
    while (s->n_named < s->n && s->n_named < MAX_NAMED &&
           s->bars[s->n_named].std > OUTLIER * s->median)
        s->n_named++;
    s->low = pow(10, floor(log10(s->bars[s->n - 1].std)));
    s->high = pow(10, ceil(log10(s->bars[0].std)));
    if (s->high <= s->low)
        s->high = 10 * s->low;
    return 0;
}

static double
x_of(const struct spectrum *s, size_t rank)
{
    return LEFT + INNER_W * ((double)rank + 0.5) / (double)s->n;
}

static double
y_of(const struct spectrum *s, double v)
{
    return TOP + INNER_H * log10(s->high / v) / log10(s->high / s->low);
}

int
spectrum_svg(struct out *out, const struct dump_stats *st, struct err *err)
{
    const char *layer = *st->layer_json == '"' ? "all" : st->layer_json;
    struct spectrum s;
    struct str to = { 0 };
    int rc = spectrum_of(&s, st, err), first, last;
    size_t step;

    if (rc < 0)
        return -1;
    svg_begin(&to, WIDTH, HEIGHT);
    str_addf(&to, "<text x=\"%d\" y=\"20\" font-size=\"13\">", TITLE_X);
    svg_name(&to, st->path, strlen(st->path), PATH_CHARS);
    str_addf(&to, ": std of %zu dim%s, view %s, layer %s</text>\n", st->d,
             plural(st->d), st->view, layer);
    str_addf(&to,
             "<text x=\"%d\" y=\"36\">%zu row%s, mean norm %.6g, scalar "
             "%.6g</text>\n",
             TITLE_X, st->n_rows, plural(st->n_rows), st->mean_norm,
             st->scalar);

    /* a line and its number for each power of ten, 12 of them at most */
    first = (int)lrint(log10(s.low));
    last = (int)lrint(log10(s.high));
    for (int e = first; e <= last; e += (last - first) / 12 + 1)
        svg_tick_y(&to, LEFT, y_of(&s, pow(10, e)), INNER_W, 6, pow(10, e));
    for (size_t i = 0, was = SIZE_MAX; s.n && i < N_TICKS; i++) {
        size_t rank = (s.n - 1) * i / (N_TICKS - 1);

        if (rank != was)
            svg_tick_x(&to, x_of(&s, rank), TOP + INNER_H, 6, (double)rank + 1);
        was = rank;
    }
    str_addf(&to,
             "<text x=\"%d\" y=\"%.0f\">rank of the dim, largest std first"
             "</text>\n",
             LEFT, TOP + INNER_H + 36);
    str_addf(&to,
             "<text x=\"%d\" y=\"%.0f\">median %.4g; %zu dim%s with std 0, %zu "
             "without numbers</text>\n",
             LEFT, TOP + INNER_H + 52, s.median, s.n_constant,
             plural(s.n_constant), s.n_unknown);

    /* at most two points a pixel: the eye sees no more */
    step = s.n / (2 * (size_t)INNER_W) + 1;
    if (s.n)
        svg_line_begin(&to);
    for (size_t i = 0; i < s.n; i += step)
        svg_line_to(&to, x_of(&s, i), y_of(&s, s.bars[i].std));
    if (s.n)
        svg_line_end(&to);

    /* dots on the curve, and their names in the margin, in the same order */
    if (s.n_named)
        str_addf(&to, "<text x=\"%d\" y=\"%d\">over %g x median:</text>\n",
                 LABEL_X, TOP + 4, OUTLIER);
    for (size_t i = 0; i < s.n_named; i++)
        str_addf(&to,
                 "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"#c30\"/>"
                 "<text x=\"%d\" y=\"%zu\">dim %zu: %.4g</text>\n",
                 x_of(&s, i), y_of(&s, s.bars[i].std), LABEL_X,
                 TOP + 22 + LABEL_GAP * i, s.bars[i].dim, s.bars[i].std);
    svg_end(&to);
    rc = out_write(out, to.s, to.n, err);
    free(s.bars);
    str_free(&to);
    return rc;
}
