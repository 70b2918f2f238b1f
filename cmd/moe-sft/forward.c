/* SPDX-License-Identifier: ISC */
/*
 * forward: the experts' output for a batch, and a cache for backward.
 * backward: gradients, from that cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/cache.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "core/opt_value.h"
#include "core/tool.h"
#include "core/tty.h"

int
forward_main(const struct cmd *cmd, struct err *err)
{
    struct sft_run run = { 0 };
    struct moe_batch batch;
    enum moe_mode mode;
    struct output_tensor tensor;
    struct stw *cache = NULL, *w = stw_new();
    float *output = NULL;
    int rc = -1;

    if (can_write(cmd, cmd->output, err) < 0 ||
        can_write(cmd, cmd->cache, err) < 0 || run_files(&run, cmd, err) < 0 ||
        base_mode(&run.base, cmd->mode, &mode, err) < 0 ||
        run_batch(&run, err) < 0 ||
        run_moe(&run, run.batch.top_k, run.batch.qlen, mode, false, err) < 0)
        goto out;
    batch = batch_of(&run.batch);
    output = mem_try(batch.qlen * run.batch.hidden + 1, sizeof(*output),
                     run.batch.name, err);
    if (!output || moe_forward(run.moe, &batch, output, cmd->cache, err) < 0)
        goto out;
    if (cmd->verbose)
        tool_say("%s: %zu of %zu slot%s skipped: their ids name no expert",
                 run.batch.name, moe_skipped(run.moe),
                 batch.qlen * run.batch.top_k,
                 plural(batch.qlen * run.batch.top_k));
    /* both files are complete before either gets its name */
    tensor = (struct output_tensor){
        "output", DT_F32, 2, { run.batch.qlen, run.batch.hidden }, output
    };
    if (cmd->cache && !(cache = cache_write(&run, cmd->cache, err)))
        goto out;
    if (write_tensors(w, &tensor, 1, cmd->output, cmd->out_flags, err) == 0 &&
        (!cache || stw_commit(cache, err) == 0))
        rc = stw_commit(w, err);
out:
    stw_free(w);
    stw_free(cache);
    free(output);
    run_close(&run);
    return rc;
}

/* A batch that has more than gradients must be the forward's. */
static int
check_batch(const struct sft_run *run, const struct cache *c, struct err *err)
{
    const struct batch *b = &run->batch, *was = &c->batch;
    size_t n = was->qlen * was->top_k;
    const char *what = NULL;

    if (b->qlen != was->qlen)
        return err_set(
            err, EX_DATAERR,
            "%s: was made by a forward of %zu token%s, but grad_output of "
            "%s has %zu",
            run->cmd->cache, was->qlen, plural(was->qlen), b->name, b->qlen);
    if (b->expert_ids &&
        (b->top_k != was->top_k ||
         memcmp(b->expert_ids, was->expert_ids, n * sizeof(int64_t)) != 0))
        what = "expert_ids";
    else if (b->weights &&
             memcmp(b->weights, was->weights, n * sizeof(float)) != 0)
        what = "weights";
    else if (b->input &&
             memcmp(b->input, was->input, was->qlen * was->hidden * 2) != 0)
        what = "input";
    if (!what)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: was made by a forward with other %s than those of %s",
                   run->cmd->cache, what, b->name);
}

int
backward_main(const struct cmd *cmd, struct err *err)
{
    struct moe_grads grads = { .lora_dtype = cmd->grad_dtype };
    struct output_tensor tensors[2 + MOE_N_LORA];
    char names[MOE_N_LORA][32];
    const struct moe_config *config;
    struct sft_run run = { 0 };
    struct stw *w = stw_new();
    struct cache c = { 0 };
    struct moe_cache top;
    size_t qlen;
    int rc = -1;

    if (can_write(cmd, cmd->output, err) < 0 || run_files(&run, cmd, err) < 0 ||
        batch_open(&run.batch, cmd->grad, BATCH_GRAD_OUTPUT, run.base.hidden,
                   err) < 0 ||
        cache_open(&c, &run, cmd->cache, cmd->mode, err) < 0 ||
        check_batch(&run, &c, err) < 0 ||
        run_moe(&run, c.batch.top_k, c.batch.qlen, c.mode, true, err) < 0)
        goto out;
    top = (struct moe_cache){ batch_of(&c.batch), c.n_rows, c.gate, c.up };
    config = moe_config(run.moe);
    qlen = c.batch.qlen;
    if (moe_cache_push(run.moe, &top, err) < 0 ||
        grads_open(&grads, config, qlen, err) < 0 ||
        moe_backward(run.moe, run.batch.grad_output, &grads, err) < 0)
        goto out;
    tensors[0] = (struct output_tensor){
        "grad_input", DT_BF16, 2, { qlen, config->hidden }, grads.input
    };
    tensors[1] = (struct output_tensor){
        "grad_weights", DT_F32, 2, { qlen, config->top_k }, grads.weights
    };
    for (int m = 0; m < MOE_N_LORA; m++) {
        snprintf(names[m], sizeof(names[m]), "grad_%s", moe_lora_names[m]);
        tensors[2 + m] = (struct output_tensor){
            names[m], grads.lora_dtype, 3, { 0 }, grads.lora[m]
        };
        moe_lora_shape(config, m, tensors[2 + m].shape);
    }
    if (write_tensors(w, tensors, 2 + MOE_N_LORA, cmd->output, cmd->out_flags,
                      err) == 0)
        rc = stw_commit(w, err);
out:
    if (run.moe)
        grads_close(&grads, moe_config(run.moe));
    stw_free(w);
    cache_close(&c);
    run_close(&run);
    return rc;
}
