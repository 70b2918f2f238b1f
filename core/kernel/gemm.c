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

static struct gemm_cut
cut_of(const struct gemm_call *call, const struct gemm_job *job)
{
    return call->cut ? call->cut(call, job)
                     : (struct gemm_cut){ call->rows, GEMM_PANEL };
}

static size_t
pieces(size_t n, size_t of)
{
    return (n + of - 1) / of;
}

/* Cuts the jobs into chunks of 'rows'; returns how many there are. */
static size_t
cut(struct gemm_call *call, size_t rows)
{
    call->rows = rows;
    for (size_t i = 0; i < call->n_jobs; i++) {
        const struct gemm_job *job = &call->jobs[i];
        struct gemm_cut c = cut_of(call, job);

        call->first[i + 1] =
            call->first[i] +
            pieces(job->w.n, c.cols) * pieces(gemm_rows(call, job), c.rows);
    }
    return call->first[call->n_jobs];
}

static void
run_chunks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct gemm_call *call = ctx;

    for (size_t i = begin; i < end; i++) {
        const struct gemm_job *job;
        struct gemm_cut c;
        struct area a;
        size_t k = 0, at, across;

        while (i >= call->first[k + 1])
            k++;
        job = &call->jobs[k];
        c = cut_of(call, job);
        at = i - call->first[k];
        across = pieces(job->w.n, c.cols);
        a.row = at / across * c.rows;
        a.col = at % across * c.cols;
        a.n_rows = smaller(c.rows, gemm_rows(call, job) - a.row);
        a.n_cols = smaller(c.cols, job->w.n - a.col);
        call->chunk(call, job, &a, thread);
    }
}

void
gemm_run(struct gemm_call *call, size_t max, size_t unit)
{
    size_t want = CHUNKS * (size_t)par_threads(call->gemm->par);
    size_t m = 0, n, cuts;

    for (size_t i = 0; i < call->n_jobs; i++)
        m = larger(m, gemm_rows(call, &call->jobs[i]));
    if (m == 0)
        return;
    call->ops = gemm_ops_of(cpu_isa());
    call->bf16 = gemm_bf16_ops_of(cpu_isa());
    call->int8 = gemm_int8_ops_of(cpu_isa());
    n = cut(call, m);
    cuts = pieces(m, max);
    if (n > 0 && n * cuts < want)
        cuts = pieces(want, n);
    n = cut(call, round_up(pieces(m, cuts), unit));
    par_for_thread(call->gemm->par, n, 1, run_chunks, call);
}
