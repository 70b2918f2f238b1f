/* SPDX-License-Identifier: ISC */
/* convert: stacked adapters to a PEFT directory, and back. */
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/layers.h"
#include "cmd/moe-sft/peft.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

#define SUFFIX ".safetensors"

/*
 * Writes the adapters of all layers as one PEFT directory.  They must be of one
 * model: experts of the same sizes, and as many in each layer.  A PEFT
 * directory may seem to have fewer, as it need not adapt the last experts.
 */
static int
to_peft(const struct layers *l, struct err *err)
{
    const struct cmd *cmd = l->cmd;
    const struct expert_adapter **adapters = xcalloc(l->n, sizeof(*adapters));
    int rc = 0;

    for (size_t i = 0; i < l->n; i++)
        adapters[i] = &l->list[i].adapter;
    if (adapters[0]->layer < 0)
        rc = err_set(
            err, TU_USAGE,
            "%s: does not say which layer it is for (--layer N says it)",
            l->list[0].path);
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; rc == 0 && k < i; k++) {
            const struct adapted_layer *a = &l->list[k], *b = &l->list[i];
            const struct expert_adapter *x = &a->adapter, *y = &b->adapter;
            bool same_model = x->hidden == y->hidden &&
                              x->intermediate == y->intermediate &&
                              (x->n_experts <= y->n_experts || b->is_peft) &&
                              (y->n_experts <= x->n_experts || a->is_peft);

            if (!same_model)
                rc = err_set(
                    err, EX_DATAERR,
                    "%s: has %zu experts of %zu x %zu, but %s %zu "
                    "of %zu x %zu: adapters of one model have the same sizes",
                    b->path, y->n_experts, y->hidden, y->intermediate, a->path,
                    x->n_experts, x->hidden, x->intermediate);
        }
    if (rc == 0)
        rc = adapter_write_peft(adapters, l->n, l->list[0].base.family,
                                cmd->stacked || l->list[0].base.joined,
                                cmd->output, cmd->out_flags, err);
    free(adapters);
    return rc;
}

int
convert_main(const struct cmd *cmd, struct err *err)
{
    struct layers l;
    int is_dir = file_is_dir(cmd->loras[0].path, err), rc;
    /* else to PEFT, and by --stacked to its stacks */
    bool to_stacked = is_dir && cmd->n_loras == 1 && !cmd->stacked;

    if (is_dir < 0)
        return -1;
    if (!to_stacked && str_ends(cmd->output, SUFFIX))
        return err_set(
            err, TU_USAGE,
            "-o %s: the output of %s is a PEFT directory, whose name must not "
            "end in %s",
            cmd->output, cmd->n_loras > 1 ? "several -l" : cmd->loras[0].path,
            SUFFIX);
    if (can_write(cmd, cmd->output, err) < 0 || layers_open(&l, cmd, err) < 0)
        return -1;
    if (!to_stacked)
        rc = to_peft(&l, err);
    else if (l.n > 1)
        rc = err_set(err, TU_USAGE,
                     "%s: has adapters of layers %lld to %lld: --layer N names "
                     "one",
                     cmd->loras[0].path, (long long)l.list[0].adapter.layer,
                     (long long)l.list[l.n - 1].adapter.layer);
    else
        rc =
            adapter_write(&l.list[0].adapter, cmd->output, cmd->out_flags, err);
    layers_close(&l);
    return rc;
}
