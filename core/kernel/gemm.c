/* SPDX-License-Identifier: ISC */
/*
 * What gemm.h promises, over the inner loops of gemm_ISA.c.
 *
 * A call is cut into chunks: some rows of X by some of W.  A chunk works
 * through k in parts whose weights, widened or packed, stay in the cache while
 * the rows of X pass by; its sums stay in a tile of the thread's scratch, and
 * go from there to C.
 */
#include <stdlib.h>
#include <string.h>

#include "core/kernel/gemm_call.h"
#include "core/kernel/vec.h"
#include "core/mem.h"

#define CHUNKS 4 /* of each thread, if the work is enough */

int
gemm_open(struct gemm **gemm, struct par *par, struct err *err)
{
    struct gemm *g = xcalloc(1, sizeof(*g));

    *gemm = NULL;
    g->par = par;
    g->scratch = mem_big((size_t)par_threads(par), THREAD_BYTES,
                         "the workspace of matrix products", err);
    if (!g->scratch) {
        free(g);
        return -1;
    }
    *gemm = g;
    return 0;
}

void
gemm_close(struct gemm *g)
{
    if (!g)
        return;
    mem_big_free(g->scratch, (size_t)par_threads(g->par), THREAD_BYTES);
    free(g);
}

size_t
gemm_workspace(int n_threads)
{
    return (size_t)(n_threads < 1 ? 1 : n_threads) * THREAD_BYTES;
}

struct par *
gemm_par(const struct gemm *g)
{
    return g->par;
}

void
gemm_finish(const struct gemm_job *job, const struct area *a, float *t,
            size_t ldt, int thread)
{
    const struct gemm_end *e = &job->end;
    float *c = job->c ? job->c + a->row * job->ldc + a->col : NULL;

    for (size_t i = 0; i < a->n_rows && (e->bias || e->accumulate); i++) {
        if (e->bias)
            vec_add(t + i * ldt, e->bias + a->col, a->n_cols);
        if (e->accumulate)
            vec_add(t + i * ldt, c + i * job->ldc, a->n_cols);
    }
    if (e->hook)
        e->hook(e->ctx, t, ldt, a->row, a->n_rows, a->col, a->n_cols, thread);
    for (size_t i = 0; i < a->n_rows && c; i++)
        memcpy(c + i * job->ldc, t + i * ldt, a->n_cols * sizeof(*c));
}

static size_t
cols_of(const struct gemm_call *call, const struct gemm_job *job)
{
    return call->cols ? call->cols(call, job) : GEMM_PANEL;
}

static size_t
n_chunks(const struct gemm_call *call, const struct gemm_job *job)
{
    size_t cols = cols_of(call, job);

    return (job->w.n + cols - 1) / cols *
           ((call->m + call->rows - 1) / call->rows);
}

static void
run_chunks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct gemm_call *call = ctx;

    for (size_t i = begin; i < end; i++) {
        const struct gemm_job *job = call->jobs;
        size_t at = i, cols, across;
        struct area a;

        for (; at >= n_chunks(call, job); job++)
            at -= n_chunks(call, job);
        cols = cols_of(call, job);
        across = (job->w.n + cols - 1) / cols;
        a.row = at / across * call->rows;
        a.col = at % across * cols;
        a.n_rows = smaller(call->rows, call->m - a.row);
        a.n_cols = smaller(cols, job->w.n - a.col);
        call->chunk(call, job, &a, thread);
    }
}

void
gemm_run(struct gemm_call *call, size_t max, size_t unit)
{
    size_t want = CHUNKS * (size_t)par_threads(call->gemm->par);
    size_t n = 0, cuts;

    if (call->m == 0)
        return;
    call->ops = gemm_ops_of(cpu_isa());
    call->bf16 = gemm_bf16_ops_of(cpu_isa());
    call->int8 = gemm_int8_ops_of(cpu_isa());
    call->rows = call->m;
    for (size_t i = 0; i < call->n_jobs; i++)
        n += n_chunks(call, &call->jobs[i]);
    cuts = (call->m + max - 1) / max;
    if (n > 0 && n * cuts < want)
        cuts = (want + n - 1) / n;
    call->rows = round_up((call->m + cuts - 1) / cuts, unit);
    n = 0;
    for (size_t i = 0; i < call->n_jobs; i++)
        n += n_chunks(call, &call->jobs[i]);
    par_for_thread(call->gemm->par, n, 1, run_chunks, call);
}
