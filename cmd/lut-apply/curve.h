/*
 * The picture of --svg: the output's FVU against the ratio of compensated
 * inputs.
 */
#ifndef LUT_APPLY_CURVE_H
#define LUT_APPLY_CURVE_H

#include <stddef.h>

#include "cmd/lut-apply/run.h"

/* curve_open(): NULL without --svg; -1 with 'err' set, as curve_commit().
 * curve_add() takes the batch that table_apply() has seen last, and changes the
 * run's y. */
struct curve;
int curve_open(struct curve **curve, const struct apply_run *run,
               struct err *err);
void curve_add(struct curve *curve, struct apply_run *run, size_t n);
int curve_commit(struct curve *curve, const struct apply_run *run,
                 struct err *err);
void curve_close(struct curve *curve);

#endif
