/* SPDX-License-Identifier: ISC */
/* chart.h as SVG: one picture with a margin for names, or a grid of small ones.
 */
#include "core/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"

/* Pixels. */
#define LEFT   70 /* of the y axis */
#define TITLE  12 /* left of the title */
#define TOP    68 /* of the space between the axes */
#define BOTTOM 44 /* below it, without what the lines say */
#define MARGIN 160
#define ROW    15

/* Of a grid of small charts. */
#define GRID_COLUMNS 4
#define CELL_WIDTH   340
#define CELL_LEFT    64
#define CELL_HEIGHT  140
#define CELL_TITLE   38 /* characters; names differ at the end */
#define GRID_TOP     28

#define X_CHARS 11  /* of a number below an axis */
#define X_CHAR  6.9 /* pixels of one, with its part of a space */
#define Y_CHARS 9   /* left of one, which has 60 pixels */

/* Colors that the color-blind tell apart (Okabe and Ito's), on white, and what
 * each is where the viewer is dark. */
#define INK    "#345"
#define BACK   "#fff"
#define TICK   "#888"
#define GRID   "#ccc"
#define DOT    "#d55e00"
#define N_LINE 5 /* of lines, from the fifth row on */
static const char *const colors[][2] = {
    { INK, "#cfd6dd" },       { BACK, "#16181b" },      { TICK, "#8a9098" },
    { GRID, "#3a3e45" },      { "#0072b2", "#56b4e9" }, { DOT, "#e69f00" },
    { "#009e73", "#009e73" }, { "#cc79a7", "#cc79a7" }, { "#666", "#aaa" },
};

static const char *
line_color(size_t i)
{
    return colors[4 + i % N_LINE][0];
}

/* The space between the axes, in pixels. */
struct panel {
    double left, top, width, height;
};

/* Text from a file, escaped, in XML; of one of more columns than 'max' the end
 * alone, after "..."; nbytes 0: a string. */
static void
put_escaped(struct str *to, const char *text, size_t nbytes, size_t max)
{
    struct str s = { 0 };

    str_esc_end(&s, text, nbytes ? nbytes : strlen(text), max);
    str_xml(to, s.s, s.n);
    str_free(&s);
}

static void
put_text(struct str *to, double x, double y, const char *fill, const char *text)
{
    str_addf(to, "<text x=\"%.0f\" y=\"%.0f\"", x, y);
    if (fill)
        str_addf(to, " fill=\"%s\"", fill);
    str_addc(to, '>');
    str_xml(to, text, strlen(text));
    str_adds(to, "</text>\n");
}

/* Opens a picture, with a background of its own and a heading. */
static void
begin(struct str *to, size_t width, double height, const char *title,
      const char *about)
{
    /* a character has 0.62 of 13 pixels at most, 3 are the "..." */
    size_t most = (width - 2 * TITLE) / 8 - 3, used = strlen(about);

    str_addf(to,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" "
             "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"11\" "
             "fill=\"" INK "\">\n<rect width=\"%zu\" height=\"%.0f\" "
             "fill=\"" BACK "\"/>\n",
             width, height, width, height);
    str_adds(to, "<style>@media (prefers-color-scheme:dark){");
    for (size_t i = 0; i < sizeof(colors) / sizeof(*colors); i++)
        str_addf(to, "[fill=\"%s\"]{fill:%s}[stroke=\"%s\"]{stroke:%s}",
                 colors[i][0], colors[i][1], colors[i][0], colors[i][1]);
    str_addf(to, "}</style>\n<text x=\"%d\" y=\"20\" font-size=\"13\">", TITLE);
    put_escaped(to, title, 0, most > used + 8 ? most - used : 8);
    str_xml(to, about, used);
    str_adds(to, "</text>\n");
}

static int
digits_for(const double *v, size_t n, int digits, int n_chars)
{
    for (size_t i = 0; i < n; i++)
        while (digits > 3 && snprintf(NULL, 0, "%.*g", digits, v[i]) > n_chars)
            digits--;
    return digits;
}

