/* SPDX-License-Identifier: ISC */
#include "core/model/train/schedule.h"

#include <math.h>
#include <stddef.h>

#include "core/err.h"
#include "core/kernel/f64.h"
#include "core/tty.h"

double
schedule_lr(const struct schedule *s, uint64_t step)
{
    double left = s->total > step ? (double)(s->total - step) : 0;
    double span = s->total > s->warmup ? (double)(s->total - s->warmup) : 1;

    if (step < s->warmup)
        return s->lr * ((double)step / (double)s->warmup);
    if (s->kind == SCHEDULE_CONSTANT)
        return s->lr;
    if (s->kind == SCHEDULE_LINEAR || step > s->total)
        return s->lr * (left / span);
    return s->lr *
           (0.5 * (1 + f64_cos(M_PI * (double)(step - s->warmup) / span)));
}

void
schedule_warn(uint64_t steps, uint64_t warmup)
{
    err_warn("%llu step%s, but --warmup %llu: the learning rate does not reach "
             "--lr (for so few: --warmup %llu)",
             (unsigned long long)steps, plural(steps),
             (unsigned long long)warmup, (unsigned long long)(steps / 10));
}
