/* backward: gradients, from a forward's cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/cache.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/mem.h"
#include "core/model/moe.h"

/* What backward writes, in memory and as tensors. */
struct results {
    struct moe_grads grads;
    size_t n_lora[MOE_N_LORA]; /* numbers */
    int input, weights, lora[MOE_N_LORA];
};

/* A batch that has more than gradients must be the forward's. */
static int
check_batch(const struct sft_run *run, const struct cache *c, struct err *err)
{
    const struct batch *b = &run->batch, *was = &c->batch;
    size_t n = was->qlen * was->top_k;
    const char *what = NULL;

    if (b->qlen != was->qlen)
        return err_set(err, EX_DATAERR,
                       "%s: is of a forward of %zu tokens, but grad_output of "
                       "%s has %zu",
                       run->cmd->cache, was->qlen, b->name, b->qlen);
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
                   "%s: is of a forward with other %s than those of %s",
                   run->cmd->cache, what, b->name);
}

static int
push(struct sft_run *run, const struct cache *c, struct err *err)
{
    struct moe_cache top = { batch_of(&c->batch), c->n_rows, c->gate, c->up };

    return moe_cache_push(run->moe, &top, err);
}

static int
alloc(struct results *r, const struct sft_run *run, struct err *err)
{
    const struct moe_config *config = moe_config(run->moe);
    size_t item = run->cmd->grads == DT_F32 ? 4 : 2;
    size_t rows = run->batch.qlen + 1;

    r->grads.lora_dtype = run->cmd->grads;
    r->grads.input = mem_try(rows, config->hidden * 2, "gradients", err);
    r->grads.weights = mem_try(rows, config->top_k * 4, "gradients", err);
    if (!r->grads.input || !r->grads.weights)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++) {
        r->n_lora[m] = moe_lora_numbers(config, m);
        r->grads.lora[m] = mem_big(r->n_lora[m], item, "gradients", err);
        if (!r->grads.lora[m])
            return -1;
    }
    return 0;
}

static void
results_free(struct results *r)
{
    size_t item = r->grads.lora_dtype == DT_F32 ? 4 : 2;

    free(r->grads.input);
    free(r->grads.weights);
    for (int m = 0; m < MOE_N_LORA; m++)
        mem_big_free(r->grads.lora[m], r->n_lora[m], item);
}

static int
add_all(struct stw *w, struct results *r, const struct sft_run *run,
        struct err *err)
{
    const struct moe_config *config = moe_config(run->moe);
    const uint64_t input[] = { run->batch.qlen, config->hidden };
    const uint64_t weights[] = { run->batch.qlen, config->top_k };
    char name[32];

    r->input = stw_add(w, "grad_input", DT_BF16, 2, input, err);
    r->weights = stw_add(w, "grad_weights", DT_F32, 2, weights, err);
    if (r->input < 0 || r->weights < 0)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++) {
        uint64_t shape[3];

        moe_lora_shape(config, m, shape);
        snprintf(name, sizeof(name), "grad_%s", moe_lora_names[m]);
        r->lora[m] = stw_add(w, name, r->grads.lora_dtype, 3, shape, err);
        if (r->lora[m] < 0)
            return -1;
    }
    return 0;
}

static int
put_all(struct stw *w, const struct results *r, const struct sft_run *run,
        struct err *err)
{
    const struct moe_config *config = moe_config(run->moe);
    size_t qlen = run->batch.qlen;

    if (stw_write(w, r->input, r->grads.input, qlen * config->hidden * 2, 0,
                  err) < 0 ||
        write_f32(w, r->weights, r->grads.weights, qlen * config->top_k, err) <
            0)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++) {
        int rc =
            r->grads.lora_dtype == DT_F32
                ? write_f32(w, r->lora[m], r->grads.lora[m], r->n_lora[m], err)
                : stw_write(w, r->lora[m], r->grads.lora[m], 2 * r->n_lora[m],
                            0, err);

        if (rc < 0)
            return -1;
    }
    return 0;
}

static int
write_results(struct results *r, const struct sft_run *run, struct err *err)
{
    struct stw *w = stw_new();
    int rc = -1;

    if (add_all(w, r, run, err) == 0 &&
        stw_open(w, run->cmd->output, run->cmd->out_flags, err) == 0 &&
        put_all(w, r, run, err) == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}

static int
backward(struct sft_run *run, struct err *err)
{
    struct results r = { 0 };
    int rc = -1;

    if (alloc(&r, run, err) == 0 &&
        moe_backward(run->moe, run->batch.grad_output, &r.grads, err) == 0)
        rc = write_results(&r, run, err);
    results_free(&r);
    return rc;
}

int
backward_main(const struct cmd *cmd, struct err *err)
{
    struct sft_run run = { 0 };
    struct cache c = { 0 };
    int rc = -1;

    if (can_write(cmd, cmd->output, err) < 0)
        return -1;
    if (run_files(&run, cmd, err) == 0 &&
        batch_open(&run.batch, cmd->grad, BATCH_GRAD_OUTPUT, run.base.hidden,
                   err) == 0 &&
        cache_open(&c, &run, cmd->cache, cmd->mode, err) == 0 &&
        check_batch(&run, &c, err) == 0 &&
        run_moe(&run, c.batch.top_k, c.batch.qlen, c.mode, err) == 0 &&
        push(&run, &c, err) == 0)
        rc = backward(&run, err);
    cache_close(&c);
    run_close(&run);
    return rc;
}
