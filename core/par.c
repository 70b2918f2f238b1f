/* SPDX-License-Identifier: ISC */
#include "core/par.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/compat.h"
#include "core/mem.h"

/*
 * One 64-bit ticket holds the number of the call in its high half and the
 * chunks not yet taken in its low half; taking one is a compare and swap that
 * fails if either half has changed.  So only a running thread holds a chunk,
 * the caller never waits for a worker that did not take one, and a
 * worker that wakes late finds a ticket without chunks.
 *
 * What can make everybody wait is a worker that loses its CPU to a neighbour
 * while it holds a chunk.  The caller then sleeps rather than spins: that frees
 * a CPU, to which the scheduler moves the worker at once.  (Giving such workers
 * no work for a while was tried: it cost more in quiet times than it won.)
 */
#define SPIN_US       50 /* against a futex wake-up's 12: test/bench/par */
#define TICKET_CHUNKS 0xffffffffu /* mask of the ticket's low half */
#define CALL_CHUNKS   ((size_t)1 << 31)

struct worker {
    _Alignas(64) struct par *par;
    pthread_t thread;
    int id;
};

struct job {
    void (*fn)(void *ctx, size_t begin, size_t end); /* or NULL, and: */
    void (*fn_thread)(void *ctx, size_t begin, size_t end, int thread);
    void *ctx;
    size_t n, grain, first; /* chunk i of the ticket is first + i */
    uint32_t n_chunks;
};

struct par {
    int n_threads;
    atomic_bool quit;
    struct worker *workers; /* [n_threads - 1] */
    struct job job;         /* written while no chunk is out */
    _Alignas(64) atomic_uint_least64_t ticket;
    atomic_uint call;              /* changes when there is work */
    atomic_int sleeping;           /* workers that wait for it */
    _Alignas(64) atomic_uint left; /* chunks not finished */
    atomic_int waiting;            /* the caller sleeps on it */
};

static void
relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until *word equals 'value', or differs; false after SPIN_US. */
static bool
spin(atomic_uint *word, unsigned value, bool until_equal)
{
    double end = clock_s() + 1e-6 * SPIN_US;

    do {
        for (int i = 0; i < 16; i++) {
            if ((atomic_load(word) == value) == until_equal)
                return true;
            relax();
        }
    } while (clock_s() < end);
    return false;
}

static bool
take_chunk(struct par *par, size_t *chunk)
{
    uint64_t t = atomic_load(&par->ticket);

    do {
        if ((t & TICKET_CHUNKS) == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&par->ticket, &t, t - 1));
    /* The job cannot change before this chunk is finished: read it now. */
    *chunk = par->job.first + par->job.n_chunks - (t & TICKET_CHUNKS);
    return true;
}

static void
do_chunk(const struct job *job, size_t chunk, int thread)
{
    size_t begin = chunk * job->grain;
    size_t end = job->n - begin < job->grain ? job->n : begin + job->grain;

    if (job->fn)
        job->fn(job->ctx, begin, end);
    else
        job->fn_thread(job->ctx, begin, end, thread);
}

static void *
worker_main(void *arg)
{
    struct worker *w = arg;
    struct par *par = w->par;
    unsigned seen = 0;
    size_t chunk;

    for (;;) {
        if (!spin(&par->call, seen, false)) {
            atomic_fetch_add(&par->sleeping, 1);
            while (atomic_load(&par->call) == seen)
                word_wait(&par->call, seen);
            atomic_fetch_sub(&par->sleeping, 1);
        }
        seen = atomic_load(&par->call);
        if (atomic_load(&par->quit))
            return NULL;
        while (take_chunk(par, &chunk)) {
            do_chunk(&par->job, chunk, w->id);
            if (atomic_fetch_sub(&par->left, 1) == 1 &&
                atomic_load(&par->waiting))
                word_wake(&par->left, 1);
        }
    }
}

/* The caller's own part of a call, then the wait for the others'. */
static void
finish(struct par *par)
{
    unsigned done = 0, left;
    size_t chunk;

    while (take_chunk(par, &chunk)) {
        do_chunk(&par->job, chunk, 0);
        done++;
    }
    if (atomic_fetch_sub(&par->left, done) == done || spin(&par->left, 0, true))
        return;
    atomic_store(&par->waiting, 1);
    while ((left = atomic_load(&par->left)) != 0)
        word_wait(&par->left, left);
    atomic_store(&par->waiting, 0);
}

static void
run(struct par *par, struct job job)
{
    size_t n_chunks, k;
    uint64_t call;

    if (job.n == 0)
        return;
    if (job.grain == 0)
        job.grain = 1;
    n_chunks = (job.n - 1) / job.grain + 1;
    if (!par || par->n_threads == 1 || n_chunks == 1) {
        for (size_t i = 0; i < n_chunks; i++)
            do_chunk(&job, i, 0);
        return;
    }
    for (; job.first < n_chunks; job.first += k) {
        k = smaller(n_chunks - job.first, CALL_CHUNKS);
        job.n_chunks = (uint32_t)k;
        par->job = job;
        call = (atomic_load(&par->ticket) >> 32) + 1;
        atomic_store(&par->left, job.n_chunks);
        atomic_store(&par->ticket, call << 32 | job.n_chunks);
        atomic_fetch_add(&par->call, 1);
        if (atomic_load(&par->sleeping) > 0)
            word_wake(&par->call, (int)smaller(k - 1, INT32_MAX));
        finish(par);
    }
}

