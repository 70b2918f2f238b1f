/* SPDX-License-Identifier: ISC */
/*
 * Threads: the only file of the project that starts them.
 *
 * Work is cut into chunks that threads take from an atomic counter; a busy
 * neighbour on one core then costs its share and no more, where fixed halves
 * would wait for the slower one.  Idle threads spin shortly, then sleep.
 * Which thread does a chunk must never change a result: sums are made inside
 * chunks, in an order that the shape fixes.
 */
#ifndef CORE_PAR_H
#define CORE_PAR_H

#include <stddef.h>

#include "core/err.h"

struct par;

/* par_default() is the number of CPUs in this process's affinity mask. */
int par_default(void);

/*
 * par_open() starts n_threads - 1 workers (the caller is the last one).
 * n_threads >= 1.  0, or -1 with 'err' set (EX_SOFTWARE).
 * Owner: the caller, until par_close().
 */
int par_open(struct par **par, int n_threads, struct err *err);
void par_close(struct par *par); /* NULL is fine */
int par_threads(const struct par *par);

/* par_cpu_s(): seconds of CPU that the threads have had since some moment, the
 * caller's among them, divided by their number: on a quiet machine, where they
 * wait by spinning, about the time that passes. */
double par_cpu_s(const struct par *par);

/*
 * par_for() calls fn(ctx, begin, end) until [0, n) is covered, in chunks of
 * 'grain' (the last may be shorter) that start at multiples of 'grain' (0 is
 * 1).  Returns when all chunks are done.  'par' NULL, or a single chunk: in
 * this thread, and no other is woken.  Not to be nested, and called by one
 * thread at a time. par_for_thread() also says which thread it is, 0 ..
 * n_threads-1, for scratch memory.
 */
void par_for(struct par *par, size_t n, size_t grain,
             void (*fn)(void *ctx, size_t begin, size_t end), void *ctx);
void par_for_thread(struct par *par, size_t n, size_t grain,
                    void (*fn)(void *ctx, size_t begin, size_t end, int thread),
                    void *ctx);

/*
 * A worker: one thread more, which runs what it is handed one after the other.
 * par_submit() never waits; par_sync() does, until all so far has run.  One
 * thread at a time may submit and sync.
 * par_worker_open(): 0, or -1 with 'err' set (EX_SOFTWARE).
 * Owner: the caller, until par_worker_close(), which syncs; NULL is fine.
 */
struct par_worker;
int par_worker_open(struct par_worker **worker, struct err *err);
void par_worker_close(struct par_worker *worker);
void par_submit(struct par_worker *worker, void (*fn)(void *ctx), void *ctx);
void par_sync(struct par_worker *worker);

#endif
