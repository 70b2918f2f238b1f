/* SPDX-License-Identifier: ISC */
/* Threads: every index once, in any number of them. */
#include "core/par.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/unit/tap.h"

#define N 10007

struct count {
    atomic_int hits[N];
    atomic_int bad; /* chunks at no multiple of the grain, threads unknown */
    size_t grain, n;
    int n_threads;
};

static void
count(void *ctx, size_t begin, size_t end, int thread)
{
    struct count *c = ctx;

    if (begin % c->grain || (end - begin != c->grain && end != c->n) ||
        end > c->n || thread < 0 || thread >= c->n_threads)
        atomic_fetch_add(&c->bad, 1);
    for (size_t i = begin; i < end; i++)
        atomic_fetch_add(&c->hits[i], 1);
}

static bool
covers(struct par *par, size_t n, size_t grain)
{
    static struct count c;
    bool good = true;

    memset(&c, 0, sizeof(c));
    c.grain = grain ? grain : 1;
    c.n = n;
    c.n_threads = par_threads(par);
    par_for_thread(par, n, grain, count, &c);
    for (size_t i = 0; i < N; i++)
        good &= atomic_load(&c.hits[i]) == (i < n);
    return good && atomic_load(&c.bad) == 0;
}

static void
sum_chunk(void *ctx, size_t begin, size_t end)
{
    float *sums = ctx, s = 0;

    for (size_t i = begin; i < end; i++)
        s += sinf((float)i);
    sums[begin / 64] = s;
}

static void
test_cover(int n_threads)
{
    static const size_t sizes[] = { 0, 1, 2, 7, 64, 100, N };
    static const size_t grains[] = { 0, 1, 3, 64, 5000, 20000 };
    struct err err = { 0 };
    struct par *par;
    bool good = true;

    if (!tap_ok(par_open(&par, n_threads, &err) == 0, "par_open: %d threads",
                n_threads))
        return;
    tap_ok(par_threads(par) == n_threads, "par_threads is %d", n_threads);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        for (size_t j = 0; j < sizeof(grains) / sizeof(*grains); j++)
            good &= covers(par, sizes[i], grains[j]);
    tap_ok(good, "every index once, -j %d, any n and grain", n_threads);
    good = true;
    for (int i = 0; i < 3000; i++)
        good &= covers(par, 40, 3);
    tap_ok(good, "every index once in 3000 small calls, -j %d", n_threads);
    par_close(par);
}

static void
test_same_sums(void)
{
    static float want[N / 64 + 1], got[N / 64 + 1];
    struct err err = { 0 };
    struct par *par;

    par_for(NULL, N, 64, sum_chunk, want);
    for (int j = 2; j <= 9; j += 7) {
        memset(got, 0, sizeof(got));
        if (par_open(&par, j, &err) < 0)
            break;
        par_for(par, N, 64, sum_chunk, got);
        par_close(par);
        tap_ok(!memcmp(want, got, sizeof(want)), "same sums at -j 1 and -j %d",
               j);
    }
}

/* Workers that sleep in a chunk are late: the caller sleeps, too. */
static void
nap(void *ctx, size_t begin, size_t end, int thread)
{
    struct timespec t = { 0, 4000000 }; /* 4 ms: far over the spin */

    (void)end;
    atomic_fetch_add((atomic_int *)ctx + begin, 1);
    if (thread > 0)
        nanosleep(&t, NULL);
}

static void
test_late(void)
{
    static atomic_int hits[8];
    struct err err = { 0 };
    struct par *par;
    bool good = true;

    if (par_open(&par, 3, &err) < 0)
        return;
    for (int i = 0; i < 20; i++)
        par_for_thread(par, 8, 1, nap, hits);
    for (int i = 0; i < 8; i++)
        good &= atomic_load(&hits[i]) == 20;
    tap_ok(good, "late workers change nothing");
    good = true;
    for (int i = 0; i < 100; i++)
        good &= covers(par, N, 64);
    tap_ok(good, "every index once after workers were late");
    par_close(par);
}

