/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/run.h"

#include <stdlib.h>

#include "core/format/stdir.h"
#include "core/kernel/cpu.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tool.h"
#include "core/tty.h"

const char *const mode_names[] = { "bf16", "int8", NULL };

int
run_files(struct sft_run *run, const struct cmd *cmd, struct err *err)
{
    *run = (struct sft_run){ .cmd = cmd };
    if (base_open(&run->base, cmd->base, cmd->layer, err) < 0 ||
        par_open(&run->par, cmd->n_threads, err) < 0 ||
        base_check(&run->base, run->par, err) < 0)
        return -1;
    return adapter_open(&run->adapter, cmd->lora, &run->base, err);
}

int
run_batch(struct sft_run *run, struct err *err)
{
    struct gemm *gemm;
    int rc;

    if (batch_open(&run->batch, run->cmd->input, BATCH_INPUT, run->base.hidden,
                   err) < 0)
        return -1;
    if (run->batch.expert_ids)
        return 0;
    if (gemm_open(&gemm, run->par, err) < 0)
        return -1;
    rc = batch_route(&run->batch, &run->base, gemm, err);
    gemm_close(gemm);
    return rc;
}

int
operator_open(struct moe **moe, const struct moe_config *config, int n_threads,
              const struct base *base, const struct expert_adapter *adapter,
              struct err *err)
{
    struct moe_lora lora = adapter_lora(adapter);

    if (moe_open(moe, config, n_threads, err) < 0 ||
        moe_load(*moe, &base->weights, err) < 0)
        return -1;
    return moe_update_lora(*moe, &lora, err);
}

int
run_moe(struct sft_run *run, size_t top_k, size_t qlen, enum moe_mode mode,
        bool backward_only, struct err *err)
{
    struct moe_config config = adapter_config(&run->adapter, top_k);

    config.max_len = qlen ? qlen : 1;
    config.n_parts = (size_t)run->cmd->n_parts;
    config.mode = mode;
    config.act = run->base.act;
    config.strict_ids = run->cmd->strict_ids;
    config.backward_only = backward_only;
    if (run->cmd->verbose)
        tool_say(
            "%zu expert%s, %zu of them per token, %zu x %zu, rank %zu; %s on "
            "%s, %d thread%s, %zu part%s",
            config.n_experts, plural(config.n_experts), top_k, config.hidden,
            config.intermediate, config.lora_rank, mode_names[mode],
            isa_name(cpu_isa()), run->cmd->n_threads,
            plural(run->cmd->n_threads), config.n_parts,
            plural(config.n_parts));
    return operator_open(&run->moe, &config, run->cmd->n_threads, &run->base,
                         &run->adapter, err);
}

void
run_close(struct sft_run *run)
{
    moe_close(run->moe);
    batch_close(&run->batch);
    adapter_close(&run->adapter);
    base_close(&run->base);
    par_close(run->par);
    *run = (struct sft_run){ 0 };
}

int
grads_open(struct moe_grads *g, const struct moe_config *c, size_t qlen,
           struct err *err)
{
    size_t item = dtype_size(g->lora_dtype);

    g->input = mem_try(qlen + 1, c->hidden * 2, "gradients", err);
    g->weights = mem_try(qlen + 1, c->top_k * 4, "gradients", err);
    if (!g->input || !g->weights)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++) {
        g->lora[m] = mem_big(moe_lora_numbers(c, m), item, "gradients", err);
        if (!g->lora[m])
            return -1;
    }
    return 0;
}

void
grads_close(struct moe_grads *g, const struct moe_config *c)
{
    size_t item = dtype_size(g->lora_dtype);

    free(g->input);
    free(g->weights);
    for (int m = 0; m < MOE_N_LORA; m++)
        mem_big_free(g->lora[m], moe_lora_numbers(c, m), item);
}

int
outputs_exist(const struct cmd *cmd, const char *cache, struct err *err)
{
    const char *const path[] = { cmd->output, cache };
    struct stdir dir;

    for (int i = 0; i < 2 && path[i]; i++) {
        if (file_missing(path[i]))
            return 0;
        if (stdir_open(&dir, path[i], err) < 0)
            return -1;
        stdir_close(&dir);
    }
    return 1;
}
