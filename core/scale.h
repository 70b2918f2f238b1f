/* SPDX-License-Identifier: ISC */
/*
 * The scale of a picture's axis, whose ticks are 1, 2 or 5 times powers of ten.
 */
#ifndef CORE_SCALE_H
#define CORE_SCALE_H

#include <stdbool.h>
#include <stddef.h>

#define SCALE_TICKS 8 /* at most */

struct scale {
    double low, high;
    double tick[SCALE_TICKS]; /* [n], ascending, from low to high */
    size_t n;
    bool log;
};

/* A number as an axis can show it, within +-1e300; NaN: it is not shown, as
 * infinities are not, nor what is not above 0 on a logarithmic axis. */
double scale_clip(double v, bool log);

/*
 * scale_of(): around the numbers from low to high, which are clipped.  'log'
 * asks for a logarithmic one; what spans less than a factor of 4 has a linear
 * one still.  Of 'whole' numbers the ticks are, too.
 * scale_part(): where v is, from 0 at 'low' to 1.
 */
struct scale scale_of(double low, double high, bool log, bool whole);
double scale_part(const struct scale *s, double v);

/* scale_ticks() finds the ticks of an axis that ends at its numbers: three to
 * seven multiples of 1, 2, 2.5 or 5 times a power of ten, and their number. */
size_t scale_ticks(double left, double right, bool whole,
                   double tick[SCALE_TICKS]);

/*
 * scale_digits(): with how many significant digits, 'least' to 15, numbers that
 * differ by 'step' differ as text, too, where none is beyond +-largest.
 * scale_tick_digits(): the same of the ticks.
 */
int scale_digits(double largest, double step, int least);
int scale_tick_digits(const struct scale *s, int least);

#endif
