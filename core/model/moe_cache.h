/* The stack of forwards that wait for a backward; what files have of it stands
 * in moe.h. */
#ifndef CORE_MODEL_MOE_CACHE_H
#define CORE_MODEL_MOE_CACHE_H

#include <stddef.h>

#include "core/err.h"
#include "core/model/moe.h"
#include "core/model/moe_operator.h"

/* moe_check_qlen(): -1 with 'err' set (EX_DATAERR) for more than max_len. */
int moe_check_qlen(const struct moe *moe, size_t qlen, struct err *err);

/* moe_saved_room() is the place of the next forward, which is there once
 * moe->depth counts it; moe_saved_batch() copies its batch there.
 * -1 with 'err' set: EX_DATAERR (the stack is full), EX_SOFTWARE. */
int moe_saved_room(struct moe *moe, struct moe_saved **saved, struct err *err);
void moe_saved_batch(const struct moe_config *c, struct moe_saved *saved,
                     const struct moe_batch *batch);

#endif
