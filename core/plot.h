/*
 * Pictures of characters for terminals and logs, at most 80 columns wide: bars,
 * columns and curves.  In Unicode (blocks, Braille) where the locale's codeset
 * is UTF-8, as LC_ALL, LC_CTYPE or LANG says, else in ASCII.  The same bytes
 * for the same numbers and codeset.
 */
#ifndef CORE_PLOT_H
#define CORE_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/str.h"

#define PLOT_WIDTH     64 /* columns between the axes */
#define PLOT_BAR_WIDTH 40 /* of the longest bar */
#define PLOT_LABEL_MAX 21 /* columns of a bar's label */

/*
 * plot_bars() adds a row for each: label, number, bar.  The largest magnitude
 * has PLOT_BAR_WIDTH columns, the others their part of it in eighths of a
 * column, rounded, but at least one if not 0; in ASCII a part of a column is
 * '.', from a half on ':'.  Where there are negative numbers, all bars have
 * half the room, and theirs go to the left, in whole columns.  NaN and
 * infinities have no bar.
 */
struct plot_bar {
    const char *label; /* of more than PLOT_LABEL_MAX columns, the end */
    double v;
};
void plot_bars(struct str *to, const struct plot_bar *bars, size_t n);

/* What the axes are, with their units.  On log_y numbers from 0 down are not
 * shown, and what spans less than a factor of 4 has a linear scale. */
struct plot_axes {
    const char *x, *y;
    double left, right; /* of x */
    bool log_y, whole_x, whole_y;
};

/*
 * plot_columns() draws n columns, from 'left' to 'right', of the same width; of
 * more than PLOT_WIDTH, the largest of those that share one.  What is not
 * above 0 has none.  The heights are eighths of a row, as bars.
 */
void plot_columns(struct str *to, const struct plot_axes *axes, const double *v,
                  size_t n);

/*
 * plot_lines() draws the first line through its points, by ascending x, and of
 * the others an 'o' at each.  A NaN or an infinity is a gap.
 */
struct plot_line {
    const double *x, *y; /* [n] */
    size_t n;
};
void plot_lines(struct str *to, const struct plot_axes *axes,
                const struct plot_line *lines, size_t n_lines);

#endif
