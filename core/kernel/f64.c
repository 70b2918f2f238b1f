/* SPDX-License-Identifier: ISC */
/*
 * Arguments are reduced exactly, or to the sum of two doubles; Taylor's series
 * do the rest, as their coefficients can be read.  f64_exp(), which sums over
 * vocabularies, f64_sin() and f64_cos() round only terms that are small beside
 * the first; log and pow, which are rare, compute in sums of two doubles.
 */
#include "core/kernel/f64.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A sum of two doubles, |lo| at most half an ulp of hi. */
struct dd {
    double hi, lo;
};

/* ln 2: 32 bits, whose product with an exponent is exact, and the rest. */
#define LN2_HI 0x1.62e42ffp-1
#define LN2_LO -0x1.718432a1b0e26p-35
#define LN2_LL -0x1.9ff0342542fc3p-90 /* after LN2_LO */

/* pi / 2 in 22 bits a part, whose products with 30 bits are exact, and the
 * rest. */
#define PIO2_1 0x1.921fb8p+0
#define PIO2_2 -0x1.5dde98p-23
#define PIO2_3 0x1.846988p-48
#define PIO2_4 0x1.8cc518p-72
#define PIO2_5 -0x1.fc8f8cbb5bf6cp-97

static struct dd
two_sum(double a, double b)
{
    double s = a + b, t = s - a;

    return (struct dd){ s, (a - (s - t)) + (b - t) };
}

/* |a| >= |b|, or a is 0 */
static struct dd
fast_sum(double a, double b)
{
    double s = a + b;

    return (struct dd){ s, b - (s - a) };
}

/* Exact, by halves of 26 bits (Dekker): |a| and |b| under 2^990. */
static struct dd
two_product(double a, double b)
{
    double p = a * b, c = a * 0x1.000002p27, d = b * 0x1.000002p27;
    double a1 = c - (c - a), b1 = d - (d - b), a2 = a - a1, b2 = b - b1;

    return (struct dd){ p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2 };
}

static struct dd
dd_add(struct dd a, struct dd b)
{
    struct dd s = two_sum(a.hi, b.hi);

    return fast_sum(s.hi, s.lo + (a.lo + b.lo));
}