void
par_for(struct par *par, size_t n, size_t grain,
        void (*fn)(void *ctx, size_t begin, size_t end), void *ctx)
{
    run(par, (struct job){ .fn = fn, .ctx = ctx, .n = n, .grain = grain });
}

void
par_for_thread(struct par *par, size_t n, size_t grain,
               void (*fn)(void *ctx, size_t begin, size_t end, int thread),
               void *ctx)
{
    run(par,
        (struct job){ .fn_thread = fn, .ctx = ctx, .n = n, .grain = grain });
}

int
par_default(void)
{
    return cpu_count();
}

int
par_threads(const struct par *par)
{
    return par ? par->n_threads : 1;
}

double
par_cpu_s(const struct par *par)
{
    double s = 0;

#if ON_LINUX /* a process's own clock has other threads' time up to a tick ago \
              */
    for (int i = 0; i < par_threads(par) - 1; i++) {
        clockid_t clock;

        if (pthread_getcpuclockid(par->workers[i].thread, &clock) == 0)
            s += clock_s_of(clock);
    }
    s += clock_s_of(CLOCK_THREAD_CPUTIME_ID);
#else
    s = clock_s_of(CLOCK_PROCESS_CPUTIME_ID);
#endif
    return s / par_threads(par);
}

static void
stop_workers(struct par *par, int n)
{
    atomic_store(&par->quit, true);
    atomic_fetch_add(&par->call, 1);
    word_wake(&par->call, INT32_MAX);
    for (int i = 0; i < n; i++)
        pthread_join(par->workers[i].thread, NULL);
}

/* Signals are for the caller's thread, but what an instruction causes is for
 * the thread that ran it: blocked there, it would end the program before any
 * handler (a mapped file that shrank is a SIGBUS). */
static void
block_signals(sigset_t *old)
{
    static const int faults[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP };
    sigset_t all;

    sigfillset(&all);
    for (size_t k = 0; k < sizeof(faults) / sizeof(faults[0]); k++)
        sigdelset(&all, faults[k]);
    pthread_sigmask(SIG_BLOCK, &all, old);
}

static void
par_free(struct par *par)
{
    free(par->workers);
    free(par);
}

static void *
alloc_lines(size_t n, size_t size, struct err *err)
{
    void *p = aligned_alloc(64, n * size);

    if (!p)
        err_set(err, EX_SOFTWARE, "threads: out of memory");
    else
        memset(p, 0, n * size);
    return p;
}

int
par_open(struct par **par, int n_threads, struct err *err)
{
    struct par *p = alloc_lines(1, sizeof(*p), err);
    sigset_t old;
    int e = 0, i;

    *par = NULL;
    if (!p)
        return -1;
    p->n_threads = n_threads < 1 ? 1 : n_threads;
    p->workers = alloc_lines((size_t)p->n_threads, sizeof(*p->workers), err);
    if (!p->workers) {
        par_free(p);
        return -1;
    }
    block_signals(&old);
    for (i = 0; i < p->n_threads - 1 && !e; i++) {
        struct worker *w = &p->workers[i];

        w->par = p;
        w->id = i + 1;
        e = pthread_create(&w->thread, NULL, worker_main, w);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        err_set(err, EX_SOFTWARE, "thread %d of %d cannot start: %s", i + 1,
                p->n_threads, strerror(e));
        stop_workers(p, i - 1);
        par_free(p);
        return -1;
    }
    *par = p;
    return 0;
}

void
par_close(struct par *par)
{
    if (!par)
        return;
    stop_workers(par, par->n_threads - 1);
    par_free(par);
}

/* ---- one worker and its queue ---- */

struct task {
    struct task *next;
    void (*fn)(void *ctx);
    void *ctx;
};

struct par_worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more, done;
    struct task *first, **end; /* the first is running, or will be next */
    bool quit;
};

static void *
run_tasks(void *arg)
{
    struct par_worker *w = arg;

    pthread_mutex_lock(&w->mutex);
    while (w->first || !w->quit) {
        struct task *t = w->first;

        if (!t) {
            pthread_cond_wait(&w->more, &w->mutex);
            continue;
        }
        pthread_mutex_unlock(&w->mutex);
        t->fn(t->ctx);
        pthread_mutex_lock(&w->mutex);
        w->first = t->next;
        if (!w->first) {
            w->end = &w->first;
            pthread_cond_signal(&w->done);
        }
        free(t);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

int
par_worker_open(struct par_worker **worker, struct err *err)
{
    struct par_worker *w = xcalloc(1, sizeof(*w));
    sigset_t old;
    int e;

    *worker = NULL;
    w->end = &w->first;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->more, NULL);
    pthread_cond_init(&w->done, NULL);
    block_signals(&old);
    e = pthread_create(&w->thread, NULL, run_tasks, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        free(w);
        return err_set(err, EX_SOFTWARE, "a thread cannot start: %s",
                       strerror(e));
    }
    *worker = w;
    return 0;
}

void
par_worker_close(struct par_worker *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->quit = true;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

void
par_submit(struct par_worker *w, void (*fn)(void *ctx), void *ctx)
{
    struct task *t = xmalloc(sizeof(*t));

    *t = (struct task){ .fn = fn, .ctx = ctx };
    pthread_mutex_lock(&w->mutex);
    *w->end = t;
    w->end = &t->next;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->mutex);
}

void
par_sync(struct par_worker *w)
{
    pthread_mutex_lock(&w->mutex);
    while (w->first)
        pthread_cond_wait(&w->done, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}
