/*
 * init: a new adapter.  A is uniform in +-1 / sqrt(in), as PEFT's default,
 * kaiming_uniform_(a = sqrt(5)), has it; B is zero, so that nothing changes
 * before the first step.
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

/* Numbers of matrix m are those of stream m under the seed, in order. */
static void
fill(struct expert_adapter *a, enum moe_lora_matrix m, uint64_t seed)
{
    size_t in = m == MOE_DOWN_A ? a->intermediate : a->hidden;
    size_t n = a->n_experts * a->rank * in;
    double bound = 1 / sqrt((double)in);

    for (size_t i = 0; i < n; i++) {
        double u = rng_f64(seed, m, i);

        put_le16(a->m[m] + i, f32_to_bf16((float)((2 * u - 1) * bound)));
    }
}

int
init_main(const struct cmd *cmd, struct err *err)
{
    size_t rank = cmd->rank ? (size_t)cmd->rank : 8;
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
    fill(&a, MOE_GATE_A, cmd->seed);
    fill(&a, MOE_UP_A, cmd->seed);
    fill(&a, MOE_DOWN_A, cmd->seed);
    rc = adapter_write(&a, cmd->output, cmd->out_flags, err);
    adapter_close(&a);
    return rc;
}
