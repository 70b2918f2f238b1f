/* SPDX-License-Identifier: ISC */
/*
 * init: a new adapter.  A is uniform in +-1 / sqrt(in_features), which is
 * PEFT's default, kaiming_uniform_(a = sqrt(5)); B is zero, so that the model
 * computes the same as without the adapter until the first training step.
 */
#include <math.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/dtype.h"
#include "core/le.h"
#include "core/model/moe.h"
#include "core/rng.h"

int
init_main(const struct cmd *cmd, struct err *err)
{
    size_t rank = cmd->rank ? (size_t)cmd->rank : DEFAULT_RANK;
    struct expert_adapter a = { 0 };
    struct base base;
    int rc;

    if (can_write(cmd, cmd->output, err) < 0 ||
        base_open(&base, cmd->base, cmd->layer, err) < 0)
        return -1;
    rc = adapter_new(&a, &base, rank, (float)cmd->alpha, err);
    base_close(&base);
    if (rc < 0)
        return -1;
    /* adapter_new() has made all matrices zero.  The A are every second one of
     * enum moe_lora_matrix; m is also the random stream that each draws from */
    for (int m = MOE_GATE_A; m <= MOE_DOWN_A; m += 2) {
        size_t in = m == MOE_DOWN_A ? a.intermediate : a.hidden;
        double bound = 1 / sqrt((double)in);

        for (size_t i = 0; i < a.n_experts * rank * in; i++) {
            double u = rng_f64(cmd->seed, (uint64_t)m, i);

            put_le16(a.m[m] + i, f32_to_bf16((float)((2 * u - 1) * bound)));
        }
    }
    rc = adapter_write(&a, cmd->output, cmd->out_flags, err);
    adapter_close(&a);
    return rc;
}
