/* How much memory the parts of an operator take, and where it lies. */
#ifndef CORE_MODEL_MOE_MEMORY_H
#define CORE_MODEL_MOE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "core/mem.h"
#include "core/model/moe.h"
#include "core/model/moe_operator.h"

/* Sizes and addresses of what lies in one allocation; base NULL: sizes. */
struct plan {
    char *base;
    size_t nbytes;
    bool overflow;
};

/* part_slice() says which columns of 'intermediate' part i works on. */
void part_slice(const struct moe_config *c, size_t i, size_t *first, size_t *n);

/* What the struct points at is placed in the plan, or, where that has no base,
 * counted: a part's packed weights, its scratch, the parts' common scratch, a
 * forward's cache. */
void plan_weights(struct plan *plan, const struct moe_config *c,
                  struct part *part);
void plan_part(struct plan *plan, const struct moe_config *c,
               struct part *part);
void plan_shared(struct plan *plan, struct moe *moe);
void plan_slot(struct plan *plan, const struct moe_config *c,
               struct slot *slot);

/* moe_allocated() is what the operator has in bytes, moe_peak() the most that
 * it had, by note_allocated(). */
size_t moe_allocated(const struct moe *moe);
size_t moe_peak(const struct moe *moe);
static inline void
note_allocated(struct moe *moe, size_t nbytes)
{
    moe->allocated += nbytes;
    moe->peak = larger(moe->peak, moe->allocated);
}

#endif
