/* SPDX-License-Identifier: ISC */
/*
 * Defaults that follow from the number of rows, so that short data train, too:
 * test/bench/RESULTS has the sweeps behind the numbers.
 */
#include <math.h>

#include "cmd/sae-train/plan.h"
#include "core/mem.h"

#define ENOUGH_ROWS ((uint64_t)1 << 21) /* of all epochs: */
#define MAX_EPOCHS  ((uint64_t)64)      /* more of them fit the rows alone */
#define MIN_STEPS   ((uint64_t)4096)
#define MIN_BATCH   ((uint64_t)64) /* a smaller one costs as much time */
#define MAX_BATCH   ((uint64_t)16384)
#define MAX_WARMUP  ((uint64_t)1000)

#define LR        2e-4    /* at */
#define LR_N      16384.0 /* latents; by the root of their number */
#define LR_ROWS   0x1p27  /* and rows; of fewer by the root of their number, */
#define LR_FACTOR 4.0     /* at most that much more */

int
plan_rows(struct sae_plan *plan, const struct row_stream *rows, struct err *err)
{
    struct sae_options *o = &plan->o;
    uint64_t n = rows->n_rows, all;
    bool goes_on = false;

    plan->by_first = !o->batch && n && rows->is_stream;
    plan->is_default = !o->batch || (n && !plan->steps && !o->epochs);
    if (o->epochs > 1 && !n)
        return err_set(err, TU_USAGE,
                       "--epochs %llu: how many rows there are is not known "
                       "(-n STEPS instead, or a FILE)",
                       (unsigned long long)o->epochs);
    if (!o->epochs)
        o->epochs = n && !rows->is_stream && !rows->first
                        ? larger(smaller(ENOUGH_ROWS / n, MAX_EPOCHS), 1)
                        : 1;
    if (__builtin_mul_overflow(n, o->epochs, &all))
        all = UINT64_MAX;
    if (!o->batch) {
        o->batch = MAX_BATCH;
        while (n && o->batch > MIN_BATCH && o->batch > all / MIN_STEPS)
            o->batch /= 2;
        o->batch = n ? smaller(o->batch, n) : o->batch;
    }
    plan->in_all = plan->steps ? plan->steps
                   : n         ? larger(all / o->batch, 1)
                               : 0;
    for (size_t i = 0; i < plan->n; i++)
        goes_on |= plan->list[i].has_state;
    if (plan->steps && !goes_on) /* they say it themselves */
        o->epochs = 1;
    for (size_t i = 0; i < plan->n; i++) {
        plan->list[i].o.batch = o->batch;
        plan->list[i].o.epochs = o->epochs;
    }
    return 0;
}

uint64_t
default_warmup(uint64_t steps)
{
    return steps ? smaller(steps / 20, MAX_WARMUP) : MAX_WARMUP;
}

double
default_lr(uint64_t latents, double rows)
{
    double factor = rows > 0 ? sqrt(LR_ROWS / rows) : 1;

    return LR / sqrt((double)latents / LR_N) * fmin(fmax(factor, 1), LR_FACTOR);
}
