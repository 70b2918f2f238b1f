/* SPDX-License-Identifier: ISC */
/* merge: a model with all its layers that adapters adapt, to a directory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/merge.h"
#include "core/format/stdir_copy.h"
#include "core/format/stw.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/family.h"
#include "core/model/lora.h"
#include "core/model/model.h"
#include "core/model/parts.h"
#include "core/outdir.h"
#include "core/str.h"
#include "core/tty.h"

#define TAIL ".weight"

struct whole {
    const struct cmd *cmd;
    struct model *model;
    struct par *par;
    struct merge_work work;
    char *bytes; /* of a layer, or of two whose columns alternate */
};

/* The linear layer of a tensor, if an adapter adds to it. */
static const struct linear *
adapted(const struct whole *g, const struct st_tensor *t)
{
    size_t n = t->name_n, k = strlen(TAIL);
    struct linear *l;
    char *name;

    if (n < k || memcmp(t->name + n - k, TAIL, k) != 0)
        return NULL;
    name = xstrndup(t->name, n - k);
    l = model_linear(g->model, name);
    free(name);
    return l && l->lora ? l : NULL;
}

/* to [cols, rows] of a mapped matrix. */
static void
read_transposed(float *to, const struct weight *w, size_t rows, size_t cols,
                float *row)
{
    for (size_t i = 0; i < rows; i++) {
        weight_read(row, w, i, 0, cols);
        for (size_t k = 0; k < cols; k++)
            to[k * rows + i] = row[k];
    }
}

/* Makes work.merged of a layer of tensor t and what its adapter adds. */
static int
merge_layer(struct whole *g, const struct st_tensor *t, const struct linear *l,
            struct err *err)
{
    const struct lora *lora = l->lora;
    size_t rank = lora->a.out, n = l->out * l->in;
    struct gemm_matrix matrix = { .weight = l->w, .n = l->out, .k = l->in };

    if (l->by_k) { /* (B A)^T = A^T B^T */
        matrix.n = l->in;
        matrix.k = l->out;
        read_transposed(g->work.b, &lora->a.w, rank, l->in, g->work.rounded);
        read_transposed(g->work.a, &lora->b.w, l->out, rank, g->work.rounded);
    } else {
        weight_rows(g->work.a, &lora->a.w, 0, rank, l->in);
        weight_rows(g->work.b, &lora->b.w, 0, l->out, rank);
    }
    if (!merge_matrix(&g->work, &matrix, rank, (double)lora->scale)) {
        const struct stdir_tensor *bad = lora_not_finite(g->model);

        return err_set(err, EX_DATAERR, "%s: %s has NaN or Inf", bad->st->path,
                       bad->t->name);
    }
    for (size_t i = 0; i < n; i++)
        if (!isfinite(dtype_get(l->w.dtype, g->work.merged, i)))
            return err_set(err, EX_DATAERR,
                           "%s: %s with its adapter has NaN or Inf",
                           g->model->dir.path, t->name);
    return 0;
}

/* Matrix i of those that a tensor has, and whether it has gate's columns and
 * up's by turns; NULL after the last. */
static const struct linear *
layer_at(const struct whole *g, const struct st_tensor *t, size_t i,
         bool *take_turns)
{
    const struct config *c = &g->model->config;
    struct part_at at;
    size_t n = g->model->stacked ? part_find_stack(&at, c->family, t->name) : 0;

    if (n && (at.layer >= (size_t)c->n_layers || !c->sparse[at.layer]))
        return NULL;
    *take_turns = n == 2 && family_stack(c->family)->in_out;
    if (n == 0)
        return i ? NULL : adapted(g, t);
    at.part += (unsigned)(i % n);
    at.expert = i / n;
    return at.expert < (size_t)c->n_experts ? part_linear(g->model, at) : NULL;
}

/* Writes a tensor as it is in the file, or, where adapters add to it, a linear
 * layer's bytes after another's, or those of two whose columns alternate. */
static int
put_tensor(struct whole *g, struct stw *w, int tensor, const struct st *st,
           const struct st_tensor *t, struct err *err)
{
    const char *data = st_data(st, t), *merged = g->work.merged;
    const struct linear *l;
    bool any = false, take_turns;

    for (size_t i = 0; (l = layer_at(g, t, i, &take_turns)); i++)
        any |= l->lora != NULL;
    if (!any)
        return stw_write_mapped(w, tensor, data, t->nbytes, 0, err);
    for (size_t i = 0; (l = layer_at(g, t, i, &take_turns)); i++) {
        size_t size = dtype_size(l->w.dtype), at = l->w.row * l->w.ld * size;
        size_t step = take_turns ? 2 : 1, k = i % step, n = l->in * l->out;

        if (k == 0)
            memcpy(g->bytes, data + at, step * n * size);
        if (l->lora && merge_layer(g, t, l, err))
            return -1;
        for (size_t j = 0; l->lora && j < n; j++)
            memcpy(g->bytes + (j * step + k) * size, merged + j * size, size);
        if (k == step - 1 &&
            stw_write(w, tensor, g->bytes, step * n * size, at, err))
            return -1;
    }
    return 0;
}

static int
inputs_unchanged(const struct whole *g, struct err *err)
{
    int rc = stdir_unchanged(&g->model->dir, err);

    for (const struct adapter *a = g->model->adapters; a && rc == 0;
         a = a->next)
        rc = stdir_unchanged(&a->file.dir, err);
    return rc;
}

/* ---- the directory ---- */

/* Is the tensor the model's?  A shard may have others, such as an older copy of
 * one that the index gives to another shard. */
