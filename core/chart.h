/* SPDX-License-Identifier: ISC */
/*
 * Pictures of numbers: lines or columns between two axes.  One struct says what
 * is shown; chart_svg() draws it for a browser or a paper, chart_text() in
 * characters, at most 80 columns wide, for a terminal or a job's log: in
 * Unicode (blocks, Braille) where the locale's codeset is UTF-8, as LC_ALL,
 * LC_CTYPE or LANG says, else in ASCII.  Both append to 'to', and give the same
 * bytes for the same numbers and codeset.  Strings may come from files: they
 * are escaped.
 */
#ifndef CORE_CHART_H
#define CORE_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "core/scale.h"
#include "core/str.h"

#define CHART_WIDTH     64 /* columns of text between the axes */
#define CHART_LABEL_MAX 21 /* columns of a label of a bar or a mark */
#define CHART_MAX_NAMES 20 /* of lines, next to an SVG */

/* A line through its points, by ascending x; a NaN or an infinity has none. */
struct chart_line {
    const double *x, *y; /* [n] */
    size_t n;
    const char *name; /* next to an SVG, or NULL: for all lines alike */
    const char *says; /* a row below the picture, or NULL */
};

/* A point of the first line, and its label; or a bar of that length. */
struct chart_mark {
    const char *label; /* of more than CHART_LABEL_MAX columns, the end */
    double v, x;       /* v: on y's axis; x: of a bar nothing */
};

struct chart {
    const char *title;    /* of a long one the end */
    size_t title_n;       /* its bytes, which may have NULs; 0: a string */
    const char *about;    /* goes on in its row, or NULL: the y axis's name */
    const char *subtitle; /* or NULL */
    /* What the axes are, with their units.  On log_y numbers from 0 down are
     * not shown, and what spans less than a factor of 4 has a linear scale. */
    const char *x, *y;
    double left, right; /* of x */
    bool log_y, whole_x, whole_y;
    const struct chart_line *lines;
    size_t n_lines;
    /* Without lines: columns of the same width from 'left' to 'right'. */
    const double *columns;
    size_t n_columns;
    const struct chart_mark *marks; /* in the margin, or bars below */
    size_t n_marks;
    const char *marked; /* their heading */
};

/* chart_scale() is y's scale, which has no ticks if there are no numbers. */
struct scale chart_scale(const struct chart *c);

/*
 * chart_text(): the title, the subtitle, the picture, and of each line what it
 * says.  The first line is drawn, of the others an 'o' is at each point; of
 * more columns than CHART_WIDTH the largest of those that share one is shown.
 * chart_svg(): the same as an SVG in pixels, colors for the color-blind.
 */
void chart_text(struct str *to, const struct chart *c);
void chart_svg(struct str *to, const struct chart *c);

/*
 * chart_bars() adds a row for each: label, number, bar.  The largest magnitude
 * has 40 columns, the others their part of it in eighths of a column, rounded,
 * but at least one if not 0; in ASCII a part of a column is '.', from a half on
 * ':'.  Where there are negative numbers, all bars have half the room, and
 * theirs go to the left, in whole columns.  NaN and infinities have no bar.
 */
void chart_bars(struct str *to, const struct chart_mark *bars, size_t n);

/* An SVG of n small charts, each with its title: chart_grid_begin() has the
 * heading, chart_grid_add() chart i of 0 .. n - 1, chart_grid_end() the end. */
void chart_grid_begin(struct str *to, const char *title, const char *about,
                      size_t n);
void chart_grid_add(struct str *to, const struct chart *c, size_t i);
void chart_grid_end(struct str *to);

#endif
