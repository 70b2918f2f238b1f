/* SPDX-License-Identifier: ISC */
#include "test/bench/probe.h"

#include <unistd.h>

#include "test/bench/bench.h"

#define STEPS  20000
#define SLICES 16 /* of a thread: a neighbour costs its share */
#define PIECE  ((size_t)256 << 10)
#define LLC    ((size_t)64 << 20) /* where the machine does not say */

/* Of each probe_ISA.c: see the Makefile's KERNELS. */
#define KERNEL(family, isa) extern const struct family family##_##isa;
KERNELS
#undef KERNEL

#define KERNEL(family, isa) [ISA_##isa] = &family##_##isa,
static const struct probe *const tables[ISA_COUNT] = { KERNELS };

struct work {
    double (*fn)(uint64_t n);
    double done[256]; /* operations of each slice */
};

static void
run_slice(void *ctx, size_t begin, size_t end)
{
    struct work *w = ctx;

    for (size_t i = begin; i < end; i++)
        w->done[i % 256] = w->fn(STEPS);
}

static double (*fn_of(enum isa isa, enum probe_kind kind))(uint64_t n)
{
    const struct probe *p = tables[isa];

    return !p                   ? NULL
           : kind == PROBE_F32  ? p->f32
           : kind == PROBE_BF16 ? p->bf16
                                : p->int8;
}

double
probe_peak(struct par *par, enum isa isa, enum probe_kind kind)
{
    size_t n = SLICES * (size_t)par_threads(par);
    struct work w = { .fn = fn_of(isa, kind) };
    double best = 0;

    for (int round = 0; w.fn && round < 3; round++) {
        double t = clock_s(), rate;

        par_for(par, n, 1, run_slice, &w);
        rate = (double)n * w.done[0] / (clock_s() - t);
        best = rate > best ? rate : best;
    }
    return best;
}

double
probe_cpu(enum probe_kind kind)
{
    enum isa isa = cpu_isa();
    double v[SLICES];

    while (!fn_of(isa, kind) && isa != ISA_SCALAR)
        isa = isa_below(isa);
    if (!fn_of(isa, kind))
        return 0;
    for (int i = 0; i < SLICES; i++) {
        double t = cpu_s();

        v[i] = fn_of(isa, kind)(STEPS);
        v[i] /= cpu_s() - t;
    }
    return median(v, SLICES);
}

double
probe_best(struct par *par, enum probe_kind kind)
{
    enum isa isa = cpu_isa();
    double rate = probe_peak(par, isa, kind);

    while (rate == 0 && isa != ISA_SCALAR) {
        isa = isa_below(isa);
        rate = probe_peak(par, isa, kind);
    }
    return rate;
}

typedef uint64_t v2 __attribute__((vector_size(16), aligned(1)));

/* Four streams, prefetched 2 KiB ahead: the fastest that was found. */
static void
read_pieces(void *ctx, size_t begin, size_t end)
{
    const char *p = (const char *)ctx + begin * PIECE;
    size_t n = (end - begin) * PIECE / 4;
    v2 s[4] = { { 0 } };

    for (size_t i = 0; i < n; i += 64)
        for (size_t j = 0; j < 4; j++) {
            const char *q = p + j * n + i;

            __builtin_prefetch(q + 2048, 0, 2);
            for (size_t k = 0; k < 64; k += 16)
                s[j] ^= *(const v2 *)(const void *)(q + k);
        }
    s[0] ^= s[1] ^ s[2] ^ s[3];
    __asm__ volatile("" : : "m"(s[0]));
}

double
probe_read(struct par *par, const void *p, size_t nbytes)
{
    double t = clock_s();

    par_for(par, nbytes / PIECE, 1, read_pieces, (void *)(uintptr_t)p);
    return (double)(nbytes / PIECE * PIECE) / (clock_s() - t);
}

void
probe_evict(struct par *par)
{
    static size_t nbytes;
    static char *other;

    if (!other) {
        long l3 = 0;

#ifdef _SC_LEVEL3_CACHE_SIZE /* musl has none */
        l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
        nbytes = l3 > 0 ? (size_t)l3 : LLC;
        other = malloc(nbytes);
        if (!other)
            exit(1);
        memset(other, 1, nbytes); /* pages of its own */
    }
    probe_read(par, other, nbytes);
}
