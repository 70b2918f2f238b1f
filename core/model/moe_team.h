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

/* moe_teams() is how many teams n_threads make. */
size_t moe_teams(const struct moe_config *c, int n_threads);

/* moe_teams_open() starts them; -1 with 'err' set (EX_SOFTWARE). */
int moe_teams_open(struct moe *moe, int n_threads, struct err *err);
void moe_teams_close(struct moe *moe);

/* moe_for_parts() calls fn for every part, each team's one after the other, and
 * returns when all are done. */
void moe_for_parts(struct moe *moe,
                   void (*fn)(void *ctx, struct moe_part *part), void *ctx);

#endif
