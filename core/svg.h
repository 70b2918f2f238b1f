/*
 * What all pictures share: SVG, in pixels.
 */
#ifndef CORE_SVG_H
#define CORE_SVG_H

#include "core/scale.h"
#include "core/str.h"

/* Colors that the color-blind tell apart (Okabe and Ito's), on white; where the
 * viewer is dark, svg_begin() has lighter ones on black. */
#define SVG_BLUE   "#0072b2"
#define SVG_ORANGE "#d55e00"
#define SVG_GREEN  "#009e73"
#define SVG_PINK   "#cc79a7"
#define SVG_GREY   "#666"

/* svg_begin() opens a picture, with a background of its own; svg_end() closes
 * it. */
void svg_begin(struct str *to, size_t width, size_t height);
void svg_end(struct str *to);

/* svg_name() appends a name from a file, escaped; of one of more columns than
 * 'max', as on a terminal, the end alone, after "...". */
void svg_name(struct str *to, const char *name, size_t nbytes, size_t max);

/* A tick of an axis and its value, of so many digits: svg_tick_x() below y,
 * svg_tick_y() left of x, with a grid line of 'width' to the right. */
void svg_tick_x(struct str *to, double x, double y, int digits, double v);
void svg_tick_y(struct str *to, double x, double y, double width, int digits,
                double v);

/* svg_digits(): so many digits, or fewer down to 3, that no number has more
 * than 'n_chars' characters. */
int svg_digits(const double *v, size_t n, int digits, int n_chars);

/* The ticks of a scale for y, which ends at 'top', 'height' pixels above its
 * beginning. */
void svg_axis_y(struct str *to, const struct scale *s, double x, double top,
                double width, double height);

/* svg_line_begin(), in a color, svg_line_to() a point, the next, ..,
 * svg_line_end().  Viewers do not show a line of one point: it has 8 pixels. */
void svg_line_begin(struct str *to, const char *color);
void svg_line_to(struct str *to, double x, double y);
void svg_line_end(struct str *to);

#endif
