/* SPDX-License-Identifier: ISC */
/*
 * What gemm.c, gemm_exact.c and gemm_packed.c share: a call, and its chunks.
 * Private to them.
 */
#ifndef CORE_KERNEL_GEMM_CALL_H
#define CORE_KERNEL_GEMM_CALL_H

#include "core/kernel/gemm.h"
#include "core/kernel/gemm_pack.h"
#include "core/kernel/ops.h"

/*
 * Blocking, for an L2 cache of 2 MiB and 64 columns of C (rows of W) at a time.
 * A part of k takes 256 KiB there in the exact class, GEMM_PANEL x EXACT_PART
 * f32, which the rows of X pass; 128 KiB in the packed ones: pack_layout().
 */
#define TILE_ROWS    512
#define TILE_FLOATS  (TILE_ROWS * GEMM_PANEL)
#define BLOCK_BYTES  (256u << 10)
#define STAGE_BYTES  (384u << 10)
#define THREAD_BYTES (TILE_FLOATS * 4 + BLOCK_BYTES + STAGE_BYTES)

_Static_assert(GEMM_PANEL *EXACT_PART * 4 <= BLOCK_BYTES, "w");
_Static_assert(PACK_BLOCK <= BLOCK_BYTES, "panel");
_Static_assert(GEMM_PANEL *EXACT_PART * 4 <= STAGE_BYTES, "numbers of codes");
_Static_assert(PACK_STAGE + TILE_FLOATS * 4 <= STAGE_BYTES, "stage, sums");

struct gemm {
    struct par *par;
    char *scratch; /* [threads, THREAD_BYTES] */
};

/* One thread's scratch. */
struct gemm_scratch {
    float *tile; /* [rows, ld] */
    void *block; /* weights of a part of k, as the kernel wants them */
    char *stage; /* weights on their way there, int8's sums */
};

/* A chunk is up to so many rows of X by so many of W. */
struct gemm_cut {
    size_t rows, cols;
};

struct gemm_call {
    struct gemm *gemm;
    const struct gemm_ops *ops;
    const struct gemm_bf16_ops *bf16;
    const struct gemm_int8_ops *int8;
    const struct gemm_job *jobs;
    size_t n_jobs;
    const void *x;
    const uint16_t *lo;   /* bf16 */
    const float *x_scale; /* int8 */
    size_t ldx, m;
    size_t rows;                     /* of a chunk */
    size_t first[GEMM_MAX_JOBS + 1]; /* the jobs' first chunks */
    struct gemm_cut (*cut)(const struct gemm_call *call,
                           const struct gemm_job *job); /* NULL: panels */
    void (*chunk)(const struct gemm_call *call, const struct gemm_job *job,
                  const struct area *a, int thread);
};

static inline struct gemm_scratch
scratch_of(const struct gemm *g, int thread)
{
    char *p = g->scratch + (size_t)thread * THREAD_BYTES;

    return (struct gemm_scratch){ .tile = (float *)(void *)p,
                                  .block = p + TILE_FLOATS * 4,
                                  .stage = p + TILE_FLOATS * 4 + BLOCK_BYTES };
}

/* gemm_rows() is how many rows of X a job has; gemm_row() is where a chunk's
 * begin there. */
static inline size_t
gemm_rows(const struct gemm_call *call, const struct gemm_job *job)
{
    return job->m ? job->m : call->m;
}

static inline size_t
gemm_row(const struct gemm_job *job, const struct area *a)
{
    return job->row + a->row;
}

/* Sums that go to C as they are may be stored there at once: waiting for C's
 * lines then overlaps with the sums, where a copy from the tile would wait. */
static inline bool
is_plain(const struct gemm_job *job)
{
    const struct gemm_end *e = &job->end;

    return job->c && !e->bias && !e->accumulate && !e->hook;
}

/* The same of sums that are added to what C holds, and are nothing else. */
static inline bool
is_added(const struct gemm_job *job)
{
    const struct gemm_end *e = &job->end;

    return job->c && !e->bias && e->accumulate && !e->hook;
}

/* From a tile of sums to C: see struct gemm_end. */
void gemm_finish(const struct gemm_job *job, const struct area *a, float *t,
                 size_t ldt, int thread);

/* Runs the call by chunks of at most 'max' rows, a multiple of 'unit': as equal
 * as that goes, and enough of them for all threads. */
void gemm_run(struct gemm_call *call, size_t max, size_t unit);

#endif
