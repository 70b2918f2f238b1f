/* SPDX-License-Identifier: ISC */
#include "core/model/matrix_rows.h"

#include <stdlib.h>

#include "core/mem.h"

#define BLOCK 64 /* rows and columns transposed at a time: 16 KiB of f32 */
#define LANES 8

struct rows_task {
    const struct gemm_matrix *w;
    size_t first, n;
    float *to;
    size_t ld;
};

static void
widen_rows(void *ctx, size_t begin, size_t end)
{
    const struct rows_task *t = ctx;
    const struct gemm_matrix *w = t->w;
    size_t row = t->first + begin;
    float block[BLOCK][BLOCK];

    for (size_t i = begin; !w->by_k && i < end; i++)
        weight_read(t->to + i * t->ld, &w->weight, t->first + i, 0, w->k);
    for (size_t c = 0; w->by_k && c < w->k; c += BLOCK) {
        size_t n_c = smaller(w->k - c, BLOCK);

        for (size_t j = 0; j < n_c; j++)
            weight_read(block[j], &w->weight, c + j, row, end - begin);
        for (size_t i = begin; i < end; i++)
            for (size_t j = 0; j < n_c; j++)
                t->to[i * t->ld + c + j] = block[j][i - begin];
    }
}

void
matrix_weights(struct par *par, const struct gemm_matrix *w, size_t first,
               size_t n, float *to, size_t ld)
{
    struct rows_task t = { w, first, n, to, ld };

    par_for(par, n, w->by_k ? BLOCK : 16, widen_rows, &t);
}

void
matrix_rows(struct par *par, const struct matrix *m, size_t first, size_t n,
            float *to, size_t ld)
{
    const struct gemm_matrix w = {
        .weight = { m->data, m->dtype, m->by_col ? m->rows : m->cols },
        .n = m->rows,
        .k = m->cols,
        .by_k = m->by_col,
    };

    matrix_weights(par, &w, first, n, to, ld);
}

double
dot64(const float *a, const double *b, size_t n)
{
    double lane[LANES] = { 0 }, sum = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)a[i + j] * b[i + j];
    for (; i < n; i++)
        sum += (double)a[i] * b[i];
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

struct times_task {
    const struct gemm_matrix *w;
    const struct matrix *bias;
    const double *b;
    float *row; /* [threads, k] */
    double *sums;
};

static void
sum_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct times_task *t = ctx;
    float *row = t->row + (size_t)thread * t->w->k;

    for (size_t i = begin; i < end; i++) {
        matrix_weights(NULL, t->w, i, 1, row, t->w->k);
        t->sums[i] = dot64(row, t->b, t->w->k);
        if (t->bias->data)
            t->sums[i] += dtype_get(t->bias->dtype, t->bias->data, i);
    }
}

void
matrix_times(struct par *par, const struct gemm_matrix *w, const double *b,
             const struct matrix *bias, double *sums)
{
    size_t threads = par ? (size_t)par_threads(par) : 1;
    float *row = xcalloc(threads * w->k, sizeof(*row));
    struct times_task task = { w, bias, b, row, sums };

    par_for_thread(par, w->n, 16, sum_rows, &task);
    free(row);
}
