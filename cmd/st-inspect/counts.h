/*
 * Types of up to 16 bits: every value is counted, and the rest follows from how
 * often each occurs.
 */
#ifndef ST_INSPECT_COUNTS_H
#define ST_INSPECT_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/scratch.h"
#include "cmd/st-inspect/stats.h"
#include "cmd/st-inspect/view.h"

/* counts_stats() is stats_of() for a type that is_counted(). */
void counts_stats(struct tensor_stats *st, const struct view *v,
                  const struct inspect_cmd *cmd, struct stats_scratch *s,
                  struct par *par, int thread);

/* between() is the value at the place 'at', a and b being those at the whole
 * numbers around: numpy's linear method, in its formula, for its bits. */
double between(double a, double b, double at);

/* counts_drain() adds a thread's tables to 'totals' and clears them. */
void counts_drain(uint64_t *totals, uint32_t *tables, size_t n_keys);

#endif
