/* SPDX-License-Identifier: ISC */
/* merge: an adapter of a whole model, attention, MLPs and experts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/merge.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/lora.h"
#include "core/model/model.h"
#include "core/str.h"

#define TAIL ".weight"

struct whole {
    const struct cmd *cmd;
    struct model *model;
    struct par *par;
    struct merge_work work;
};

int
merge_is_whole(const struct cmd *cmd, struct err *err)
{
    const char *path = cmd->loras[0].path;
    struct lora_file f;
    int rc = cmd->n_loras == 1 ? file_is_dir(path, err) : 0;

    if (rc <= 0)
        return rc;
    rc = lora_file_open(&f, path, -1, err);
    for (size_t i = 0; rc == 0 && i < f.n_pairs; i++)
        rc = f.pairs[i].of.expert < 0;
    lora_file_close(&f);
    return rc;
}

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

/* Writes a layer's matrix, with what its adapter adds, at a byte of tensor t.
 */
static int
put_matrix(struct whole *g, struct stw *w, int tensor,
           const struct st_tensor *t, const struct linear *l, size_t at,
           struct err *err)
{
    const struct lora *lora = l->lora;
    size_t rank = lora->a.out, n = l->out * l->in;
    size_t nbytes = n * dtype_size(l->w.dtype);
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
    if (!merge_matrix(&g->work, &matrix, rank, (double)lora->scale))
        return err_set(err, EX_DATAERR, "%s: the adapter of %s has NaN or Inf",
                       g->model->adapters->file.dir.path, t->name);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(dtype_get(l->w.dtype, g->work.merged, i)))
            return err_set(err, EX_DATAERR,
                           "%s: %s with its adapter has NaN or Inf",
                           g->model->dir.path, t->name);
    return stw_write(w, tensor, g->work.merged, nbytes, at, err);
}

/* The matrix after l, NULL the first, of a layer's experts that a tensor with
 * this data has. */
static const struct linear *
next_in_stack(const struct model *m, const void *data, const struct linear *l)
{
    const struct config *c = &m->config;
    bool found = l == NULL;

    for (size_t i = 0; i < (size_t)c->n_layers; i++)
        for (size_t e = 0; c->sparse[i] && e < (size_t)c->n_experts; e++) {
            const struct mlp *x = &m->layers[i].experts[e];
            const struct linear *parts[] = { &x->gate, &x->up, &x->down };

            for (size_t k = 0; k < 3; k++) {
                if (found && parts[k]->w.data == data)
                    return parts[k];
                found |= parts[k] == l;
            }
        }
    return NULL;
}

/* merge_put_fn of every linear layer, and of experts of which a tensor has a
 * layer's. */
static int
put_layer(void *ctx, struct stw *w, int tensor, const struct st_tensor *t,
          struct err *err)
{
    struct whole *g = ctx;
    const struct stdir_tensor *x = stdir_find(&g->model->dir, t->name);
    const struct linear *l = adapted(g, t);
    const char *data = x ? st_data(x->st, x->t) : NULL;
    bool any = false;

    if (l)
        return put_matrix(g, w, tensor, t, l, 0, err) ? -1 : 1;
    if (!data || t->n_dims != 3)
        return 0;
    for (l = NULL; (l = next_in_stack(g->model, data, l));)
        any |= l->lora != NULL;
    for (l = NULL; any && (l = next_in_stack(g->model, data, l));) {
        size_t row = l->w.ld * dtype_size(l->w.dtype), at = l->w.row * row;
        size_t nbytes = row * (l->by_k ? l->in : l->out);

        if (l->lora ? put_matrix(g, w, tensor, t, l, at, err)
                    : stw_write_mapped(w, tensor, data + at, nbytes, at, err))
            return -1;
    }
    return any;
}

static int
end_model(void *ctx, struct err *err)
{
    const struct whole *g = ctx;

    return stdir_unchanged(&g->model->dir, err) < 0
               ? -1
               : stdir_unchanged(&g->model->adapters->file.dir, err);
}

int
merge_model(const struct cmd *cmd, struct err *err)
{
    struct whole g = { .cmd = cmd };
    size_t largest = 0, longest = 0, low = 0, n = 0;
    struct str config = { 0 };
    const struct stdir *dir;
    int rc = -1;

    if (model_open(&g.model, cmd->base, err) < 0)
        return -1;
    if (merge_refuse_packed(&g.model->config.quantization, cmd->base, err) <
            0 ||
        lora_open(g.model, cmd->loras[0].path, err) < 0 ||
        par_open(&g.par, cmd->n_threads, err) < 0)
        goto out;
    dir = &g.model->dir;
    for (size_t i = 0; i < dir->n_tensors; i++) {
        const struct stdir_tensor *x = &dir->tensors[i];
        const void *data = st_data(x->st, x->t);
        const struct linear *l = adapted(&g, x->t);
        bool stack = !l && x->t->n_dims == 3;

        /* a head that the embedding is read from cannot change alone */
        if (l == &g.model->lm_head && data == g.model->embed.w.data)
            continue;
        for (l = stack ? next_in_stack(g.model, data, NULL) : l; l;
             l = stack ? next_in_stack(g.model, data, l) : NULL) {
            if (!l->lora)
                continue;
            n++;
            largest = larger(largest, l->out * l->in);
            longest =
                larger(longest, l->by_k ? larger(l->out, l->lora->a.out) : 0);
            longest = larger(longest, l->in);
            low = larger(low, l->lora->a.out * larger(l->in, l->out));
        }
    }
    if (n != g.model->adapters->n_parts) {
        err_set(err, EX_DATAERR,
                "%s: has an adapter of a layer whose weights are another's, as "
                "a tied lm_head's are, or lie by columns that take turns: it "
                "cannot be merged",
                g.model->adapters->file.dir.path);
        goto out;
    }
    /* lm_head.weight is another matrix than the embedding now, which some
     * readers would put in its place */
    if (g.model->lm_head.lora && g.model->config.tied &&
        config_file_untied(&config, cmd->base, err) < 0)
        goto out;
    if (merge_work_open(&g.work, g.par, cmd->n_threads, largest, longest, low,
                        err) == 0)
        rc = merge_directory(cmd, dir, config.s, put_layer, end_model, &g, err);
out:
    str_free(&config);
    merge_work_close(&g.work);
    par_close(g.par);
    model_close(g.model);
    return rc;
}
