/*
 * Exact quantiles of 32-bit types, by two more passes: one counts the upper
 * halves of the elements, which says where each wanted rank falls; the other
 * counts the lower halves of just those.
 */
#ifndef ST_INSPECT_RANKS_H
#define ST_INSPECT_RANKS_H

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/scratch.h"
#include "cmd/st-inspect/stats.h"
#include "cmd/st-inspect/view.h"

/* ranks_quantiles() is for what moments_stats() cannot know; of 32-bit types
 * with a finite element, after it. */
void ranks_quantiles(struct tensor_stats *st, const struct view *v,
                     const struct inspect_cmd *cmd, struct stats_scratch *s,
                     struct par *par, int thread);

#endif
