/*
 * Who works on which part: teams of threads, each on a NUMA node, side by
 * side.  A part's memory is touched first, and so lies, where its team is.
 */
#ifndef CORE_MODEL_MOE_TEAM_H
#define CORE_MODEL_MOE_TEAM_H

#include <stddef.h>

#include "core/err.h"
#include "core/model/moe.h"
#include "core/model/moe_operator.h"

/* team_count() is how many teams n_threads make; teams_open() fails with 'err'
 * set (EX_SOFTWARE). */
size_t team_count(const struct moe_config *c, int n_threads);
int teams_open(struct moe *moe, int n_threads, struct err *err);
void teams_close(struct moe *moe);

/* run_parts() calls fn for every part, each team's one after the other. */
void run_parts(struct moe *moe, void (*fn)(void *ctx, struct part *part),
               void *ctx);

#endif
