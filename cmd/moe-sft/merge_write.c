/* SPDX-License-Identifier: ISC */
/* merge: the numbers of a matrix, and the directory that a model goes to. */
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/merge.h"
#include "core/format/stdir_copy.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/form.h"
#include "core/outdir.h"
#include "core/str.h"
#include "core/tty.h"

/* ---- numbers ---- */

int
merge_work_open(struct merge_work *g, struct par *par, int n_threads,
                size_t largest, size_t longest, size_t low, struct err *err)
{
    size_t threads = (size_t)n_threads;

    *g = (struct merge_work){ .par = par, .longest = longest };
    g->merged = mem_try(largest, 4, "merged matrix", err);
    g->a = mem_try(low, sizeof(*g->a), "adapter", err);
    g->b = mem_try(low, sizeof(*g->b), "adapter", err);
    g->sums = mem_try(longest, threads * sizeof(*g->sums), "sums", err);
    g->rounded = mem_try(longest, threads * sizeof(*g->rounded), "sums", err);
    return g->merged && g->a && g->b && g->sums && g->rounded ? 0 : -1;
}

void
merge_work_close(struct merge_work *g)
{
    free(g->rounded);
    free(g->sums);
    free(g->b);
    free(g->a);
    free(g->merged);
    *g = (struct merge_work){ 0 };
}

/* One matrix while threads share its rows. */
struct job {
    struct merge_work *g;
    const struct gemm_matrix *w;
    size_t rank;
    double scale;
};

static void
merge_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct job *j = ctx;
    const struct merge_work *g = j->g;
    size_t rank = j->rank, k = j->w->k;
    enum dtype dtype = j->w->weight.dtype;
    double *sums = g->sums + (size_t)thread * g->longest;
    float *row = g->rounded + (size_t)thread * g->longest;

    for (size_t r = begin; r < end; r++) {
        memset(sums, 0, k * sizeof(*sums));
        for (size_t i = 0; i < rank; i++) {
            double b = (double)g->b[r * rank + i];

            for (size_t c = 0; c < k; c++)
                sums[c] += b * (double)g->a[i * k + c];
        }
        weight_read(row, &j->w->weight, r, 0, k);
        for (size_t c = 0; c < k; c++) {
            double v = (double)row[c] + j->scale * sums[c];

            row[c] = dtype == DT_F32 ? (float)v : f64_to_odd(v);
        }
        cvt_from_f32((char *)g->merged + r * k * dtype_size(dtype), dtype, row,
                     k);
    }
}

bool
merge_matrix(struct merge_work *g, const struct gemm_matrix *w, size_t rank,
             double scale)
{
    struct job j = { g, w, rank, scale };

    if (!cvt_fits(g->a, DT_F32, rank * w->k) ||
        !cvt_fits(g->b, DT_F32, w->n * rank))
        return false;
    par_for_thread(g->par, w->n, 16, merge_rows, &j);
    return true;
}

/* ---- a directory ---- */

int
merge_refuse_packed(const struct quantization *packed, const char *path,
                    struct err *err)
{
    if (packed->n_groups == 0)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: its weights are packed: st-convert --dequantize first, "
                   "and merge into that",
                   path);
}

/* Is the tensor the model's?  A shard may have others, such as an older copy of
 * one that the index gives to another shard. */
static bool
is_used(const struct stdir *dir, const struct st_tensor *t)
{
    const struct stdir_tensor *x = stdir_find_n(dir, t->name, t->name_n);

    return x && x->t == t;
}

static int
write_shard(const struct stdir *dir, const struct st *st, const char *path,
            merge_put_fn *put, void *ctx, struct err *err)
{
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

        if (!is_used(dir, t))
            continue;
        rc = put(ctx, w, tensor, t, err);
        if (rc == 0)
            rc = stw_write_mapped(w, tensor, st_data(st, t), t->nbytes, 0, err);
        else if (rc > 0)
            rc = 0;
        tensor++;
    }
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}

int
merge_directory(const struct cmd *cmd, const struct stdir *dir,
                const char *config, merge_put_fn *put, merge_end_fn *end,
                void *ctx, struct err *err)
{
    size_t n = strlen(dir->path) + 1;
    const struct stdir_text instead = { "config.json", config };
    struct outdir_at f;
    int rc;

    if (outdir_at_open(&f, cmd->output, cmd->out_flags, err) < 0)
        return -1;
    rc = stdir_copy_others(dir, outdir_path(f.dir), &instead, config != NULL,
                           "the adapter is not in", err);
    for (size_t i = 0; rc == 0 && i < dir->n_files; i++) {
        const struct st *st = dir->files + i;
        struct str path = { 0 };

        str_addf(&path, "%s/%s", outdir_path(f.dir), st->path + n);
        rc = strchr(st->path + n, '/')
                 ? err_set(
                       err, EX_DATAERR,
                       "%s: is in a directory of its own (expected next to the "
                       "index)",
                       st->path)
                 : write_shard(dir, st, path.s, put, ctx, err);
        str_free(&path);
    }
    if (rc == 0)
        rc = end(ctx, err);
    if (rc == 0)
        return outdir_at_commit(&f, err);
    outdir_at_abort(&f);
    return -1;
}
