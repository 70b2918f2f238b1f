/* SPDX-License-Identifier: ISC */
/* The learning rate of each step. */
#ifndef CORE_MODEL_TRAIN_SCHEDULE_H
#define CORE_MODEL_TRAIN_SCHEDULE_H

#include <stdint.h>

/*
 * A learning rate that grows from 0 over 'warmup' steps, then stays, or falls
 * to 0 at step 'total' on a line or half a cosine, and stays 0.
 * Source: Hugging Face transformers, get_constant_schedule_with_warmup,
 * get_linear_schedule_with_warmup, get_cosine_schedule_with_warmup.
 */
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE };

struct schedule {
    enum schedule_kind kind;
    double lr; /* the highest */
    uint64_t warmup, total;
};

/* schedule_lr() is the rate of a step; the first is 0. */
double schedule_lr(const struct schedule *s, uint64_t step);

/* Warns that so many steps do not get through the warm-up, and says which one a
 * run of them has room for: a tenth. */
void schedule_warn(uint64_t steps, uint64_t warmup);

#endif
