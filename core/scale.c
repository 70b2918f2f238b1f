/* SPDX-License-Identifier: ISC */
#include "core/scale.h"

#include <math.h>

#define LARGEST 1e300  /* beyond it differences could be infinite */
#define LEAST   1e-300 /* below it a quotient could */
#define DIGITS  15     /* that any double has */

double
scale_clip(double v, bool log)
{
    if (!isfinite(v) || (log && v <= 0))
        return (double)NAN;
    v = fmax(fmin(v, LARGEST), -LARGEST);
    return log ? fmax(v, LEAST) : v;
}

/* 10^mark(i) is 1, 2, 5, 10, .. */
static double
mark(long i)
{
    static const double marks[] = { 1, 2, 5 };
    long decade = i >= 0 ? i / 3 : -((2 - i) / 3);

    return (double)decade + log10(marks[i - 3 * decade]);
}

/* The least of 1, 2, 5 times a power of ten that is not below v. */
static double
round_up(double v)
{
    double unit = pow(10, floor(log10(v)));
    double part = v / unit * (1 - 1e-12);

    return unit * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

/* Multiples of a step, which are 'low' and 'high' but for rounding's errors. */
static void
linear(struct scale *s, bool whole)
{
    double step, slack;

    if (s->high - s->low < LEAST) { /* one number: from 0 to it */
        s->low = s->low < -LEAST ? s->low : 0;
        s->high = s->low < 0 ? 0 : s->high > LEAST ? s->high : 1;
    }
    step = round_up((s->high - s->low) / 4);
    if (whole && step < 1)
        step = 1;
    slack = 1e-12 * (fabs(s->low) + fabs(s->high)) / step;
    s->low = floor(s->low / step + slack) * step;
    s->high = ceil(s->high / step - slack) * step;
    for (; s->n < SCALE_TICKS; s->n++) {
        s->tick[s->n] = s->low + step * (double)s->n;
        if (s->tick[s->n] > s->high + step / 2)
            break;
    }
}

/* Over many decades there is a tick for one, or a few, of them. */
static void
logarithmic(struct scale *s)
{
    long low = (long)floor(log10(s->low)) * 3, high, each;

    while (mark(low + 1) <= log10(s->low) + 1e-12)
        low++;
    for (high = low + 1; mark(high) < log10(s->high) - 1e-12;)
        high++;
    s->low = pow(10, mark(low));
    s->high = pow(10, mark(high));
    each =
        high - low < SCALE_TICKS ? 1 : 3 * ((high - low) / 3 / SCALE_TICKS + 1);
    for (long i = low; i <= high && s->n < SCALE_TICKS; i++)
        if (i % each == 0)
            s->tick[s->n++] = pow(10, mark(i));
}

struct scale
scale_of(double low, double high, bool log, bool whole)
{
    struct scale s = { .low = low, .high = high };

    s.log = log && low > 0 && high / 4 >= low;
    if (s.log)
        logarithmic(&s);
    else
        linear(&s, whole);
    return s;
}

double
scale_part(const struct scale *s, double v)
{
    double part =
        s->log ? (log10(v) - log10(s->low)) / (log10(s->high) - log10(s->low))
               : (v - s->low) / (s->high - s->low);

    return fmax(0, fmin(part, 1));
}

size_t
scale_ticks(double left, double right, bool whole, double tick[SCALE_TICKS])
{
    double span, unit, part, step, first;
    size_t n = 0;

    left = scale_clip(left, false);
    right = scale_clip(right, false);
    span = (right - left) / 6;
    if (!(span > LEAST)) {
        tick[0] = left;
        return 1;
    }
    unit = pow(10, floor(log10(span)));
    part = span / unit * (1 - 1e-12);
    step = unit * (part <= 1     ? 1
                   : part <= 2   ? 2
                   : part <= 2.5 ? 2.5
                   : part <= 5   ? 5
                                 : 10);
    if (whole)
        step = step < 1 ? 1 : step < 2.6 && step > 2 ? 5 : step;
    first = ceil(left / step - 1e-9);
    for (; n < SCALE_TICKS && (first + (double)n) * step <= right + step * 1e-9;
         n++)
        tick[n] = (first + (double)n) * step + 0.0; /* not -0 */
    return n;
}

int
scale_digits(double largest, double step, int least)
{
    double n = 2 + floor(log10(largest) - log10(step));

    return step > 0 && n > least ? (int)fmin(n, DIGITS) : least;
}

int
scale_tick_digits(const struct scale *s, int least)
{
    double largest = fmax(fabs(s->low), fabs(s->high));

    return s->log || s->n < 2
               ? least
               : scale_digits(largest, s->tick[1] - s->tick[0], least);
}
