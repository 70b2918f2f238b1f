/* SPDX-License-Identifier: ISC */
/*
 * Time as it passes.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <time.h>

static inline double
clock_s_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* clock_s(): seconds since some moment, by a clock that is never set. */
static inline double
clock_s(void)
{
    return clock_s_of(CLOCK_MONOTONIC);
}

#endif
