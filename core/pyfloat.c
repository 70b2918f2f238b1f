/* SPDX-License-Identifier: ISC */
/* Floats as Python writes them: py_float_repr() of pyjson.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pyjson.h"

/*
 * The fewest digits that read back as v, and of those the nearest.  printf
 * rounds to the nearest decimal of its length; below a power of two floats are
 * twice as close, so there the nearest decimal may read back as the lower
 * neighbour while the next one up reads back as v.
 */
static int
shortest_digits(double v, char buf[32])
{
    int digits;

    for (digits = 1; digits <= 17; digits++) {
        char *e;

        snprintf(buf, 32, "%.*e", digits - 1, v);
        if (strtod(buf, NULL) == v)
            break;
        e = strchr(buf, 'e');
        if (e[-1] == '9') /* a carry makes it shorter: tried before */
            continue;
        e[-1]++;
        if (strtod(buf, NULL) == v)
            break;
    }
    return digits;
}

/* "d.ddde+XX" as Python lays it out: with an exponent from 1e16 on and below
 * 1e-4, else plain, with ".0" where it is whole. */
void
py_float_repr(struct str *out, double v)
{
    char buf[32];
    char d[20];
    int n = 0, e10, digits;

    if (isnan(v) || isinf(v)) {
        str_adds(out, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
        return;
    }
    if (signbit(v))
        str_addc(out, '-');
    digits = shortest_digits(fabs(v), buf);
    for (const char *p = buf; *p != 'e'; p++)
        if (*p != '.')
            d[n++] = *p;
    e10 = (int)strtol(strchr(buf, 'e') + 1, NULL, 10);
    while (digits > 1 && d[digits - 1] == '0')
        digits--;
    if (e10 >= 16 || e10 < -4) {
        str_addf(out, "%c%s%.*se%c%02d", d[0], digits > 1 ? "." : "",
                 digits - 1, d + 1, e10 < 0 ? '-' : '+', abs(e10));
    } else if (e10 < 0) {
        str_addf(out, "0.%.*s%.*s", -e10 - 1, "0000", digits, d);
    } else if (digits <= e10 + 1) {
        str_addf(out, "%.*s%.*s.0", digits, d, e10 + 1 - digits,
                 "00000000000000000");
    } else {
        str_addf(out, "%.*s.%.*s", e10 + 1, d, digits - e10 - 1, d + e10 + 1);
    }
}
