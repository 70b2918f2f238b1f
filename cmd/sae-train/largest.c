/* SPDX-License-Identifier: ISC */
#include "cmd/sae-train/largest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define BLOCK_BYTES ((size_t)1 << 20)
#define LEAST_KEPT  1024 /* rows */

/* ---- sums ---- */

struct sums_job {
    const struct row_sums *s;
    const float *const *rows;
    size_t n;
};

static void
add_columns(void *ctx, size_t begin, size_t end)
{
    const struct sums_job *job = ctx;
    const struct row_sums *s = job->s;

    for (size_t r = 0; r < job->n; r++)
        for (size_t i = begin; i < end; i++) {
            double by = (double)job->rows[r][i] - s->from[i];

            moments_add(&s->sum[i], by);
            moments_add(&s->square[i], by * by);
        }
}

void
row_sums_add(struct row_sums *s, struct par *par, const float *const *rows,
             size_t n)
{
    struct sums_job job = { s, rows, n };

    s->n += n;
    par_for(par, s->d, 32, add_columns, &job);
}

static struct moments_sum
difference(struct moments_sum a, const struct moments_sum *b)
{
    moments_add(&a, -b->s);
    a.c -= b->c;
    return a;
}

/* Its squares, less n times the square of its mean, the leading parts of which
 * cancel where 'from' is far from that. */
double
row_sums_variance(const struct row_sums *s, const struct row_sums *without)
{
    static const struct moments_sum none;
    double n = (double)(s->n - (without ? without->n : 0)), all = 0;

    for (size_t i = 0; i < s->d; i++) {
        struct moments_sum x =
            difference(s->sum[i], without ? &without->sum[i] : &none);
        struct moments_sum xx =
            difference(s->square[i], without ? &without->square[i] : &none);
        double sum = x.s + x.c, rest = x.s - sum + x.c;
        double p = sum * sum, q = p / n;
        double p_rest = fma(sum, sum, -p) + 2 * sum * rest;

        all += xx.s - q + (xx.c - (fma(-q, n, p) + p_rest) / n);
    }
    return all;
}

/* ---- the largest ---- */

static bool
is_less(const struct large_row *a, const struct large_row *b)
{
    return a->norm < b->norm || (a->norm == b->norm && a->row > b->row);
}

void
largest_open(struct largest *l)
{
    l->best.norm = -1;
    l->block_rows = larger(BLOCK_BYTES / (4 * l->d), 1);
}

void
largest_close(struct largest *l)
{
    for (size_t i = 0; i < l->n_blocks; i++)
        free(l->blocks[i]);
    free(l->blocks);
    free(l->heap);
}

static double *
errors_at(const struct largest *l, size_t at)
{
    double *block = l->blocks[at / l->block_rows];

    return block + at % l->block_rows * l->n_errors;
}

static float *
row_at(const struct largest *l, size_t at)
{
    double *block = l->blocks[at / l->block_rows];

    return (float *)(block + l->block_rows * l->n_errors) +
           at % l->block_rows * l->d;
}

/* How many of n rows so far are to be kept: more arrays may follow those that
 * were counted. */
static uint64_t
n_kept(const struct largest *l, uint64_t n)
{
    return LEAST_KEPT + l->known / 100 + (n > l->known ? n / 25 : 0);
}

static void
put_down(struct largest *l, struct large_row row)
{
    size_t i = 0, child;

    for (; (child = 2 * i + 1) < l->n_heap; i = child) {
        child += child + 1 < l->n_heap &&
                 is_less(&l->heap[child + 1], &l->heap[child]);
        if (!is_less(&l->heap[child], &row))
            break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = row;
}

static int
put_new(struct largest *l, struct large_row *row, struct err *err)
{
    size_t i = l->n_heap, up;

    row->at = i;
    if (i == l->n_blocks * l->block_rows) {
        if (l->n_blocks == l->cap_blocks)
            l->blocks = xgrow(l->blocks, l->n_blocks, &l->cap_blocks,
                              sizeof(*l->blocks));
        l->blocks[l->n_blocks] = mem_try(
            l->block_rows, l->n_errors * sizeof(double) + l->d * sizeof(float),
            "the largest rows", err);
        if (!l->blocks[l->n_blocks])
            return -1;
        l->n_blocks++;
    }
    if (i == l->cap_heap)
        l->heap = xgrow(l->heap, i, &l->cap_heap, sizeof(*l->heap));
    l->n_heap++;
    for (; i > 0 && is_less(row, &l->heap[up = (i - 1) / 2]); i = up)
        l->heap[i] = l->heap[up];
    l->heap[i] = *row;
    return 0;
}

int
largest_add(struct largest *l, const float *x, const double *norms, size_t n,
            const double *errors, size_t ld, struct err *err)
{
    for (size_t r = 0; r < n; r++) {
        struct large_row row = { norms[r], l->n++, 0 }, out = row;

        if (l->n_heap < n_kept(l, l->n)) {
            if (put_new(l, &row, err) < 0)
                return -1;
        } else {
            if (is_less(l->heap, &row)) {
                out = l->heap[0];
                row.at = out.at;
                put_down(l, row);
            }
            if (is_less(&l->best, &out))
                l->best = out;
            if (out.row == row.row)
                continue;
        }
        memcpy(row_at(l, row.at), x + r * l->d, l->d * sizeof(*x));
        for (size_t i = 0; i < l->n_errors; i++)
            errors_at(l, row.at)[i] = errors[i * ld + r];
    }
    return 0;
}

static int
by_row(const void *a, const void *b)
{
    const struct large_row *x = a, *y = b;

    return x->row < y->row ? -1 : x->row > y->row;
}

void
largest_end(struct largest *l, struct row_sums *s, struct moments_sum *error)
{
    while (l->n_heap > (l->n + 99) / 100)
        put_down(l, l->heap[--l->n_heap]);
    l->lost = l->n_heap > 0 && is_less(l->heap, &l->best);
    qsort(l->heap, l->n_heap, sizeof(*l->heap), by_row);
    for (size_t r = 0; r < l->n_heap; r++) {
        const float *x = row_at(l, l->heap[r].at);

        row_sums_add(s, NULL, &x, 1);
        for (size_t i = 0; i < l->n_errors; i++)
            moments_add(&error[i], errors_at(l, l->heap[r].at)[i]);
    }
}
