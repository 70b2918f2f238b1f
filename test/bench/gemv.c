/*
 * gemv() in decode and in prefill, on a matrix set of Qwen3-0.6B's shape:
 * GB/s in ratio to the machine's read bandwidth, which a probe measures in
 * turns with it over the same pages, and GFLOP/s.
 *   bench/gemv [ROUNDS]
 */
#include "core/kernel/gemv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/kernel/cpu.h"

enum { LAYERS = 28, HIDDEN = 1024, FFN = 3072, VOCAB = 151936 };
enum {
    PROMPT = 48,
    LAYER_BYTES = 2 * 1024 * (4096 + 2048 + 3 * FFN),
    BLOCKS = 38
};

static const size_t shapes[][2] = { /* rows, cols of one layer */
                                    { 4096, HIDDEN },
                                    { HIDDEN, 2048 },
                                    { 2 * FFN, HIDDEN },
                                    { HIDDEN, FFN }
};

static double
now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef uint64_t v2 __attribute__((vector_size(16), aligned(1)));

/* Reads [begin, end) lines of 256 bytes, in four streams. */
static void
probe_chunk(void *ctx, size_t begin, size_t end, int thread)
{
    const char *p = ctx;
    size_t n = (end - begin) * 64;
    v2 s[4] = { 0 };

    (void)thread;
    p += begin * 256;
    for (size_t i = 0; i < n; i += 64)
        for (size_t j = 0; j < 4; j++) {
            const char *q = p + j * n + i;

            __builtin_prefetch(q + 2048, 0, 2);
            for (size_t k = 0; k < 64; k += 16)
                s[j] ^= *(const v2 *)(const void *)(q + k);
        }
    s[0] ^= s[1] ^ s[2] ^ s[3];
    __asm__ volatile("" : : "x"(s[0]));
}

struct bench {
    char *w;
    size_t nbytes;
    float *x, *y;
    struct par *par;
    double probe_s[BLOCKS], gemv_s[BLOCKS]; /* the best of all rounds */
};

/* Block i: a layer, or such a part of the output matrix. */
static const char *
block(const struct bench *b, size_t i, size_t *rows)
{
    const char *w = b->w + i * LAYER_BYTES;

    *rows = (b->nbytes - i * LAYER_BYTES) / 2 / HIDDEN;
    if (*rows > LAYER_BYTES / 2 / HIDDEN)
        *rows = LAYER_BYTES / 2 / HIDDEN;
    return w;
}

static void
keep_best(double *best, double begin)
{
    double t = now_s() - begin;

    if (*best == 0 || t < *best)
        *best = t;
}

static void
layer(const struct bench *b, const char *w, size_t n_x)
{
    for (size_t i = 0; i < 4; i++) {
        gemv(b->par, b->y, 2 * FFN, w, DT_BF16, shapes[i][0], shapes[i][1],
             b->x, FFN, n_x);
        w += shapes[i][0] * shapes[i][1] * 2;
    }
}

/* Block by block, and the best of each: neighbours come and go. */
static void
decode(struct bench *b, const char *pages, int rounds)
{
    double probe = 0, token = 0, gb = 1e-9 * (double)b->nbytes;
    size_t rows;

    memset(b->probe_s, 0, sizeof(b->probe_s));
    memset(b->gemv_s, 0, sizeof(b->gemv_s));
    for (int r = 0; r < rounds; r++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            char *w = (char *)(uintptr_t)block(b, i, &rows);
            double t = now_s();

            par_for(b->par, rows * HIDDEN * 2 / 256, 1024, probe_chunk, w);
            keep_best(&b->probe_s[i], t);
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            const char *w = block(b, i, &rows);
            double t = now_s();

            if (i < LAYERS)
                layer(b, w, 1);
            else
                gemv(b->par, b->y, VOCAB, w, DT_BF16, rows, HIDDEN, b->x, FFN,
                     1);
            keep_best(&b->gemv_s[i], t);
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        probe += b->probe_s[i];
        token += b->gemv_s[i];
    }
    printf("decode bf16, %s pages, -j %d: read %.1f GB/s, gemv %.1f GB/s, "
           "ratio %.2f, %.1f token/s\n",
           pages, par_threads(b->par), gb / probe, gb / token, probe / token,
           1 / token);
}

static void
prefill(const struct bench *b, size_t n_x, int rounds)
{
    double best = 0, flop = (double)n_x * LAYER_BYTES;

    for (int i = 0; i < rounds * 4; i++) {
        double t = now_s();

        layer(b, b->w, n_x);
        keep_best(&best, t);
    }
    printf("prefill bf16, %zu x, -j %d: %.0f GFLOP/s, %.0f token/s\n", n_x,
           par_threads(b->par), flop / best * 1e-9,
           (double)n_x / best / LAYERS);
}

int
main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 7;
    struct bench b = { 0 };
    struct err err;

    rounds = rounds < 1 ? 1 : rounds > 64 ? 64 : rounds;
    b.nbytes = (size_t)LAYERS * LAYER_BYTES + 2 * (size_t)VOCAB * HIDDEN;
    b.x = calloc(PROMPT * FFN, sizeof(float));
    b.y = calloc((size_t)PROMPT * VOCAB, sizeof(float));
    printf("isa %s, weights %.3f GB\n", isa_name(cpu_isa()),
           1e-9 * (double)b.nbytes);
    for (int huge = 0; huge < 2; huge++) {
        b.w = mmap(NULL, b.nbytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b.w == MAP_FAILED || !b.x || !b.y)
            return 1;
        madvise(b.w, b.nbytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        memset(b.w, 0x3c, b.nbytes);
        for (int j = 1; j <= 2; j++) {
            if (par_open(&b.par, j, &err) < 0)
                return 1;
            decode(&b, huge ? "2M" : "4K", rounds);
            if (huge)
                for (size_t n = 3; n <= PROMPT; n *= 2)
                    prefill(&b, n, 3);
            par_close(b.par);
        }
        munmap(b.w, b.nbytes);
    }
    return 0;
}
