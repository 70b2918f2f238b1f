/*
 * Adapters of one layer's experts as moe-sft writes them: six stacked
 * matrices, gate_lora_a .. down_lora_b, and sizes in __metadata__.
 * Source: man/moe-sft.5.
 */
#ifndef CORE_MODEL_LORA_STACK_H
#define CORE_MODEL_LORA_STACK_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/st.h"
#include "core/model/moe.h"

struct lora_stack {
    size_t n_experts, hidden, intermediate, rank;
    double alpha;                          /* finite as F32, too */
    int64_t layer;                         /* -1: the file does not say */
    const struct st_tensor *m[MOE_N_LORA]; /* of the file */
};

/*
 * lora_stack_read() finds the matrices of an open file and checks shapes, types
 * and metadata.  n_experts, hidden and intermediate are what is expected, or 0:
 * then they are the file's.  lora_stack_layer() reads the layer alone.
 * 0, or -1 with 'err' set (EX_DATAERR).
 */
int lora_stack_read(struct lora_stack *s, const struct st *st, struct err *err);
int lora_stack_layer(const struct st *st, int64_t *layer, struct err *err);

#endif
