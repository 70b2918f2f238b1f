/* Base weights as the products want them, and the adapter. */
#ifndef CORE_MODEL_MOE_WEIGHTS_H
#define CORE_MODEL_MOE_WEIGHTS_H

#include <stddef.h>

#include "core/err.h"
#include "core/kernel/gemm.h"
#include "core/model/moe.h"
#include "core/model/moe_operator.h"

/* moe_check_weights(): -1 with 'err' set (EX_DATAERR) before both are there. */
int moe_check_weights(const struct moe *moe, struct err *err);

/* moe_weights_temp() is what a team needs to quantize a matrix, in bytes. */
size_t moe_weights_temp(const struct moe_config *c);

/* moe_base_job() is the product with an expert's base matrix, of which 'end'
 * sees the sums before they go to c [n_rows, ldc], or NULL. */
struct gemm_job moe_base_job(const struct moe *moe, const struct moe_part *part,
                             enum moe_kind kind, size_t expert, float *c,
                             size_t ldc, struct gemm_end end);

#endif
