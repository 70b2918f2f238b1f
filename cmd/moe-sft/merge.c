/* SPDX-License-Identifier: ISC */
/* merge: W + s B A, summed in f64 and rounded once to the base's type. */
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/layers.h"
#include "cmd/moe-sft/merge.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/st.h"
#include "core/format/stw.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/family.h"
#include "core/model/moe.h"
#include "core/par.h"
#include "core/str.h"

#define SUFFIX ".safetensors"

struct merge {
    const struct cmd *cmd;
    struct layers layers;
    struct par *par;
    struct merge_work work;
};

/* An expert's matrix of a layer, or the stack of all. */
struct item {
    const struct adapted_layer *of;
    enum base_matrix m;
    int64_t expert; /* -1: all, stacked */
};

/* Is it gate and up of all experts? */
static bool
is_joined(const struct merge *g, const struct item *it)
{
    return it->of->base.joined && !g->cmd->stacked && it->m == BASE_GATE;
}

/* ---- numbers ---- */

/* Writes one expert's matrix, or all of them, as a tensor. */
static int
put_merged(struct merge *g, struct stw *w, int tensor, struct item it,
           struct err *err)
{
    const struct base *base = &it.of->base;
    size_t first = it.expert < 0 ? 0 : (size_t)it.expert;
    size_t end = it.expert < 0 ? base->n_experts : first + 1;
    size_t n_parts = is_joined(g, &it) ? 2 : 1, at = 0;

    for (size_t i = first * n_parts; i < end * n_parts; i++) {
        size_t e = i / n_parts;
        enum base_matrix m = it.m + (enum base_matrix)(i % n_parts);
        const struct gemm_matrix x = base_weights(base, m, e);
        const struct expert_adapter *a = &it.of->adapter;
        double scale = (double)a->alpha / (double)a->rank;
        size_t nbytes = x.n * x.k * dtype_size(x.weight.dtype);

        if (base_check_matrix(base, m, e, false, g->par, err) < 0)
            return -1;
        adapter_f32(a, 2 * m, e, g->work.a);
        adapter_f32(a, 2 * m + 1, e, g->work.b);
        if (!merge_matrix(&g->work, &x, a->rank, scale))
            return err_set(err, EX_DATAERR,
                           "%s: %s of expert %zu has an adapter with NaN or "
                           "Inf",
                           it.of->path, base_word(m), e);
        if (stw_write(w, tensor, g->work.merged, nbytes, at, err) < 0)
            return -1;
        at += nbytes;
    }
    return 0;
}

/* Checks that no file that was read has another size by now. */
static int
inputs_unchanged(const struct merge *g, struct err *err)
{
    const struct layers *l = &g->layers;

    if (stdir_unchanged(&l->dir, err) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if (adapter_unchanged(&l->list[i].adapter, err) < 0)
            return -1;
    return 0;
}

/* ---- a file of the experts alone ---- */

/* Item i of a layer; false after the last. */
static bool
item_at(const struct merge *g, const struct adapted_layer *of, size_t i,
        struct item *it)
{
    bool joined = of->base.joined && !g->cmd->stacked;
    bool stacked = of->base.stacked || of->base.joined || g->cmd->stacked;

    *it = (struct item){ of, (enum base_matrix)(i % BASE_N),
                         stacked ? -1 : (int64_t)(i / BASE_N) };
    if (joined && i == BASE_UP)
        it->m = BASE_DOWN;
    return i < BASE_N * (stacked ? 1 : of->base.n_experts) - (joined ? 1 : 0);
}

static int
write_experts(struct merge *g, struct err *err)
{
    const struct layers *l = &g->layers;
    struct stw *w = stw_new();
    struct str name = { 0 };
    int tensor = 0, rc = 0;
    struct item it;

    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; rc >= 0 && item_at(g, &l->list[i], k, &it); k++) {
            const struct base *base = &it.of->base;
            bool stacked = it.expert < 0;
            const struct gemm_matrix x =
                base_weights(base, it.m, stacked ? 0 : (size_t)it.expert);
            const uint64_t shape[] = { base->n_experts,
                                       is_joined(g, &it) ? 2 * x.n : x.n, x.k };

            str_clear(&name);
            if (g->cmd->stacked)
                str_adds(&name, base_word(it.m));
            else
                base_tensor_name(base, it.m, (size_t)it.expert, &name);
            rc = stw_add(w, name.s, x.weight.dtype, stacked ? 3 : 2,
                         stacked ? shape : shape + 1, err);
        }
    if (rc >= 0)
        rc = stw_open(w, g->cmd->output, g->cmd->out_flags, err);
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; rc == 0 && item_at(g, &l->list[i], k, &it); k++)
            rc = put_merged(g, w, tensor++, it, err);
    if (rc == 0)
        rc = inputs_unchanged(g, err);
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    str_free(&name);
    return rc;
}

