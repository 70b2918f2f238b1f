/* The log of a training run, and its picture. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/moe-sft/train.h"
#include "core/out.h"
#include "core/svg.h"

/* Pixels. */
#define WIDTH   640
#define HEIGHT  400
#define LEFT    70
#define TOP     44
#define INNER_W 540.0
#define INNER_H 290.0

#define N_TICKS  5
#define N_POINTS ((size_t)540) /* at most; each is the mean of some steps */

void
log_head(struct str *to)
{
    str_adds(to, "step\tloss\tlr\tgrad_norm\ttokens\n");
}

void
log_line(struct str *to, uint64_t step, const struct step_record *r)
{
    str_addf(to, "%llu\t%.9g\t%.9g\t%.9g\t%.0f\n", (unsigned long long)step,
             r->loss, r->lr, r->grad_norm, r->tokens);
}

void
log_print(const struct str *text, int *first_errno)
{
    if (out_stdout_ready() &&
        (fputs(text->s, stdout) == EOF || fflush(stdout) == EOF) &&
        !*first_errno)
        *first_errno = errno;
}

/* Points of the curve: step and log10 of the loss. */
struct curve {
    size_t n;
    double x[N_POINTS], y[N_POINTS];
    double bottom, top; /* of y: logs of 1, 2 or 5 times powers of ten */
    long low, high;     /* their ticks */
    double last;        /* step */
};

/* 10^tick(i) is 1, 2, 5, 10, .. */
static double
tick(long i)
{
    static const double marks[] = { 1, 2, 5 };
    long decade = i >= 0 ? i / 3 : -((2 - i) / 3);

    return (double)decade + log10(marks[i - 3 * decade]);
}

static void
settle_ends(struct curve *c)
{
    long low = -3 * 40, high;

    while (tick(low + 1) <= c->bottom)
        low++;
    for (high = low + 1; tick(high) < c->top; high++)
        ;
    c->bottom = tick(low);
    c->top = tick(high);
    c->low = low;
    c->high = high;
}

static void
settle(struct curve *c, const struct step_record *records, size_t n)
{
    size_t each = (n + N_POINTS - 1) / N_POINTS;

    *c = (struct curve){ .bottom = 1e9, .top = -1e9, .last = (double)n };
    for (size_t i = 0; i < n; i += each, c->n++) {
        size_t end = i + each < n ? i + each : n;
        double sum = 0;

        for (size_t k = i; k < end; k++)
            sum += records[k].loss;
        sum /= (double)(end - i);
        c->x[c->n] = (double)(i + 1 + end) / 2;
        c->y[c->n] = log10(sum > 1e-30 ? fmin(sum, 1e300) : 1e-30);
        c->bottom = fmin(c->bottom, c->y[c->n]);
        c->top = fmax(c->top, c->y[c->n]);
    }
    if (n > 0)
        settle_ends(c);
}

static double
x_of(const struct curve *c, double step)
{
    return LEFT + (c->last > 1 ? INNER_W * (step - 1) / (c->last - 1) : 0);
}

static double
y_of(const struct curve *c, double y)
{
    return TOP + INNER_H * (c->top - y) / (c->top - c->bottom);
}

static void
put_axes(struct str *to, const struct curve *c)
{
    /* over many decades one line for each */
    long each = c->high - c->low > 4 * N_TICKS ? 3 : 1;
    double was = 0;

    for (long i = c->low; i <= c->high; i++)
        if (i % each == 0)
            str_addf(to,
                     "<path d=\"M%d %.1fh%.0f\" stroke=\"#ccc\"/>"
                     "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g"
                     "</text>\n",
                     LEFT, y_of(c, tick(i)), INNER_W, LEFT - 6,
                     y_of(c, tick(i)) + 4, pow(10, tick(i)));
    for (int i = 0; i <= N_TICKS; i++) {
        double step = 1 + floor((c->last - 1) * i / N_TICKS);

        if (step == was)
            continue;
        was = step;
        str_addf(to,
                 "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.0f"
                 "</text>\n",
                 x_of(c, step), TOP + INNER_H + 18, step);
    }
    str_addf(to, "<text x=\"%d\" y=\"%.0f\">step</text>\n", LEFT,
             TOP + INNER_H + 40);
}

void
log_svg(struct str *to, const char *title, const struct step_record *records,
        size_t n)
{
    struct curve c;

    settle(&c, records, n);
    svg_begin(to, WIDTH, HEIGHT);
    str_addf(to, "<text x=\"%d\" y=\"20\" font-size=\"13\">", LEFT);
    svg_name(to, title, strlen(title), SIZE_MAX);
    str_adds(to, ": loss</text>\n");
    if (n > 0) {
        put_axes(to, &c);
        svg_line_begin(to);
        for (size_t i = 0; i < c.n; i++)
            svg_line_to(to, x_of(&c, c.x[i]), y_of(&c, c.y[i]));
        svg_line_end(to);
        str_addf(to,
                 "<text x=\"%d\" y=\"36\">step 1: %.4g; step %zu: "
                 "%.4g</text>\n",
                 LEFT, records[0].loss, n, records[n - 1].loss);
    }
    svg_end(to);
}
