#include "core/kernel/gemv.h"

#include "core/kernel/ops.h"

/* A chunk reads about this much: long against taking it (some 100 ns), short
 * against the scheduler's time slice. */
#define CHUNK_BYTES (256u << 10)
/* A chunk's rows: several for each of the kernels' ROWS streams. */
#define ROW_BLOCK 16

struct task {
    struct gemv_args args;
    void (*kernel)(const struct gemv_args *args);
    size_t row_nbytes;
};

static void
do_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    struct gemv_args a = t->args;

    (void)thread;
    a.w = (const char *)a.w + begin * t->row_nbytes;
    a.y += begin;
    a.rows = end - begin;
    t->kernel(&a);
}

void
gemv(struct par *par, float *y, size_t ldy, const void *w, enum dtype w_dtype,
     size_t rows, size_t cols, const float *x, size_t ldx, size_t n_x)
{
    const struct gemv_ops *ops = gemv_ops_of(cpu_isa());
    struct task t = {
        .args = { y, w, x, ldy, ldx, rows, cols, n_x },
        .kernel = w_dtype == DT_BF16  ? ops->bf16
                  : w_dtype == DT_F16 ? ops->f16
                                      : ops->f32,
        .row_nbytes = cols * (w_dtype == DT_F32 ? 4 : 2),
    };
    size_t grain = CHUNK_BYTES / (t.row_nbytes + 1) / ROW_BLOCK * ROW_BLOCK;

    par_for(par, rows, grain < ROW_BLOCK ? ROW_BLOCK : grain, do_rows, &t);
}
