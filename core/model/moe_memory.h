/*
 * How much memory everything takes: one function a thing, which names its
 * arrays, serves the estimate and the allocation alike.
 */
#ifndef CORE_MODEL_MOE_MEMORY_H
#define CORE_MODEL_MOE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/model/moe.h"
#include "core/model/moe_operator.h"

/* Sizes and addresses of what lies in one allocation; base NULL: sizes. */
struct moe_plan {
    char *base;
    size_t nbytes;
    bool overflow;
};

/* moe_slice() says which columns of 'intermediate' part i works on. */
void moe_slice(const struct moe_config *c, size_t i, size_t *first, size_t *n);

/* What the struct points at is placed in the plan, or, where that has no base,
 * counted: a part's packed weights, its scratch, the parts' common scratch, a
 * forward that is saved. */
void moe_plan_weights(struct moe_plan *plan, const struct moe_config *c,
                      struct moe_part *part);
void moe_plan_part(struct moe_plan *plan, const struct moe_config *c,
                   struct moe_part *part);
void moe_plan_shared(struct moe_plan *plan, struct moe *moe);
void moe_plan_saved(struct moe_plan *plan, const struct moe_config *c,
                    struct moe_saved *saved);

/* moe_allocate() makes what was counted: 'what' is for messages.  NULL with
 * 'err' set: EX_DATAERR, EX_SOFTWARE. */
void *moe_allocate(struct moe *moe, const struct moe_plan *plan,
                   const char *what, struct err *err);

/* moe_allocated() is what the operator has in bytes, moe_peak() the most that
 * it had, by moe_note_allocated(). */
void moe_note_allocated(struct moe *moe, size_t nbytes);
size_t moe_allocated(const struct moe *moe);
size_t moe_peak(const struct moe *moe);

#endif
