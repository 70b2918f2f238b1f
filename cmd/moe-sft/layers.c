/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/layers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/model/config_file.h"

/* Opening a layer scans the names of all tensors of the base and the adapter:
 * without a limit, a file with many layers takes quadratic time. */
#define MAX_LAYERS 4096

/* ---- -l ---- */

/* Adds PATH or FILE@LAYER to cmd->loras, which owns 'path' from then on. */
static int
add_one(struct cmd *cmd, char *path, struct err *err)
{
    int64_t layer = file_cut_layer(&path);

    if (*path)
        peft_enter(&path);
    cmd->loras = xrealloc(cmd->loras, cmd->n_loras + 1, sizeof(*cmd->loras));
    cmd->loras[cmd->n_loras++] = (struct lora_arg){ path, layer };
    return *path ? 0 : err_set(err, TU_USAGE, "-l: an empty file name");
}

int
lora_add(struct cmd *cmd, const char *arg, struct err *err)
{
    if (access(arg, F_OK) == 0) /* its name may have a comma */
        return add_one(cmd, xstrdup(arg), err);
    for (const char *at = arg; at;) {
        size_t n = strcspn(at, ",");

        if (add_one(cmd, xstrndup(at, n), err) < 0)
            return -1;
        at = at[n] ? at + n + 1 : NULL;
    }
    return 0;
}

/* ---- layers ---- */

/* Adds an adapter for 'layer', and that layer of the base. */
static int
add_layer(struct layers *l, const char *path, struct lora_file *f,
          int64_t layer, struct err *err)
{
    const char *base = l->cmd->base;
    struct adapted_layer *x;

    l->list = xrealloc(l->list, l->n + 1, sizeof(*l->list));
    x = &l->list[l->n++];
    *x = (struct adapted_layer){ .path = path, .is_peft = !f->is_stack };
    if (base && base_open_in(&x->base, &l->dir, base, layer, err) < 0)
        return -1;
    return adapter_map(&x->adapter, f, layer, base ? &x->base : NULL, err);
}

/* The layers that a PEFT directory has adapters of experts of, in order. */
static int64_t *
list_layers(const struct lora_file *f, size_t *n)
{
    int64_t *layers = xcalloc(f->n_pairs + 1, sizeof(*layers));
    size_t n_all = 0;

    for (size_t i = 0; i < f->n_pairs; i++)
        if (f->pairs[i].of.expert >= 0)
            layers[n_all++] = f->pairs[i].of.layer;
    qsort(layers, n_all, sizeof(*layers), by_i64);
    *n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (!*n || layers[*n - 1] != layers[i])
            layers[(*n)++] = layers[i];
    return layers;
}

/* Adds all layers of a PEFT directory, or only that of --layer or the base. */
static int
add_peft(struct layers *l, const char *path, struct lora_file *f,
         struct err *err)
{
    size_t n;
    int64_t *layers = list_layers(f, &n);
    int rc = 0;

    if (l->adapter_says_layer && n && layers[0] < 0 && l->cmd->n_loras > 1)
        rc = err_set(
            err, TU_USAGE,
            "%s: does not say which layer it is for, so it must be the only "
            "one",
            path);
    if (l->adapter_says_layer && n > MAX_LAYERS)
        rc = err_set(err, EX_DATAERR,
                     "%s: has adapters of %zu layers (expected at most %d)",
                     path, n, MAX_LAYERS);
    /* n == 0: adapter_map() reports what is missing */
    if (!l->adapter_says_layer || n == 0)
        rc = add_layer(l, path, f, l->cmd->layer, err);
    for (size_t i = 0; l->adapter_says_layer && rc == 0 && i < n; i++)
        rc = add_layer(l, path, f, layers[i], err);
    free(layers);
    /* one layer, or all that the base has */
    if (rc == 0)
        rc = adapter_warn(f, l->cmd->base ? &l->dir : NULL,
                          l->adapter_says_layer || !l->cmd->base
                              ? ""
                              : l->list[l->n - 1].base.prefix,
                          err);
    return rc;
}

