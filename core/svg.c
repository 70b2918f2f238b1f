#include "core/svg.h"

#include <stdio.h>
#include <string.h>

#define INK  "#345"
#define BACK "#fff"
#define TICK "#888"
#define GRID "#ccc"

#define Y_CHARS 9 /* of a number left of an axis, which has 60 pixels */

/* Each color, and what it is where the viewer is dark. */
static const char *const colors[][2] = {
    { INK, "#cfd6dd" },        { BACK, "#16181b" },     { TICK, "#8a9098" },
    { GRID, "#3a3e45" },       { SVG_BLUE, "#56b4e9" }, { SVG_GREY, "#aaa" },
    { SVG_ORANGE, "#e69f00" },
};

void
svg_begin(struct str *to, size_t width, size_t height)
{
    str_addf(to,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" "
             "height=\"%zu\" font-family=\"sans-serif\" font-size=\"11\" "
             "fill=\"" INK "\">\n<rect width=\"%zu\" height=\"%zu\" "
             "fill=\"" BACK "\"/>\n",
             width, height, width, height);
    str_adds(to, "<style>@media (prefers-color-scheme:dark){");
    for (size_t i = 0; i < sizeof(colors) / sizeof(*colors); i++)
        str_addf(to, "[fill=\"%s\"]{fill:%s}[stroke=\"%s\"]{stroke:%s}",
                 colors[i][0], colors[i][1], colors[i][0], colors[i][1]);
    str_adds(to, "}</style>\n");
}

void
svg_end(struct str *to)
{
    str_adds(to, "</svg>\n");
}

void
svg_name(struct str *to, const char *name, size_t nbytes, size_t max)
{
    struct str s = { 0 };

    str_esc_end(&s, name, nbytes, max);
    str_xml(to, s.s, s.n);
    str_free(&s);
}

void
svg_tick_x(struct str *to, double x, double y, int digits, double v)
{
    str_addf(to,
             "<path class=\"x\" d=\"M%.1f %.1fv5\" stroke=\"" TICK "\"/>"
             "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.*g"
             "</text>\n",
             x, y, x, y + 18, digits, v);
}

void
svg_tick_y(struct str *to, double x, double y, double width, int digits,
           double v)
{
    str_addf(to,
             "<path class=\"y\" d=\"M%.1f %.1fh%.1f\" stroke=\"" GRID "\"/>"
             "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.*g</text>\n",
             x - 4, y, width + 4, x - 6, y + 4, digits, v);
}

int
svg_digits(const double *v, size_t n, int digits, int n_chars)
{
    for (size_t i = 0; i < n; i++)
        while (digits > 3 && snprintf(NULL, 0, "%.*g", digits, v[i]) > n_chars)
            digits--;
    return digits;
}

void
svg_axis_y(struct str *to, const struct scale *s, double x, double top,
           double width, double height)
{
    int digits = svg_digits(s->tick, s->n, scale_tick_digits(s, 6), Y_CHARS);

    for (size_t i = 0; i < s->n; i++)
        svg_tick_y(to, x, top + height * (1 - scale_part(s, s->tick[i])), width,
                   digits, s->tick[i]);
}

void
svg_line_begin(struct str *to, const char *color)
{
    str_addf(to,
             "<polyline fill=\"none\" stroke=\"%s\" "
             "stroke-width=\"1.5\" points=\"",
             color);
}

void
svg_line_to(struct str *to, double x, double y)
{
    str_addf(to, "%s%.1f,%.1f", to->s[to->n - 1] == '"' ? "" : " ", x, y);
}

void
svg_line_end(struct str *to)
{
    const char *first = to->s + to->n;
    double x, y;

    while (first[-1] != '"')
        first--;
    if (!strchr(first, ' ') && sscanf(first, "%lf,%lf", &x, &y) == 2)
        svg_line_to(to, x + 8, y);
    str_adds(to, "\"/>\n");
}
