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

static void
say_skipped(const struct sft_run *run)
{
    if (!run->cmd->verbose)
        return;
    tool_say("%s: %zu of %zu slots skipped: their id is no expert",
             run->batch.name, moe_skipped(run->moe),
             run->batch.qlen * run->batch.top_k);
}

static struct stw *
write_output(const struct sft_run *run, const float *output, struct err *err)
{
    const struct output_tensor tensor = {
        "output", DT_F32, 2, { run->batch.qlen, run->batch.hidden }, output
    };
    struct stw *w = stw_new();

    if (write_tensors(w, &tensor, 1, run->cmd->output, run->cmd->out_flags,
                      err) == 0)
        return w;
    stw_free(w);
    return NULL;
}

/* Both files are there in full before either gets its name. */
static int
write_files(const struct sft_run *run, const float *output, struct err *err)
{
    struct stw *cache = NULL, *out;
    int rc = -1;

    if (run->cmd->cache) {
        cache = cache_write(run, run->cmd->cache, err);
        if (!cache)
            return -1;
    }
    out = write_output(run, output, err);
    if (out && (!cache || stw_commit(cache, err) == 0))
        rc = stw_commit(out, err);
    stw_free(out);
    stw_free(cache);
    return rc;
}

static int
forward(struct sft_run *run, struct err *err)
{
    struct moe_batch batch = batch_of(&run->batch);
    size_t n = run->batch.qlen * run->batch.hidden;
    float *output = mem_try(n + 1, sizeof(*output), run->batch.name, err);
    int rc = -1;

    if (!output)
        return -1;
    if (moe_forward(run->moe, &batch, output, run->cmd->cache, err) == 0) {
        say_skipped(run);
        rc = write_files(run, output, err);
    }
    free(output);
    return rc;
}

int
forward_main(const struct cmd *cmd, struct err *err)
{
    enum moe_mode mode;
    struct sft_run run = { 0 };
    int rc = -1;

    if (can_write(cmd, cmd->output, err) < 0 ||
        can_write(cmd, cmd->cache, err) < 0)
        return -1;
    if (run_files(&run, cmd, err) == 0 &&
        base_mode(&run.base, cmd->mode, &mode, err) == 0 &&
        run_batch(&run, err) == 0 &&
        run_moe(&run, run.batch.top_k, run.batch.qlen, mode, err) == 0)
        rc = forward(&run, err);
    run_close(&run);
    return rc;
}
