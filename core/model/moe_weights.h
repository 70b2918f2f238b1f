/* Base weights as the products want them. */
#ifndef CORE_MODEL_MOE_WEIGHTS_H
#define CORE_MODEL_MOE_WEIGHTS_H

#include <stddef.h>

#include "core/err.h"
#include "core/kernel/gemm.h"
#include "core/model/moe.h"
#include "core/model/moe_operator.h"

/* weights_load() packs or quantizes moe->base for every part; -1 with 'err' set
 * (EX_SOFTWARE). */
int weights_load(struct moe *moe, struct err *err);

/* What a team needs to quantize a matrix, in bytes. */
size_t weights_temp(const struct moe_config *c);

/* base_job() is the product with a base matrix of the block's expert. */
struct gemm_job base_job(const struct pass *pass, const struct part *part,
                         enum kind kind);

#endif