/* Adds what one name of -l stands for: the layers of a PEFT directory, or our
 * file of one layer, which is given by @LAYER, --layer or its metadata. */
static int
add_lora(struct layers *l, const struct lora_arg *lora, struct err *err)
{
    struct lora_file *f = &l->files[l->n_files++];
    int64_t layer = l->cmd->layer;

    if (lora_file_open(f, lora->path, lora->layer, err) < 0)
        return -1;
    if (!f->is_stack)
        return add_peft(l, lora->path, f, err);
    if (lora->layer >= 0 && layer >= 0 && lora->layer != layer)
        return err_set(err, TU_USAGE, "-l %s@%lld: --layer asks for layer %lld",
                       lora->path, (long long)lora->layer, (long long)layer);
    if (lora->layer >= 0 || l->adapter_says_layer)
        layer = f->layer;
    if (layer < 0 && l->cmd->n_loras > 1)
        return err_set(
            err, TU_USAGE,
            "%s: does not say which layer it is for (%s@LAYER says it)",
            lora->path, lora->path);
    if (add_layer(l, lora->path, f, layer, err) < 0)
        return -1;
    if (layer >= 0)
        l->list[l->n - 1].adapter.layer = layer;
    return 0;
}

static int
by_layer(const void *a, const void *b)
{
    int64_t x = ((const struct adapted_layer *)a)->adapter.layer;
    int64_t y = ((const struct adapted_layer *)b)->adapter.layer;

    return (x > y) - (x < y);
}

int
layers_open(struct layers *l, const struct cmd *cmd, struct err *err)
{
    const struct model_family *family;
    int rc = 0;

    *l = (struct layers){ .cmd = cmd, .adapter_says_layer = cmd->n_loras > 1 };
    if (l->adapter_says_layer && cmd->layer >= 0)
        return err_set(err, TU_USAGE,
                       "--layer is for one adapter (-l FILE@LAYER,.. gives "
                       "each its own)");
    l->files = xcalloc(cmd->n_loras, sizeof(*l->files));
    if (cmd->base && (base_tensors(&l->dir, cmd->base, err) < 0 ||
                      config_family(&family, cmd->base, err) < 0))
        rc = -1;
    else if (cmd->base && cmd->layer < 0)
        l->adapter_says_layer =
            l->adapter_says_layer || base_has_layers(&l->dir, family);
    for (size_t i = 0; rc == 0 && i < cmd->n_loras; i++)
        rc = add_lora(l, &cmd->loras[i], err);
    if (rc == 0)
        qsort(l->list, l->n, sizeof(*l->list), by_layer);
    /* sorted, so that two of one layer are neighbours; without numbers in the
     * base's names, all its 'layers' are one */
    for (size_t i = 1; rc == 0 && i < l->n; i++) {
        const struct adapted_layer *x = &l->list[i];

        if (x->adapter.layer == x[-1].adapter.layer)
            rc = err_set(err, TU_USAGE, "-l: two adapters are for layer %lld",
                         (long long)x->adapter.layer);
        else if (cmd->base && !strcmp(x->base.prefix, x[-1].base.prefix))
            rc = err_set(
                err, TU_USAGE,
                "%s: does not say which layer it is, so -l can name one "
                "adapter only",
                cmd->base);
    }
    if (rc < 0)
        layers_close(l);
    return rc;
}

void
layers_close(struct layers *l)
{
    for (size_t i = 0; i < l->n; i++) {
        adapter_close(&l->list[i].adapter);
        base_close(&l->list[i].base);
    }
    for (size_t i = 0; i < l->n_files; i++)
        lora_file_close(&l->files[i]);
    stdir_close(&l->dir);
    free(l->files);
    free(l->list);
    *l = (struct layers){ 0 };
}
