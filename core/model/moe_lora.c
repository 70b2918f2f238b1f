/* What the six matrices of an adapter are called, and their shapes. */
#include "core/mem.h"
#include "core/model/moe.h"

const char *const moe_lora_names[MOE_N_LORA] = {
    "gate_lora_a", "gate_lora_b", "up_lora_a",
    "up_lora_b",   "down_lora_a", "down_lora_b",
};

void
moe_lora_shape(const struct moe_config *config, enum moe_lora_matrix m,
               uint64_t shape[3])
{
    bool down = m == MOE_DOWN_A || m == MOE_DOWN_B;
    size_t in = down ? config->intermediate : config->hidden;
    size_t out = down ? config->hidden : config->intermediate;
    bool is_a = m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_A;

    shape[0] = config->n_experts;
    shape[1] = is_a ? config->lora_rank : out;
    shape[2] = is_a ? in : config->lora_rank;
}

size_t
moe_lora_numbers(const struct moe_config *config, enum moe_lora_matrix m)
{
    uint64_t shape[3];
    size_t n;

    moe_lora_shape(config, m, shape);
    if (!size_mul(shape[0], shape[1], &n) || !size_mul(n, shape[2], &n))
        return 0;
    return n;
}
