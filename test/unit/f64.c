/* SPDX-License-Identifier: ISC */
/* core/kernel/f64 against the C library's long double, which has 11 bits more
 * at least: how many ulp of a double they are apart. */
#include "core/kernel/f64.h"

#include <float.h>
#include <math.h>

#include "test/unit/isa.h"
#include "test/unit/tap.h"

_Static_assert(LDBL_MANT_DIG >= 64, "a wider reference");

static double worst;

static bool
near(double got, long double want)
{
    double as = (double)want, ulp = nextafter(fabs(as), INFINITY) - fabs(as);
    double off;

    if (isnan(as) || isinf(as) || as == 0)
        return isnan(as) ? isnan(got) : got == as;
    off = (double)(fabsl((long double)got - want) / (long double)ulp);
    worst = off > worst ? off : worst;
    return off < 1;
}

/* 0 .. 1, and of all sizes */
static double
unit(void)
{
    return ((double)rnd() + 1) / 2 + (double)rnd() * 0x1p-25;
}

static double
any_size(int low, int high)
{
    return ldexp(1 + unit(), low + (int)(unit() * (high - low)));
}

enum { N = 200000 };

/* The multiples of pi / 2 that doubles come nearest to, and times 2 and so on:
 * by the continued fraction of 2^e / pi. */
static const double hard[] = { 0x1.6c6cbc45dc8dep+5, 0x1.b951f1572eba5p+23 };

static void
report(bool good, const char *what)
{
    tap_ok(good, "f64_%s: within an ulp of the long double", what);
    printf("# worst %.4f ulp\n", worst);
    worst = 0;
}

static void
check_log_sum_exp(void)
{
    bool good = true;

    for (int i = 1; i <= 200; i++) {
        float x[200];
        long double sum = 0;
        double got;

        for (int k = 0; k < i; k++) {
            x[k] = 400 * (float)rnd() - (float)(300 * (i % 3));
            sum += expl((long double)x[k]);
        }
        got = f64_log_sum_exp(x, (size_t)i);
        good &= fabs(got - (double)logl(sum)) <= 1e-15 * fabs(got) + 1e-15;
    }
    good &= f64_log_sum_exp((float[]){ -INFINITY, 3 }, 2) == 3 &&
            isnan(f64_log_sum_exp((float[]){ 1, NAN, 2 }, 3)) &&
            isnan(f64_log_sum_exp((float[]){ NAN, 1 }, 2)) &&
            !isfinite(f64_log_sum_exp((float[]){ 1, INFINITY }, 2)) &&
            !isfinite(f64_log_sum_exp((float[]){ -INFINITY }, 1));
    tap_ok(good, "f64_log_sum_exp: within 1e-15 of the long double");
}

int
main(void)
{
    bool good = true;

    for (int i = 0; i < N; i++) {
        double x = (i % 4 ? 40 : 745) * (double)rnd();

        x = i % 5 ? x : x * any_size(-60, 0);
        good &= near(f64_exp(x), expl((long double)x));
    }
    good &= f64_exp(0) == 1 && f64_exp(INFINITY) == INFINITY &&
            f64_exp(-INFINITY) == 0 && f64_exp(-800) == 0 &&
            f64_exp(800) == INFINITY && isnan(f64_exp(NAN)) &&
            f64_exp(-745) == 0x1p-1074 && f64_exp(-720) > 0;
    report(good, "exp");
    good = true;
    for (int i = 0; i < N; i++) {
        double x = i % 3 == 0   ? any_size(-1074, 1023)
                   : i % 3 == 1 ? 1 + (double)rnd() * any_size(-40, 0) / 2
                                : any_size(-8, 20);

        good &= near(f64_log(x), logl((long double)x));
    }
    good &= f64_log(1) == 0 && f64_log(0) == -INFINITY &&
            f64_log(INFINITY) == INFINITY && isnan(f64_log(-1)) &&
            isnan(f64_log(NAN)) && near(f64_log(0x1p-1074), logl(0x1p-1074L));
    report(good, "log");
    check_log_sum_exp();
    good = true;
    for (int i = 0; i < N; i++) {
        double x = i % 2 ? any_size(-4, 24) : unit();
        double y = (i % 3 ? 1 : 300) * (double)rnd();
        long double z = powl((long double)x, (long double)y);

        good &= z < 1e-300L || z > 1e300L || near(f64_pow(x, y), z);
        good &= near(f64_pow(0.999, i), powl((long double)0.999, i));
        /* near 1, where the logarithm is as small as y is large */
        x = 1 + (i % 2 ? 1 : -0.5) * ldexp(1 + (i & 7), -52 + i % 40);
        y = 600 * unit() / (x - 1);
        z = powl((long double)x, (long double)y);
        good &= z < 1e-300L || z > 1e300L || near(f64_pow(x, y), z);
    }
    good &= f64_pow(0, 0) == 1 && f64_pow(0, 2) == 0 &&
            f64_pow(0, -2) == INFINITY && f64_pow(10, 22) == 1e22 &&
            f64_pow(2, -1074) == 0x1p-1074 && f64_pow(1, NAN) == 1 &&
            isnan(f64_pow(-1, 2)) && f64_pow(0.5, INFINITY) == 0 &&
            f64_pow(7, 4000) == INFINITY && f64_pow(7, -4000) == 0 &&
            f64_pow(INFINITY, -1) == 0 && f64_pow(3, 2) == 9;
    report(good, "pow");
    good = true;
    for (int i = 0; i < N; i++) {
        double x = (double)rnd() * (i % 4 == 0   ? 4
                                    : i % 4 == 1 ? 1e6
                                    : i % 4 == 2 ? 0x1p30
                                                 : any_size(-50, 0));
        long double r = (long double)x;

        good &= near(f64_sin(x), sinl(r)) && near(f64_cos(x), cosl(r));
        x = nearbyint(x) * 1.5707963267948966; /* where one of them is small */
        r = (long double)x;
        good &= fabs(x) > 0x1p30 ||
                (near(f64_sin(x), sinl(r)) && near(f64_cos(x), cosl(r)));
    }
    for (size_t i = 0; i < sizeof(hard) / sizeof(*hard); i++)
        for (double x = hard[i]; x <= 0x1p30; x *= 2)
            good &= near(f64_sin(x), sinl((long double)x)) &&
                    near(f64_cos(x), cosl((long double)x));
    good &= near(f64_cos(0x1p30), cosl(0x1p30L));
    good &= f64_sin(0) == 0 && f64_cos(0) == 1 && isnan(f64_sin(0x1.1p30)) &&
            isnan(f64_cos(NAN)) && isnan(f64_cos(INFINITY));
    report(good, "sin and cos");
    return tap_done();
}
