#include "cmd/lut-precompute/f64.h"

#include <stdlib.h>

#include "cmd/lut-precompute/matrix.h"
#include "core/mem.h"

#define LANES 8

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

float
f64_round(double v, enum dtype dtype)
{
    switch (dtype) {
    case DT_BF16:
        return bf16_to_f32(f32_to_bf16(f64_to_odd(v)));
    case DT_F16:
        return f16_to_f32(f32_to_f16(f64_to_odd(v)));
    default:
        return (float)v;
    }
}

struct task {
    const struct target_part *part;
    const double *b;
    float *row; /* [threads, cols] */
    double *sums;
};

static void
sum_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    const struct matrix *w = &t->part->w;
    float *row = t->row + (size_t)thread * w->cols;

    for (size_t i = begin; i < end; i++) {
        matrix_rows(NULL, w, i, 1, row, w->cols);
        t->sums[i] = dot64(row, t->b, w->cols);
        if (t->part->bias.data)
            t->sums[i] += dtype_get(t->part->bias.dtype, t->part->bias.data, i);
    }
}

void
bias_products(struct par *par, const struct target_layer *t, const double *b,
              double *sums)
{
    size_t n = par ? (size_t)par_threads(par) : 1;
    float *row = xcalloc(n * t->in, sizeof(*row));

    for (size_t i = 0; i < t->n_parts; i++) {
        struct task task = { &t->parts[i], b, row, sums };

        par_for(par, t->parts[i].w.rows, 16, sum_rows, &task);
        sums += t->parts[i].w.rows;
    }
    free(row);
}
