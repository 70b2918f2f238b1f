/* SPDX-License-Identifier: ISC */
/* merge: W + s B A, summed in f64 and rounded once to the base's type; here a
 * layer's experts, as a file of stacks. */
#include <string.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/merge.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/family.h"
#include "core/par.h"
#include "core/str.h"

struct merge {
    const struct cmd *cmd;
    struct base base;
    struct lora_file file;
    struct expert_adapter adapter; /* its */
    struct par *par;
    struct merge_work work;
    struct stw *w;
};

static int
open_files(struct merge *g, struct err *err)
{
    const struct cmd *cmd = g->cmd;
    const struct base *base = &g->base;
    int64_t layer = cmd->layer;

    if (cmd->loras.n > 1)
        return err_set(err, TU_USAGE,
                       "-l is given %zu times: a file gets the experts of one "
                       "layer (all layers go from a directory into one)",
                       cmd->loras.n);
    if (adapter_file_open(&g->file, cmd->loras.item[0], layer, err) < 0 ||
        base_open(&g->base, cmd->base, layer < 0 ? g->file.layer : layer, err))
        return -1;
    if (base->bias) /* which stacks here have not */
        return err_set(err, EX_DATAERR,
                       "%s: experts of a %s are merged into a directory",
                       base->path, base->family->model_type);
    if (base_want_float(base, err) < 0 ||
        merge_refuse_packed(&base->packed, cmd->base, err) < 0 ||
        adapter_map(&g->adapter, &g->file, layer, base, err) < 0)
        return -1;
    return adapter_warn(&g->file, &base->dir, base->prefix, err);
}

/* One expert's matrix of a stack. */
static int
put_merged(struct merge *g, int tensor, enum base_matrix m, size_t e,
           struct err *err)
{
    const struct gemm_matrix x = base_weights(&g->base, m, e);
    const struct expert_adapter *a = &g->adapter;
    double scale = (double)a->alpha / (double)a->rank;
    size_t nbytes = x.n * x.k * dtype_size(x.weight.dtype);

    if (base_check_matrix(&g->base, m, e, false, g->par, err) < 0)
        return -1;
    adapter_f32(a, 2 * m, e, g->work.a);
    adapter_f32(a, 2 * m + 1, e, g->work.b);
    if (!merge_matrix(&g->work, &x, a->rank, scale))
        return err_set(err, EX_DATAERR,
                       "%s: %s of expert %zu has an adapter with NaN or Inf",
                       g->file.dir.path, base_word(m), e);
    return stw_write(g->w, tensor, g->work.merged, nbytes, e * nbytes, err);
}

static int
write_stacks(struct merge *g, struct err *err)
{
    struct str name = { 0 };
    int rc = 0;

    for (enum base_matrix m = 0; m < BASE_N && rc >= 0; m++) {
        const struct gemm_matrix x = base_weights(&g->base, m, 0);
        const uint64_t shape[] = { g->base.n_experts, x.n, x.k };

        str_clear(&name);
        if (g->base.stacked)
            base_tensor_name(&g->base, m, 0, &name);
        else
            str_adds(&name, base_word(m));
        rc = stw_add(g->w, name.s, x.weight.dtype, 3, shape, err);
    }
    str_free(&name);
    if (rc >= 0)
        rc = stw_open(g->w, g->cmd->output, g->cmd->out_flags, err);
    for (enum base_matrix m = 0; m < BASE_N; m++)
        for (size_t e = 0; e < g->base.n_experts && rc == 0; e++)
            rc = put_merged(g, (int)m, m, e, err);
    if (rc == 0 && (stdir_unchanged(&g->base.dir, err) < 0 ||
                    adapter_unchanged(&g->adapter, err) < 0))
        rc = -1;
    return rc < 0 ? -1 : stw_commit(g->w, err);
}

int
merge_main(const struct cmd *cmd, struct err *err)
{
    struct merge g = { .cmd = cmd, .w = stw_new() };
    int rc = -1, is_dir = file_is_dir(cmd->base, err);
    size_t low, h, k;

    if (is_dir < 0 || can_write(cmd, cmd->output, err) < 0)
        goto out;
    if (is_dir && !str_ends(cmd->output, ".safetensors")) {
        rc = merge_model(cmd, err);
        goto out;
    }
    if (open_files(&g, err) < 0 || par_open(&g.par, cmd->n_threads, err) < 0)
        goto out;
    h = g.base.hidden;
    k = g.base.intermediate;
    low = g.adapter.rank * larger(h, k);
    if (merge_work_open(&g.work, g.par, cmd->n_threads, h * k, larger(h, k),
                        low, err) == 0)
        rc = write_stacks(&g, err);
out:
    stw_free(g.w);
    merge_work_close(&g.work);
    par_close(g.par);
    adapter_close(&g.adapter);
    lora_file_close(&g.file);
    base_close(&g.base);
    return rc;
}
