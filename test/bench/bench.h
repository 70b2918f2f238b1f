/* SPDX-License-Identifier: ISC */
/*
 * One table for all benchmarks: a row is a value and, where there is one, its
 * ratio to a limit of this machine that was measured in turns with it.
 */
#ifndef TEST_BENCH_BENCH_H
#define TEST_BENCH_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/kernel/cpu.h"
#include "core/str.h"

#define BENCH_HEAD                                                         \
    "what               shape             isa         threads      value " \
    "unit      ratio  of"

/* Of this process: a busy machine's neighbours are not in it. */
static inline double
cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int
bench_by_value(const void *p, const void *q)
{
    double a = *(const double *)p, b = *(const double *)q;

    return (a > b) - (a < b);
}

static inline double
median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), bench_by_value);
    return v[n / 2];
}

static inline double
min(double a, double b)
{
    return a < b ? a : b;
}

/* A name in $TMPDIR for mkstemp() and mkdtemp(); the caller's to free. */
static inline char *
scratch_name(const char *name)
{
    const char *tmp = getenv("TMPDIR");
    size_t n = 64 + strlen(name) + (tmp ? strlen(tmp) : 0);
    char *path = malloc(n);

    if (!path)
        exit(1);
    snprintf(path, n, "%s/%s.XXXXXX", tmp ? tmp : "/tmp", name);
    return path;
}

/* The number after KEY in a file of /proc, in KiB as they are; -1: none. */
static inline long
proc_kib(const char *path, const char *key)
{
    FILE *f = fopen(path, "r");
    size_t n = strlen(key);
    char line[200];
    long kib = -1;

    while (f && kib < 0 && fgets(line, sizeof(line), f))
        if (!strncmp(line, key, n))
            kib = strtol(line + n, NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

/* Else says what is left out: Linux grants more memory than there is. */
static inline int
memory_for(const char *what, size_t nbytes)
{
    long kib = proc_kib("/proc/meminfo", "MemAvailable:");

    if (kib < 0 || nbytes >> 10 < (size_t)kib)
        return 1;
    fprintf(stderr, "bench: %s left out: it needs %zu MiB, %ld are free\n",
            what, nbytes >> 20, kib >> 10);
    return 0;
}

/* Runs "WHAT DIR", which must succeed. */
static inline void
bench_shell(const char *what, const char *dir)
{
    struct str command = { 0 };

    str_addf(&command, "%s %s", what, dir);
    if (system(command.s)) {
        fprintf(stderr, "bench: failed: %s\n", command.s);
        exit(1);
    }
    str_free(&command);
}

/* ratio 0: none. */
static inline void
row(const char *what, const char *shape, const char *isa, int threads,
    double value, const char *unit, double ratio, const char *of)
{
    int digits = value < 10 ? 2 : value < 1000 ? 1 : 0;
    char r[16] = "-";

    if (ratio > 0)
        snprintf(r, sizeof(r), "%.2f", ratio);
    printf("%-18s %-17s %-11s %7d %10.*f %-9s %5s  %s\n", what, shape, isa,
           threads, digits, value, unit, r, ratio > 0 ? of : "-");
    fflush(stdout);
}

#endif