/* ---- a whole directory ---- */

/* Is a tensor one of a layer that is merged? */
static bool
find_item(const struct merge *g, const struct st_tensor *t, struct item *it)
{
    struct str whole = { 0 };
    bool found = false;

    for (size_t i = 0; !found && i < g->layers.n * BASE_N; i++) {
        const struct adapted_layer *of = &g->layers.list[i / BASE_N];
        const struct base *b = &of->base;
        enum base_matrix m = (enum base_matrix)(i % BASE_N);
        size_t n = strlen(b->prefix);
        const char *at = t->name + n;
        char *end = NULL;
        int64_t e = -1;

        if (t->name_n < n || memcmp(t->name, b->prefix, n) != 0)
            continue;
        if (!b->stacked && !b->joined) {
            e = strtoll(at, &end, 10);
            if (end == at || e < 0 || e >= (int64_t)b->n_experts)
                continue;
        }
        str_clear(&whole);
        base_tensor_name(b, m, e < 0 ? 0 : (size_t)e, &whole);
        found = t->name_n == whole.n && !memcmp(t->name, whole.s, whole.n);
        *it = (struct item){ of, m, e };
    }
    str_free(&whole);
    return found;
}

/* merge_put_fn of the experts of layers. */
static int
put_expert(void *ctx, struct stw *w, int tensor, const struct st_tensor *t,
           struct err *err)
{
    struct merge *g = ctx;
    struct item it;

    if (!find_item(g, t, &it))
        return 0;
    return put_merged(g, w, tensor, it, err) < 0 ? -1 : 1;
}

static int
end_experts(void *ctx, struct err *err)
{
    return inputs_unchanged(ctx, err);
}

/* ---- the verb ---- */

/* Whose gate and up take turns: merge_model() writes them. */
static int
refuse_by_columns(const struct base *base, struct err *err)
{
    const struct family_stack *stack =
        base->family ? family_stack(base->family) : NULL;

    if (!stack || !stack->in_out)
        return 0;
    return err_set(
        err, EX_DATAERR,
        "%s: experts of a %s are merged from a PEFT directory, which "
        "convert makes, into a directory",
        base->path, base->family->model_type);
}

int
merge_main(const struct cmd *cmd, struct err *err)
{
    struct merge g = { .cmd = cmd };
    const struct layers *l = &g.layers;
    int rc = -1, is_dir = file_is_dir(cmd->base, err), whole = 0;
    size_t largest = 0, longest = 0, low = 0;

    if (is_dir < 0 || can_write(cmd, cmd->output, err) < 0)
        return -1;
    if (is_dir && !cmd->stacked && !str_ends(cmd->output, SUFFIX))
        whole = merge_is_whole(cmd, err);
    if (whole > 0 && cmd->layer >= 0)
        return err_set(err, TU_USAGE,
                       "--layer: %s is merged whole, with all layers that it "
                       "adapts",
                       cmd->loras[0].path);
    if (whole)
        return whole < 0 ? -1 : merge_model(cmd, err);
    if (layers_open(&g.layers, cmd, err) < 0)
        return -1;
    if (cmd->stacked && l->n > 1) {
        err_set(err, TU_USAGE,
                "--stacked is for one layer, and %s has adapters of layers "
                "%lld to %lld",
                cmd->n_loras > 1 ? "-l" : cmd->loras[0].path,
                (long long)l->list[0].adapter.layer,
                (long long)l->list[l->n - 1].adapter.layer);
        goto out;
    }
    for (size_t i = 0; i < l->n; i++) {
        const struct adapted_layer *x = &l->list[i];
        size_t h = x->base.hidden, k = x->base.intermediate;

        if (base_want_float(&x->base, err) < 0 ||
            refuse_by_columns(&x->base, err) < 0 ||
            merge_refuse_packed(&x->base.packed, cmd->base, err) < 0)
            goto out;
        largest = larger(largest, h * k);
        longest = larger(longest, larger(h, k));
        for (int m = 0; m < MOE_N_LORA; m++)
            low = larger(low, adapter_size(&x->adapter, m));
    }
    if (par_open(&g.par, cmd->n_threads, err) < 0 ||
        merge_work_open(&g.work, g.par, cmd->n_threads, largest, longest, low,
                        err) < 0)
        goto out;
    if (is_dir && !cmd->stacked && !str_ends(cmd->output, SUFFIX))
        rc = merge_directory(cmd, &l->dir, NULL, put_expert, end_experts, &g,
                             err);
    else
        rc = write_experts(&g, err);
out:
    merge_work_close(&g.work);
    par_close(g.par);
    layers_close(&g.layers);
    return rc;
}
