#include "cmd/saev-read/columns.h"

#include <stdbool.h>
#include <stdlib.h>

#include "core/mem.h"

#define BLOCK_COLUMNS ((size_t)256)
#define GRAIN_NBYTES  ((size_t)64 << 10) /* of rows, for a thread */

int
columns_open(struct columns *c, size_t d, size_t span_rows, struct err *err)
{
    size_t n_blocks = (span_rows + MOMENTS_ROWS - 1) / MOMENTS_ROWS;

    *c = (struct columns){ .d = d };
    c->norms = mem_try(span_rows, sizeof(*c->norms), "norms", err);
    c->all = mem_try(d, sizeof(*c->all), "moments", err);
    c->parts = mem_try(n_blocks * d, sizeof(*c->parts), "moments", err);
    if (!c->norms || !c->all || !c->parts) {
        columns_close(c);
        return -1;
    }
    for (size_t i = 0; i < d; i++)
        c->all[i] = MOMENTS_NONE;
    return 0;
}

void
columns_close(struct columns *c)
{
    free(c->all);
    free(c->parts);
    free(c->norms);
    *c = (struct columns){ 0 };
}

static bool
all_finite(const double *norms, size_t n)
{
    double bad = 0;

    for (size_t i = 0; i < n; i++)
        bad += norms[i] - norms[i];
    return bad == 0;
}

/* What the threads share. */
struct task {
    struct columns *c;
    const float *x;
    size_t n, n_across; /* rows; blocks side by side */
    const double *mean;
};

static void
measure_some(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    size_t d = t->c->d;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        double v = moments_distance(t->x + r * d, t->mean, d);

        t->c->norms[r] = isfinite(v) ? v : (double)NAN;
    }
}

static void
block_some(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    size_t d = t->c->d;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t block = i / t->n_across, row = block * MOMENTS_ROWS;
        size_t column = i % t->n_across * BLOCK_COLUMNS;
        size_t n = t->n - row < MOMENTS_ROWS ? t->n - row : MOMENTS_ROWS;
        size_t n_columns =
            d - column < BLOCK_COLUMNS ? d - column : BLOCK_COLUMNS;

        moments_columns(t->c->parts + block * d + column,
                        t->x + row * d + column, d, n, n_columns,
                        all_finite(t->c->norms + row, n));
    }
}

static void
merge_some(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    struct columns *c = t->c;

    (void)thread;
    for (size_t row = 0; row < t->n; row += MOMENTS_ROWS)
        for (size_t i = begin; i < end; i++)
            moments_merge(&c->all[i], &c->parts[row / MOMENTS_ROWS * c->d + i]);
}

static void
measure(struct task *t, struct par *par)
{
    size_t grain = GRAIN_NBYTES / (t->c->d * sizeof(float)) + 1;

    par_for(par, t->n, grain, measure_some, t);
}

void
columns_add(struct columns *c, const float *x, size_t n, struct par *par)
{
    struct task t = { .c = c, .x = x, .n = n };
    size_t n_blocks = (n + MOMENTS_ROWS - 1) / MOMENTS_ROWS;

    t.n_across = (c->d + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    measure(&t, par);
    par_for(par, n_blocks * t.n_across, 1, block_some, &t);
    par_for(par, c->d, BLOCK_COLUMNS, merge_some, &t);
    c->n_rows += n;
}

void
columns_distances(struct columns *c, const float *x, size_t n,
                  const double *mean, struct par *par)
{
    struct task t = { .c = c, .x = x, .n = n, .mean = mean };

    measure(&t, par);
}
