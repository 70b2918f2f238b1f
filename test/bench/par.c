/* SPDX-License-Identifier: ISC */
/*
 * What a call of par_for() costs when there is nothing to do: workers that
 * still spin answer sooner than workers that sleep.
 */
#include "core/par.h"

#include "test/bench/bench.h"

#define CALLS 501

static void
nothing(void *ctx, size_t begin, size_t end, int thread)
{
    (void)ctx, (void)begin, (void)end, (void)thread;
}

/* The median of calls that come 'gap_us' after one another. */
static void
call_row(struct par *par, unsigned gap_us)
{
    static double v[CALLS];
    char shape[32];

    for (size_t i = 0; i < CALLS; i++) {
        double t = clock_s();

        while (clock_s() - t < gap_us * 1e-6)
            ;
        t = clock_s();
        par_for_thread(par, 2, 1, nothing, NULL);
        v[i] = clock_s() - t;
    }
    snprintf(shape, sizeof(shape), "%u us after", gap_us);
    row("par call", shape, "-", par_threads(par), median(v, CALLS) * 1e6, "us",
        0, "");
}

int
main(void)
{
    int all = par_default();
    struct par *par;
    struct err err;

    if (par_open(&par, all, &err) < 0)
        return 1;
    call_row(par, 0);
    call_row(par, 20);
    call_row(par, 500);
    par_close(par);
    return 0;
}
