/* SPDX-License-Identifier: ISC */
/*
 * The Test Anything Protocol in one header: each test program prints one line
 * a check and ends with tap_done().
 */
#ifndef TEST_UNIT_TAP_H
#define TEST_UNIT_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_n, tap_failed;

/* tap_ok() prints "ok N - name"; the name is a sentence that can be false. */
static __attribute__((format(printf, 2, 3), unused)) int
tap_ok(int good, const char *fmt, ...)
{
    va_list ap;

    printf("%sok %d - ", good ? "" : "not ", ++tap_n);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    if (!good)
        tap_failed++;
    return good;
}

static __attribute__((unused)) void
tap_skip(const char *name, const char *why)
{
    printf("ok %d - %s # SKIP %s\n", ++tap_n, name, why);
}

/* tap_slow() is whether this machine is: TU_RUN names an emulator, some 100
 * times slower.  Tests then take fewer or smaller cases. */
static __attribute__((unused)) bool
tap_slow(void)
{
    return getenv("TU_RUN") != NULL;
}

static bool
tap_ways_are(const char *what)
{
    const char *ways = getenv("TU_WAYS");

    return ways && !strcmp(ways, what);
}

/* tap_few() is whether TU_WAYS=few: fewer cases, too, as a slow instruction set
 * has them after the best one has passed with all. */
static __attribute__((unused)) bool
tap_few(void)
{
    return tap_ways_are("few");
}

/* tap_one_way() is whether TU_WAYS=one, or few: of what has the same result in
 * several ways, each model then has one of them, in turn. */
static __attribute__((unused)) bool
tap_one_way(void)
{
    return tap_ways_are("one") || tap_few();
}

static int
tap_done(void)
{
    printf("1..%d\n", tap_n);
    return tap_failed ? 1 : 0;
}

#endif
