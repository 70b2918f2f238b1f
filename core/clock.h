/* SPDX-License-Identifier: ISC */
/*
 * Time as it passes.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <time.h>

/* clock_s(): seconds since some moment, by a clock that is never set. */
static inline double
clock_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