/* Only workers touch the page, which lies beyond the end of its file. */
static void
touch(void *ctx, size_t begin, size_t end, int thread)
{
    const struct timespec t = { .tv_nsec = 1000000 };

    (void)begin;
    (void)end;
    if (thread > 0)
        _exit(*(const volatile char *)ctx ? 1 : 2);
    nanosleep(&t, NULL);
}

static void
on_bus(int sig)
{
    (void)sig;
    _exit(74);
}

static int
status_of_bus(void)
{
    struct sigaction bus = { .sa_handler = on_bus };
    struct err err = { 0 };
    FILE *f = tmpfile();
    struct par *par;
    void *page;
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (pid == 0 && f && par_open(&par, 2, &err) == 0) {
        page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(f), 0);
        sigaction(SIGBUS, &bus, NULL);
        if (page != MAP_FAILED)
            par_for_thread(par, 1000, 1, touch, page);
        _exit(3);
    }
    if (f)
        fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- a worker ---- */

struct step {
    int *at, *order;
    int id;
};

static void
take_step(void *ctx)
{
    struct step *s = ctx;

    usleep(s->id % 5 == 0 ? 1000 : 0);
    s->order[(*s->at)++] = s->id;
}

static void
test_worker(void)
{
    enum { STEPS = 50 };
    struct par_worker *w = NULL;
    struct step steps[STEPS];
    int at = 0, order[STEPS];
    bool good;
    struct err err = { 0 };

    good = par_worker_open(&w, &err) == 0;
    if (!tap_ok(good, "a worker starts"))
        return;
    for (int i = 0; i < STEPS; i++) {
        steps[i] = (struct step){ &at, order, i };
        par_submit(w, take_step, &steps[i]);
        if (i == STEPS / 2) {
            par_sync(w);
            good = good && at == i + 1;
        }
    }
    tap_ok(good, "par_sync waits for all that was submitted");
    par_worker_close(w);
    for (int i = 0; i < STEPS; i++)
        good = good && at == STEPS && order[i] == i;
    tap_ok(good, "a worker's tasks run in their order, all before it closes");
    par_worker_close(NULL);
}

/* A task that says it is there, and waits for another to be. */
struct meeting {
    atomic_int *mine, *other;
    bool met;
};

static bool
wait_for(atomic_int *flag)
{
    for (int ms = 0; ms < 10000 && !atomic_load(flag); ms++)
        usleep(1000);
    return atomic_load(flag) != 0;
}

static void
meet(void *ctx)
{
    struct meeting *m = ctx;

    atomic_store(m->mine, 1);
    m->met = wait_for(m->other);
}

/* What submit runs in the caller, or lets wait for its end, is in vain. */
static void
test_asynchronous(void)
{
    static atomic_int flags[4];
    struct meeting task = { &flags[0], &flags[1], false };
    struct meeting first = { &flags[2], &flags[3], false };
    struct meeting second = { &flags[3], &flags[2], false };
    struct par_worker *a, *b;
    struct err err = { 0 };

    if (par_worker_open(&a, &err) < 0 || par_worker_open(&b, &err) < 0)
        return;
    par_submit(a, meet, &task);
    atomic_store(&flags[1], 1);
    par_sync(a);
    tap_ok(task.met, "a task runs while its caller continues");
    par_submit(a, meet, &first);
    par_submit(b, meet, &second);
    par_sync(a);
    par_sync(b);
    tap_ok(first.met && second.met, "two workers' tasks run at a time");
    par_worker_close(a);
    par_worker_close(b);
}

int
main(void)
{
    struct err err = { 0 };
    struct par *par;
    bool good = true;

    tap_ok(par_default() >= 1, "par_default is 1 at least");
    tap_ok(covers(NULL, N, 10), "NULL runs all in this thread");
    par_close(NULL);
    for (int j = 1; j <= 4; j++)
        test_cover(j);
    test_cover(17);
    test_same_sums();
    test_late();
    tap_ok(status_of_bus() == 74, "a worker's SIGBUS reaches the handler");
    test_worker();
    test_asynchronous();
    for (int i = 0; i < 100 && good; i++) {
        good = par_open(&par, 4, &err) == 0;
        if (good)
            par_close(par);
    }
    tap_ok(good, "opened and closed 100 times without work");
    return tap_done();
}
