/* SPDX-License-Identifier: ISC */
#include "core/model/matrix_rows.h"

#include <stdlib.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"

#define BLOCK 64 /* rows and columns transposed at a time: 16 KiB of f32 */
#define LANES 8

struct rows_task {
    const struct matrix *m;
    size_t first, n;
    float *to;
    size_t ld;
};

static void
widen_rows(void *ctx, size_t begin, size_t end)
{
    const struct rows_task *t = ctx;
    const struct matrix *m = t->m;
    const char *data = m->data;
    size_t size = dtype_size(m->dtype), row = t->first + begin;
    float block[BLOCK][BLOCK];

    for (size_t i = begin; !m->by_col && i < end; i++)
        cvt_to_f32(t->to + i * t->ld, data + (t->first + i) * m->cols * size,
                   m->dtype, m->cols);
    for (size_t c = 0; m->by_col && c < m->cols; c += BLOCK) {
        size_t n_c = smaller(m->cols - c, BLOCK);

        for (size_t j = 0; j < n_c; j++)
            cvt_to_f32(block[j], data + ((c + j) * m->rows + row) * size,
                       m->dtype, end - begin);
        for (size_t i = begin; i < end; i++)
            for (size_t j = 0; j < n_c; j++)
                t->to[i * t->ld + c + j] = block[j][i - begin];
    }
}

void
matrix_rows(struct par *par, const struct matrix *m, size_t first, size_t n,
            float *to, size_t ld)
{
    struct rows_task t = { m, first, n, to, ld };

    par_for(par, n, m->by_col ? BLOCK : 16, widen_rows, &t);
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
    const struct matrix *m, *bias;
    const double *b;
    float *row; /* [threads, cols] */
    double *sums;
};

static void
sum_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct times_task *t = ctx;
    float *row = t->row + (size_t)thread * t->m->cols;

    for (size_t i = begin; i < end; i++) {
        matrix_rows(NULL, t->m, i, 1, row, t->m->cols);
        t->sums[i] = dot64(row, t->b, t->m->cols);
        if (t->bias->data)
            t->sums[i] += dtype_get(t->bias->dtype, t->bias->data, i);
    }
}

void
matrix_times(struct par *par, const struct matrix *m, const double *b,
             const struct matrix *bias, double *sums)
{
    size_t threads = par ? (size_t)par_threads(par) : 1;
    float *row = xcalloc(threads * m->cols, sizeof(*row));
    struct times_task task = { m, bias, b, row, sums };

    par_for_thread(par, m->rows, 16, sum_rows, &task);
    free(row);
}
