/* SPDX-License-Identifier: ISC */
/* convert: stacked adapters to a PEFT directory, and back. */
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/peft.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

#define SUFFIX ".safetensors"

/* Opening a layer scans the names of all tensors of the adapter: without a
 * limit, a file with many layers takes quadratic time. */
#define MAX_LAYERS 4096

struct convert {
    const struct cmd *cmd;
    struct base base;        /* zeroed without --base */
    struct lora_file *files; /* [n_files] */
    size_t n_files;
    struct expert_adapter *list; /* [n] of layers, sorted by them */
    size_t n;
};

/* Adds an adapter for 'layer', which is read later. */
static int
add_layer(struct convert *c, const struct lora_file *f, int64_t layer,
          struct err *err)
{
    if (layer < 0 && c->cmd->loras.n > 1)
        return err_set(err, TU_USAGE,
                       "%s: does not say which layer it is for%s", f->dir.path,
                       f->is_stack ? " (FILE@LAYER says it)" : "");
    if (c->n == MAX_LAYERS)
        return err_set(err, EX_DATAERR, "%s: has adapters of over %d layers",
                       f->dir.path, MAX_LAYERS);
    c->list = xrealloc(c->list, c->n + 1, sizeof(*c->list));
    c->list[c->n++] = (struct expert_adapter){ .file = f, .layer = layer };
    return 0;
}

/* Adds what one -l stands for: the layers of a PEFT directory, or a stacked
 * file of one layer, which is given by @LAYER, --layer or its metadata. */
static int
add_file(struct convert *c, const char *arg, struct err *err)
{
    struct lora_file *f = &c->files[c->n_files++];
    int64_t asked = c->cmd->layer;
    size_t first = c->n;
    int rc = 0;

    if (adapter_file_open(f, arg, asked, err) < 0)
        return -1;
    if (f->is_stack)
        return add_layer(c, f, asked < 0 ? f->layer : asked, err);
    for (size_t i = 0; i < f->n_pairs && rc == 0; i++) {
        const struct expert_name *of = &f->pairs[i].of;
        size_t k = first;

        while (k < c->n && c->list[k].layer != of->layer)
            k++;
        if (k == c->n && of->expert >= 0 && (asked < 0 || of->layer == asked))
            rc = add_layer(c, f, of->layer, err);
    }
    if (rc == 0 && c->n == first) /* adapter_map() says what is missing */
        rc = add_layer(c, f, asked, err);
    return rc;
}

static int
by_layer(const void *a, const void *b)
{
    int64_t x = ((const struct expert_adapter *)a)->layer;
    int64_t y = ((const struct expert_adapter *)b)->layer;

    return (x > y) - (x < y);
}

static int
open_layers(struct convert *c, struct err *err)
{
    const struct cmd *cmd = c->cmd;
    const struct base *base = cmd->base ? &c->base : NULL;

    if (cmd->loras.n > 1 && cmd->layer >= 0)
        return err_set(err, TU_USAGE,
                       "--layer is for one adapter (-l FILE@LAYER,.. gives "
                       "each its own)");
    c->files = xcalloc(cmd->loras.n, sizeof(*c->files));
    for (size_t i = 0; i < cmd->loras.n; i++)
        if (add_file(c, cmd->loras.item[i], err) < 0)
            return -1;
    qsort(c->list, c->n, sizeof(*c->list), by_layer);
    for (size_t i = 1; i < c->n; i++)
        if (c->list[i].layer == c->list[i - 1].layer)
            return err_set(err, TU_USAGE, "-l: two adapters are for layer %lld",
                           (long long)c->list[i].layer);
    /* of which any layer has the sizes and names of all */
    if (base && base_open(&c->base, cmd->base, c->list->layer, err) < 0)
        return -1;
    c->base.layer = -1;
    for (size_t i = 0; i < c->n; i++) {
        struct lora_file *f = &c->files[0];

        while (f != c->list[i].file)
            f++;
        if (adapter_map(&c->list[i], f, c->list[i].layer, base, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < c->n_files; i++)
        if (adapter_warn(&c->files[i], base ? &base->dir : NULL,
                         base && cmd->layer >= 0 ? base->prefix : "", err) < 0)
            return -1;
    return 0;
}

/*
 * Writes the adapters of all layers as one PEFT directory.  They must be of one
 * model: experts of the same sizes, and as many in each layer.  A PEFT
 * directory may seem to have fewer, as it need not adapt the last experts.
 */
static int
to_peft(const struct convert *c, struct err *err)
{
    const struct expert_adapter *a = c->list;

    if (a->layer < 0)
        return err_set(
            err, TU_USAGE,
            "%s: does not say which layer it is for (--layer N says it)",
            a->file->dir.path);
    for (size_t i = 0; i < c->n && !a->file->is_stack; i++)
        if (c->list[i].file->is_stack || c->list[i].n_experts > a->n_experts)
            a = &c->list[i]; /* one that has all experts, or the most */
    for (size_t i = 0; i < c->n; i++) {
        const struct expert_adapter *b = &c->list[i];

        if (b->hidden != a->hidden || b->intermediate != a->intermediate ||
            (b->file->is_stack ? b->n_experts != a->n_experts
                               : b->n_experts > a->n_experts))
            return err_set(
                err, EX_DATAERR,
                "%s: has %zu experts of %zu x %zu, but %s %zu "
                "of %zu x %zu: adapters of one model have the same sizes",
                b->file->dir.path, b->n_experts, b->hidden, b->intermediate,
                a->file->dir.path, a->n_experts, a->hidden, a->intermediate);
    }
    return adapter_write_peft(c->list, c->n, c->base.family,
                              c->cmd->stacked || c->base.joined, c->cmd->output,
                              c->cmd->out_flags, err);
}

int
convert_main(const struct cmd *cmd, struct err *err)
{
    struct convert c = { .cmd = cmd };
    int rc = can_write(cmd, cmd->output, err);
    bool to_stacked;

    if (rc == 0)
        rc = open_layers(&c, err);
    /* else to PEFT, and by --stacked to its stacks */
    to_stacked =
        c.files && !c.files->is_stack && c.n_files == 1 && !cmd->stacked;
    if (rc == 0 && !to_stacked && str_ends(cmd->output, SUFFIX))
        rc = err_set(
            err, TU_USAGE,
            "-o %s: the output of %s is a PEFT directory, whose name must not "
            "end in %s",
            cmd->output, cmd->loras.n > 1 ? "several -l" : cmd->loras.item[0],
            SUFFIX);
    else if (rc == 0 && !to_stacked)
        rc = to_peft(&c, err);
    else if (rc == 0 && c.n > 1)
        rc = err_set(err, TU_USAGE,
                     "%s: has adapters of layers %lld to %lld: --layer N names "
                     "one",
                     cmd->loras.item[0], (long long)c.list[0].layer,
                     (long long)c.list[c.n - 1].layer);
    else if (rc == 0)
        rc = adapter_write(c.list, cmd->output, cmd->out_flags, err);
    for (size_t i = 0; i < c.n; i++)
        adapter_close(&c.list[i]);
    for (size_t i = 0; i < c.n_files; i++)
        lora_file_close(&c.files[i]);
    base_close(&c.base);
    free(c.list);
    free(c.files);
    return rc;
}