static double
x_of(const struct chart *c, const struct panel *p, double x)
{
    struct scale s = { .low = scale_clip(c->left, false),
                       .high = scale_clip(c->right, false) };

    return p->left + (s.high > s.low ? p->width * scale_part(&s, x) : 0);
}

static double
y_of(const struct scale *s, const struct panel *p, double y)
{
    return p->top + p->height * (1 - scale_part(s, y));
}

static void
put_ticks(struct str *to, const struct chart *c, const struct panel *p,
          const struct scale *s)
{
    double x[SCALE_TICKS], bottom = p->top + p->height;
    size_t n = scale_ticks(c->left, c->right, c->whole_x, x), each = 1,
           chars = 0;
    int digits = digits_for(s->tick, s->n, scale_tick_digits(s, 6), Y_CHARS);

    for (size_t i = 0; i < s->n; i++) {
        double y = y_of(s, p, s->tick[i]);

        str_addf(to,
                 "<path class=\"y\" d=\"M%.1f %.1fh%.1f\" stroke=\"" GRID
                 "\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.*g"
                 "</text>\n",
                 p->left - 4, y, p->width + 4, p->left - 6, y + 4, digits,
                 s->tick[i]);
    }
    digits = digits_for(x, n,
                        scale_digits(fmax(fabs(x[0]), fabs(x[n - 1])),
                                     (n > 1 ? x[1] - x[0] : 0) / 10, 6),
                        X_CHARS);
    for (size_t i = 0; i < n; i++)
        chars = larger(chars, (size_t)snprintf(NULL, 0, "%.*g", digits, x[i]));
    while (n > 1 && (double)each * (x_of(c, p, x[1]) - x_of(c, p, x[0])) <
                        (double)chars * X_CHAR)
        each++;
    for (size_t i = 0; i < n; i++) {
        str_addf(to,
                 "<path class=\"x\" d=\"M%.1f %.1fv5\" stroke=\"" TICK "\"/>",
                 x_of(c, p, x[i]), bottom);
        if (i % each == 0)
            str_addf(to,
                     "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.*g"
                     "</text>",
                     x_of(c, p, x[i]), bottom + 18, digits, x[i]);
        str_addc(to, '\n');
    }
}

/* At most two points a pixel: the eye sees no more.  A line of one point is
 * not shown by viewers: it has 8 pixels. */
static void
put_line(struct str *to, const struct chart *c, const struct panel *p,
         const struct scale *s, size_t k)
{
    const struct chart_line *line = &c->lines[k];
    size_t each = line->n / (2 * (size_t)p->width) + 1, n = 0;
    double x = 0, y = 0;

    str_addf(to,
             "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" "
             "points=\"",
             line_color(k));
    for (size_t i = 0; i < line->n; i += each) {
        double v = scale_clip(line->y[i], c->log_y);

        if (isnan(v) || isnan(line->x[i]))
            continue;
        x = x_of(c, p, line->x[i]);
        y = y_of(s, p, v);
        str_addf(to, "%s%.1f,%.1f", n++ ? " " : "", x, y);
    }
    if (n == 1)
        str_addf(to, " %.1f,%.1f", x + 8, y);
    str_adds(to, "\"/>\n");
}

static void
put_columns(struct str *to, const struct chart *c, const struct panel *p,
            const struct scale *s)
{
    double width = p->width / (double)c->n_columns;

    for (size_t i = 0; i < c->n_columns; i++)
        if (c->columns[i] > 0)
            str_addf(to,
                     "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                     "height=\"%.2f\"/>\n",
                     p->left + (double)i * width, y_of(s, p, c->columns[i]),
                     width * 0.92, p->height * scale_part(s, c->columns[i]));
}

static void
put_panel(struct str *to, const struct chart *c, const struct panel *p,
          const struct scale *s)
{
    if (!s->n)
        return;
    put_ticks(to, c, p, s);
    put_columns(to, c, p, s);
    for (size_t k = 0; k < c->n_lines; k++)
        if (c->lines[k].n)
            put_line(to, c, p, s, k);
}

