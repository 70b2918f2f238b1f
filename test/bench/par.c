/*
 * par_for(): what a call costs, and what a neighbour costs: tokens of
 * Qwen3-0.6B's decode shape at -j 1, at -j 2, and at -j 2 while another
 * process keeps one core busy.  The modes take turns, so that other neighbours
 * hit all alike.  Where others work, too, this gives it a machine of its own:
 *   setsid sh -c 'echo -15 >/proc/self/autogroup; build/test/bench/par'
 *   bench/par [ROUNDS]
 */
#include "core/par.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/kernel/gemv.h"
#include "core/kernel/vec.h"

enum { LAYERS = 28, KEPT = 8, HIDDEN = 1024, FFN = 3072, MODES = 4 };
enum { LAYER_BYTES = 2 * HIDDEN * (4096 + 2048 + 3 * FFN), ROUNDS = 32 };
enum { TOKENS = 6 };

static const size_t shapes[][2] = { /* rows, cols of one layer */
                                    { 4096, HIDDEN },
                                    { HIDDEN, 2048 },
                                    { 2 * FFN, HIDDEN },
                                    { HIDDEN, FFN }
};

static char *w;
static float x[2 * FFN], y[2 * FFN];

static double
now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void
nothing(void *ctx, size_t begin, size_t end, int thread)
{
    (void)ctx, (void)begin, (void)end, (void)thread;
}

static int
by_value(const void *p, const void *q)
{
    double a = *(const double *)p, b = *(const double *)q;

    return (a > b) - (a < b);
}

static double
median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
    return v[n / 2];
}

/* The median of calls that come 'gap_us' after one another. */
static void
call_cost(struct par *par, unsigned gap_us)
{
    double v[501];

    for (size_t i = 0; i < 501; i++) {
        double t = now_s();

        while (now_s() - t < gap_us * 1e-6)
            ;
        t = now_s();
        par_for(par, 2, 1, nothing, NULL);
        v[i] = now_s() - t;
    }
    printf("an empty call, %3u us after the last, -j %d: %.1f us\n", gap_us,
           par_threads(par), median(v, 501) * 1e6);
}

static pid_t
start_hog(void)
{
    pid_t pid = fork();

    if (pid == 0)
        for (volatile unsigned i = 0;; i++)
            ;
    return pid;
}

static void
stop_hog(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* 28 layers of products with a little between them, as in a transformer. */
static void
token(struct par *par)
{
    static float ones[HIDDEN];

    for (int l = 0; l < LAYERS; l++) {
        const char *p = w + (size_t)(l % KEPT) * LAYER_BYTES;

        for (size_t i = 0; i < 4; i++) {
            vec_rmsnorm(x, x, ones, 1e-6f, HIDDEN);
            gemv(par, y, 2 * FFN, p, DT_BF16, shapes[i][0], shapes[i][1], x,
                 FFN, 1);
            vec_silu_mul(y, y, 1024);
            p += 2 * shapes[i][0] * shapes[i][1];
        }
    }
}

static double
tokens_per_s(struct par *par, int with_hog)
{
    pid_t hog = with_hog ? start_hog() : 0;
    double t;

    token(par); /* wakes the workers, settles the scheduler */
    t = now_s();
    for (int i = 0; i < TOKENS; i++)
        token(par);
    t = now_s() - t;
    stop_hog(hog);
    return TOKENS / t;
}

int
main(int argc, char **argv)
{
    static const char *const names[MODES] = { "-j 1", "-j 2", "-j 1 + hog",
                                              "-j 2 + hog" };
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    double v[MODES][ROUNDS], m[MODES];
    struct par *par[2];
    struct err err;

    rounds = rounds < 1 ? 1 : rounds > ROUNDS ? ROUNDS : rounds;
    if (par_open(&par[0], 1, &err) < 0 || par_open(&par[1], 2, &err) < 0)
        return 1;
    w = mmap(NULL, (size_t)KEPT * LAYER_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w == MAP_FAILED)
        return 1;
    memset(w, 0x3c, (size_t)KEPT * LAYER_BYTES);
    call_cost(par[1], 0);
    call_cost(par[1], 20);
    call_cost(par[1], 500);
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < MODES; i++)
            v[i][r] = tokens_per_s(par[i % 2], i / 2);
    for (int i = 0; i < MODES; i++) {
        m[i] = median(v[i], (size_t)rounds);
        printf("%-10s: %.1f token/s (%.1f .. %.1f), %.2f of -j 1\n", names[i],
               m[i], v[i][0], v[i][rounds - 1], m[i] / m[0]);
    }
    par_close(par[0]);
    par_close(par[1]);
    return 0;
}
