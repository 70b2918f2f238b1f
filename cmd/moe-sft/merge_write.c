/* SPDX-License-Identifier: ISC */
/* merge: the numbers of a matrix. */
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/merge.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/form.h"

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