static struct dd
dd_mul(struct dd a, struct dd b)
{
    struct dd p = two_product(a.hi, b.hi);

    return fast_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

/* To the nearest integer, ties to even: |x| < 2^51. */
static double
nearest(double x)
{
    return x + 0x1.8p52 - 0x1.8p52;
}

/* e^r = 1 + r + r^2 / 2! + .. r^14 / 14!, |r| <= ln 2 / 2: the next term is
 * under 2^-63. */
double
f64_exp(double x)
{
    double n, p, lo;
    struct dd r;

    if (!(x < 710 && x > -746))
        return x > 0 ? INFINITY : x < 0 ? 0 : x; /* NaN stays */
    n = nearest(x * 1.4426950408889634);
    r = two_sum(x - n * LN2_HI, -(n * LN2_LO));
    p = 1.0 / 87178291200;
    p = p * r.hi + 1.0 / 6227020800;
    p = p * r.hi + 1.0 / 479001600;
    p = p * r.hi + 1.0 / 39916800;
    p = p * r.hi + 1.0 / 3628800;
    p = p * r.hi + 1.0 / 362880;
    p = p * r.hi + 1.0 / 40320;
    p = p * r.hi + 1.0 / 5040;
    p = p * r.hi + 1.0 / 720;
    p = p * r.hi + 1.0 / 120;
    p = p * r.hi + 1.0 / 24;
    p = p * r.hi + 1.0 / 6;
    p = p * r.hi + 0.5;
    lo = r.lo + p * (r.hi * r.hi);
    r = fast_sum(1, r.hi);
    return ldexp(r.hi + (r.lo + lo), (int)n);
}

/* e^x - 1 to about 2^-90 of it, |x| < 0.35.  Of x / 256 ten terms do; then 1
 * and it is squared eight times. */
static struct dd
dd_expm1(struct dd x)
{
    struct dd r = { x.hi / 256, x.lo / 256 }, term = r, sum = r;

    for (int i = 2; i < 11; i++) {
        struct dd inverse = { 1.0 / i, 0 };

        inverse.lo = -(two_product(inverse.hi, i).hi - 1 +
                       two_product(inverse.hi, i).lo) /
                     i;
        term = dd_mul(dd_mul(term, r), inverse);
        sum = dd_add(sum, term);
    }
    for (int i = 0; i < 8; i++) /* of e^r - 1: (1 + s)^2 - 1 = 2 s + s^2 */
        sum = dd_add((struct dd){ 2 * sum.hi, 2 * sum.lo }, dd_mul(sum, sum));
    return sum;
}

/* e^x as m 2^*n, m in 0.7 .. 1.42; |x| < 800. */
static struct dd
dd_exp(struct dd x, int *n)
{
    double k = nearest(x.hi * 1.4426950408889634);

    *n = (int)k;
    x = dd_add((struct dd){ x.hi - k * LN2_HI, x.lo - k * LN2_LL },
               two_product(-k, LN2_LO));
    return dd_add((struct dd){ 1, 0 }, dd_expm1(x));
}

/* ln x: y + (m e^-y - 1), Newton's step from a y that is right to 2^-40, leaves
 * 2^-80 of ln m.  So that this holds near 1, where pow multiplies it by as much
 * as 2^62, the step is made of m - 1, which is exact, and of e^-y - 1. */
static struct dd
dd_log(double x)
{
    int k;
    double m = frexp(x, &k), s, z, y; /* m in 0.5 .. 1 */
    struct dd e, exact = { 0, 0 };

    if (m < 0.70710678) {
        m *= 2;
        k--;
    }
    s = (m - 1) / (m + 1); /* |s| < 0.172; ln m = 2 (s + s^3 / 3 + ..) */
    z = s * s;
    y = 0;
    for (int i = 19; i > 0; i -= 2)
        y = y * z + 1.0 / i;
    y *= 2 * s;
    e = dd_mul(dd_expm1((struct dd){ -y, 0 }), (struct dd){ m, 0 });
    e = dd_add(e, (struct dd){ m - 1, 0 });
    /* ln (1 + e) = e - e^2 / 2: e is what the series left, under 2^-40. */
    e.lo -= e.hi * e.hi / 2;
    exact = dd_add(exact, (struct dd){ k * LN2_HI, 0 });
    exact = dd_add(exact, two_product(k, LN2_LO));
    exact.lo += k * LN2_LL;
    exact = dd_add(exact, (struct dd){ y, 0 });
    return dd_add(exact, e);
}

double
f64_log(double x)
{
    struct dd y;

    if (!(x > 0))
        return x == 0 ? -INFINITY : x < 0 ? NAN : x;
    if (x > 0x1.fffffffffffffp1023)
        return x;
    y = dd_log(x);
    return y.hi + y.lo;
}

double
f64_log_sum_exp(const float *x, size_t n)
{
    double max = (double)x[0], sum = 0;

    for (size_t i = 1; i < n; i++)
        if ((double)x[i] > max)
            max = (double)x[i];
    for (size_t i = 0; i < n; i++)
        sum += f64_exp((double)x[i] - max);
    return max + f64_log(sum);
}

double
f64_pow(double x, double y)
{
    struct dd e, r;
    int n;

    if (y == 0 || x == 1)
        return 1;
    if (!(x >= 0) || isnan(y))
        return NAN;
    if (x == 0 || isinf(x) || isinf(y))
        return (x > 1) == (y > 0) ? INFINITY : 0;
    e = dd_log(x);
    if (fabs(e.hi * y) > 800)
        return e.hi * y > 0 ? INFINITY : 0;
    r = dd_exp(dd_mul(e, (struct dd){ y, 0 }), &n);
    return ldexp(r.hi + r.lo, n);
}

/* x less n quarter turns, n the nearest: |x| <= 2^30, so that the first parts'
 * products and differences are exact.  The others matter where almost nothing
 * is left: 2^-59. */
static struct dd
quarter(double x, int *n)
{
    double k = nearest(x * 0.63661977236758134);
    struct dd r = two_sum(x - k * PIO2_1 - k * PIO2_2, -(k * PIO2_3));
    struct dd s = two_sum(r.hi, -(k * PIO2_4));

    *n = (int)((long long)k & 3);
    return fast_sum(s.hi, s.lo + r.lo - k * PIO2_5);
}

/* r - r^3 / 3! + .. r^21 / 21!, |r| <= pi / 4 */
static double
sine(struct dd r)
{
    double z = r.hi * r.hi, p = 1.0 / 51090942171709440000.0;

    p = p * z - 1.0 / 121645100408832000;
    p = p * z + 1.0 / 355687428096000;
    p = p * z - 1.0 / 1307674368000;
    p = p * z + 1.0 / 6227020800;
    p = p * z - 1.0 / 39916800;
    p = p * z + 1.0 / 362880;
    p = p * z - 1.0 / 5040;
    p = p * z + 1.0 / 120;
    p = p * z - 1.0 / 6;
    return r.hi + (p * z * r.hi + r.lo * (1 - z / 2));
}

/* 1 - r^2 / 2! + .. r^20 / 20! */
static double
cosine(struct dd r)
{
    double z = r.hi * r.hi, p = 1.0 / 2432902008176640000.0;
    struct dd first = fast_sum(1, -(z / 2));

    p = p * z - 1.0 / 6402373705728000;
    p = p * z + 1.0 / 20922789888000;
    p = p * z - 1.0 / 87178291200;
    p = p * z + 1.0 / 479001600;
    p = p * z - 1.0 / 3628800;
    p = p * z + 1.0 / 40320;
    p = p * z - 1.0 / 720;
    p = p * z + 1.0 / 24;
    return first.hi + (first.lo + (p * z * z - r.hi * r.lo));
}

static double
rotated(double x, int by)
{
    struct dd r;
    int n;

    if (!(fabs(x) <= 0x1p30))
        return NAN;
    r = quarter(x, &n);
    switch ((n + by) & 3) {
    case 0:
        return sine(r);
    case 1:
        return cosine(r);
    case 2:
        return -sine(r);
    default:
        return -cosine(r);
    }
}

double
f64_sin(double x)
{
    return rotated(x, 0);
}

double
f64_cos(double x)
{
    return rotated(x, 1);
}