/* Right of the picture: names of lines, or dots on the first and their labels,
 * in the same order. */
static void
put_margin(struct str *to, const struct chart *c, const struct panel *p,
           const struct scale *s)
{
    double x = p->left + p->width + 14, y = p->top + 4;
    struct str text = { 0 };

    for (size_t k = 0; k < c->n_lines && c->lines[k].name; k++) {
        if (k < CHART_MAX_NAMES)
            str_esc_end(&text, c->lines[k].name, strlen(c->lines[k].name),
                        CHART_LABEL_MAX - 3);
        else
            str_addf(&text, "and %zu more", c->n_lines - k);
        put_text(to, x, y += ROW, line_color(k), text.s);
        str_clear(&text);
        if (k == CHART_MAX_NAMES)
            break;
    }
    if (c->n_marks)
        put_text(to, x, y, NULL, c->marked);
    for (size_t i = 0; i < c->n_marks; i++) {
        const struct chart_mark *m = &c->marks[i];

        str_addf(to,
                 "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"" DOT "\"/>",
                 x_of(c, p, m->x), y_of(s, p, scale_clip(m->v, c->log_y)));
        str_addf(&text, "%s: %.4g", m->label, m->v);
        put_text(to, x, y += ROW, NULL, text.s);
        str_clear(&text);
    }
    str_free(&text);
}

void
chart_svg(struct str *to, const struct chart *c)
{
    struct panel p = { LEFT, TOP, 560, 300 };
    bool margin = c->n_marks || (c->n_lines && c->lines[0].name);
    struct scale s = chart_scale(c);
    double y = TOP + p.height + BOTTOM;
    struct str axes = { 0 };
    size_t n_rows = 0;

    for (size_t k = 0; k < c->n_lines; k++)
        n_rows += c->lines[k].says != NULL;
    begin(to, (size_t)(LEFT + p.width) + (margin ? MARGIN : 24),
          y + (double)n_rows * ROW + 12, c->title, c->about);
    if (c->subtitle)
        put_text(to, TITLE, 36, NULL, c->subtitle);
    put_panel(to, c, &p, &s);
    put_margin(to, c, &p, &s);
    str_addf(&axes, "%s%s", c->y, s.log ? ", on a log scale" : "");
    put_text(to, TITLE, TOP - 10, NULL, axes.s);
    str_addf(to, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">",
             LEFT + p.width / 2, y - 8);
    str_xml(to, c->x, strlen(c->x));
    str_adds(to, "</text>\n");
    for (size_t k = 0; k < c->n_lines; k++)
        if (c->lines[k].says)
            put_text(to, LEFT, y += ROW, c->n_lines > 1 ? line_color(k) : NULL,
                     c->lines[k].says);
    str_adds(to, "</svg>\n");
    str_free(&axes);
}

void
chart_grid_begin(struct str *to, const char *title, const char *about, size_t n)
{
    size_t n_rows = (n + GRID_COLUMNS - 1) / GRID_COLUMNS;

    begin(to, GRID_COLUMNS * CELL_WIDTH,
          (double)(GRID_TOP + n_rows * CELL_HEIGHT), title, about);
}

/* The title, which appears when the pointer is on the plot, is whole. */
void
chart_grid_add(struct str *to, const struct chart *c, size_t i)
{
    const struct panel p = { 0, 26, 236, 72 };
    struct scale s = chart_scale(c);

    str_addf(to, "<g transform=\"translate(%zu,%zu)\"><title>",
             CELL_LEFT + i % GRID_COLUMNS * CELL_WIDTH,
             GRID_TOP + i / GRID_COLUMNS * CELL_HEIGHT);
    put_escaped(to, c->title, c->title_n, SIZE_MAX);
    str_adds(to, "</title><text x=\"-52\" y=\"14\">");
    put_escaped(to, c->title, c->title_n, CELL_TITLE);
    str_adds(to, "</text>\n");
    put_panel(to, c, &p, &s);
    str_adds(to, "</g>\n");
}

void
chart_grid_end(struct str *to)
{
    str_adds(to, "</svg>\n");
}
