/* forward: the experts' output for a batch, and what a backward needs. */
#include <stdlib.h>

#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/cache.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "core/tool.h"
#include "core/tty.h"

/* Both files are complete before either gets its name. */
static int
write_files(const struct sft_run *run, const float *output, struct err *err)
{
    const struct cmd *cmd = run->cmd;
    const struct output_tensor tensor = {
        "output", DT_F32, 2, { run->batch.qlen, run->batch.hidden }, output
    };
    struct stw *cache = NULL, *w = stw_new();
    int rc = -1;

    if (cmd->cache)
        cache = cache_write(run, cmd->cache, err);
    if ((cache || !cmd->cache) &&
        write_tensors(w, &tensor, 1, cmd->output, cmd->out_flags, err) == 0 &&
        (!cache || stw_commit(cache, err) == 0))
        rc = stw_commit(w, err);
    stw_free(w);
    stw_free(cache);
    return rc;
}

int
forward_main(const struct cmd *cmd, struct err *err)
{
    struct sft_run run = { 0 };
    struct moe_batch batch;
    enum moe_mode mode;
    float *output = NULL;
    int rc = -1;

    if (can_write(cmd, cmd->output, err) < 0 ||
        can_write(cmd, cmd->cache, err) < 0)
        return -1;
    if (run_files(&run, cmd, err) < 0 ||
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
        tool_say("%s: %zu of %zu slot%s skipped: their id is no expert",
                 run.batch.name, moe_skipped(run.moe),
                 batch.qlen * run.batch.top_k,
                 plural(batch.qlen * run.batch.top_k));
    rc = write_files(&run, output, err);
out:
    free(output);
    run_close(&run);
    return rc;
}