static bool
is_used(const struct stdir *dir, const struct st_tensor *t)
{
    const struct stdir_tensor *x = stdir_find_n(dir, t->name, t->name_n);

    return x && x->t == t;
}

static int
write_shard(struct whole *g, const struct st *st, const char *path,
            struct err *err)
{
    const struct stdir *dir = &g->model->dir;
    struct stw *w = stw_new();
    const char *first = NULL; /* of those that are left out */
    size_t n_out = 0;
    int rc = 0, tensor = 0;

    for (size_t i = 0; i < st->n_meta; i++)
        stw_meta(w, st->meta[i].key, st->meta[i].value);
    for (size_t i = 0; rc >= 0 && i < st->n_tensors; i++) {
        const struct st_tensor *t = st->tensors + i;

        if (!is_used(dir, t)) {
            first = first ? first : t->name;
            n_out++;
        } else if (strlen(t->name) != t->name_n)
            rc = err_set(err, EX_DATAERR,
                         "%s: \"%s\" ends at a NUL, as a name here may not",
                         st->path, t->name);
        else
            rc = stw_add(w, t->name, t->dtype, t->n_dims, t->shape, err);
    }
    if (n_out)
        err_warn("%s: %zu tensor%s left out, as the index does not give %s to "
                 "this file (the first is %s)",
                 st->path, n_out, plural(n_out), n_out == 1 ? "it" : "them",
                 first);
    if (rc >= 0)
        rc = stw_open(w, path, 0, err);
    for (size_t i = 0; rc == 0 && i < st->n_tensors; i++) {
        const struct st_tensor *t = st->tensors + i;

        if (is_used(dir, t))
            rc = put_tensor(g, w, tensor++, st, t, err);
    }
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}

/* Writes the directory --output, with 'config' as its config.json unless that
 * is NULL.  Tensors that the index does not give to their file are left out,
 * and files that have the weights in another form: a reader of these would not
 * have the adapter. */
static int
write_directory(struct whole *g, const char *config, struct err *err)
{
    const struct stdir *dir = &g->model->dir;
    size_t n = strlen(dir->path) + 1;
    const struct stdir_text instead = { "config.json", config };
    struct outdir_at f;
    int rc;

    if (outdir_at_open(&f, g->cmd->output, g->cmd->out_flags, err) < 0)
        return -1;
    rc = stdir_copy_others(dir, outdir_path(f.dir), &instead, config != NULL,
                           "the adapter is not in", err);
    for (size_t i = 0; rc == 0 && i < dir->n_files; i++) {
        const struct st *st = dir->files + i;
        struct str path = { 0 };

        str_addf(&path, "%s/%s", outdir_path(f.dir), st->path + n);
        rc = write_shard(g, st, path.s, err);
        str_free(&path);
    }
    if (rc == 0)
        rc = inputs_unchanged(g, err);
    if (rc == 0)
        return outdir_at_commit(&f, err);
    outdir_at_abort(&f);
    return -1;
}

int
merge_model(const struct cmd *cmd, struct err *err)
{
    static const struct config_edit untied = { "tie_word_embeddings", "false",
                                               false };
    struct whole g = { .cmd = cmd };
    size_t largest = 0, longest = 0, low = 0, n = 0;
    struct str config = { 0 };
    const struct stdir *dir;
    int rc = -1;

    if (cmd->layer >= 0)
        return err_set(err, TU_USAGE,
                       "--layer: a directory is merged whole, with all layers "
                       "that -l adapts");
    if (model_open(&g.model, cmd->base, err) < 0)
        return -1;
    for (size_t i = 0; i < cmd->loras.n; i++)
        if (lora_open(g.model, cmd->loras.item[i], err) < 0)
            goto out;
    if (merge_refuse_packed(&g.model->config.quantization, cmd->base, err) <
            0 ||
        par_open(&g.par, cmd->n_threads, err) < 0)
        goto out;
    dir = &g.model->dir;
    for (size_t i = 0; i < dir->n_tensors; i++) {
        const struct stdir_tensor *x = &dir->tensors[i];
        const void *data = st_data(x->st, x->t);
        const struct linear *l;
        bool take_turns;

        for (size_t k = 0; (l = layer_at(&g, x->t, k, &take_turns)); k++) {
            /* a head that the embedding is read from cannot change alone */
            if (!l->lora ||
                (l == &g.model->lm_head && data == g.model->embed.w.data))
                continue;
            if (l->lora->next) {
                err_set(err, TU_USAGE, "-l: two adapters are for %s",
                        x->t->name);
                goto out;
            }
            n++;
            largest = larger(largest, l->out * l->in);
            longest =
                larger(longest, l->by_k ? larger(l->out, l->lora->a.out) : 0);
            longest = larger(longest, l->in);
            low = larger(low, l->lora->a.out * larger(l->in, l->out));
        }
    }
    if (n != lora_count(g.model)) {
        err_set(err, EX_DATAERR,
                "%s: has an adapter of a layer whose weights are another's, as "
                "a tied lm_head's are: it cannot be merged",
                g.model->adapters->file.dir.path);
        goto out;
    }
    /* lm_head.weight is another matrix than the embedding now, which some
     * readers would put in its place */
    if (g.model->lm_head.lora && g.model->config.tied &&
        config_file_edit(&config, cmd->base, &untied, 1, err) < 0)
        goto out;
    g.bytes = mem_try(2 * largest, sizeof(float), dir->path, err);
    if (g.bytes && merge_work_open(&g.work, g.par, cmd->n_threads, largest,
                                   longest, low, err) == 0)
        rc = write_directory(&g, config.s, err);
out:
    free(g.bytes);
    str_free(&config);
    merge_work_close(&g.work);
    par_close(g.par);
    model_close(g.model);
    return rc;
}
