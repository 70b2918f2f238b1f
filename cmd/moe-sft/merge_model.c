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

/* merge_put_fn of every linear layer. */
static int
put_layer(void *ctx, struct stw *w, int tensor, const struct st_tensor *t,
          struct err *err)
{
    struct whole *g = ctx;
    const struct linear *l = adapted(g, t);
    const struct lora *lora = l ? l->lora : NULL;
    size_t rank = lora ? lora->a.out : 0, n, nbytes;
    struct gemm_matrix matrix;

    if (!l)
        return 0;
    matrix = (struct gemm_matrix){ .weight = l->w, .n = l->out, .k = l->in };
    n = l->out * l->in;
    nbytes = n * dtype_size(l->w.dtype);
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
    return stw_write(w, tensor, g->work.merged, nbytes, 0, err) < 0 ? -1 : 1;
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
        const struct linear *l = adapted(&g, x->t);

        /* a head that the embedding is read from cannot change alone */
        if (!l || (l == &g.model->lm_head &&
                   st_data(x->st, x->t) == g.model->embed.w.data))
            continue;
        n++;
        largest = larger(largest, l->out * l->in);
        longest = larger(longest, l->by_k ? larger(l->out, l->lora->a.out) : 0);
        longest = larger(longest, l->in);
        low = larger(low, l->lora->a.out * larger(l->in, l->out));
    }
    if (n != g.model->adapters->n_parts) {
        err_set(err, EX_DATAERR,
                "%s: has an adapter of a layer whose weights are another's, as "
                "a tied lm_head's or stacked experts' are: it cannot be merged",
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
