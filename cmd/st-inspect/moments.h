/*
 * Types of 32 and 64 bits: chunks are summed on their own and merged in their
 * order, so that no result depends on how many threads there are.
 */
#ifndef ST_INSPECT_MOMENTS_H
#define ST_INSPECT_MOMENTS_H

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/scratch.h"
#include "cmd/st-inspect/stats.h"
#include "cmd/st-inspect/view.h"

/* moments_stats() is stats_of() for these types. */
void moments_stats(struct tensor_stats *st, const struct view *v,
                   const struct inspect_cmd *cmd, struct stats_scratch *s,
                   struct par *par, int thread);

#endif
