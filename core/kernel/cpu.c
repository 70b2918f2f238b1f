/* SPDX-License-Identifier: ISC */
#include "core/kernel/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/compat.h"

static const struct {
    const char *name;
    enum isa below;
} isas[ISA_COUNT] = {
#define ISA(NAME, name, below, flags, instructions, probe) \
    { #name, ISA_##below },
#include "core/kernel/isa.def"
};

static struct {
    pthread_once_t once;
    atomic_bool found; /* pthread_once() alone is 1 % of a step of moe-sft */
    enum isa best;     /* what the machine has */
    enum isa isa;      /* what TU_ISA leaves of it */
    int asked;         /* the level TU_ISA names; -1: none of them */
    const char *text;
    bool is_amd;
} cpu = { .once = PTHREAD_ONCE_INIT };

const char *
isa_name(enum isa isa)
{
    return isas[isa].name;
}

enum isa
isa_below(enum isa isa)
{
    return isas[isa].below;
}

bool
isa_is_under(enum isa isa, enum isa top)
{
    while (top != isa && top != isa_below(top))
        top = isa_below(top);
    return top == isa;
}

/* What the probes of isa.def ask.  Where there is no such CPU, nothing. */
#if defined(__x86_64__)
#define X86(condition)  (condition)
#define ALL(word, bits) ((x86.word & (bits)) == (bits))
#define BIT(n)          (1u << (n))

static struct {
    uint32_t c1;         /* CPUID leaf 1, ECX */
    uint32_t b7, c7, d7; /* leaf 7 */
    uint32_t a71;        /* leaf 7, subleaf 1 */
    uint64_t xcr0;       /* registers that are saved on a context switch */
} x86;

static void
read_cpu(void)
{
    uint32_t a, b, c = 0, d;

    if (!__get_cpuid(1, &a, &b, &x86.c1, &d) || !(x86.c1 & bit_OSXSAVE))
        return;
    /* Bytes of xgetbv: no assembler option is needed for them. */
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(a), "=d"(d) : "c"(0));
    x86.xcr0 = (uint64_t)d << 32 | a;
    cpu.is_amd = __get_cpuid(0, &a, &b, &c, &d) && c == signature_AMD_ecx;
    if (__get_cpuid_count(7, 0, &a, &x86.b7, &x86.c7, &x86.d7) && a >= 1)
        __get_cpuid_count(7, 1, &x86.a71, &b, &c, &d);
}
#else
#define X86(condition) false

static void
read_cpu(void)
{
}
#endif

#if defined(__aarch64__)
#define AARCH64 true
#else
#define AARCH64 false
#endif

static bool
probe(enum isa isa)
{
    switch (isa) {
#define ISA(NAME, name, below, flags, instructions, probe) \
    case ISA_##NAME:                                       \
        return probe;
#include "core/kernel/isa.def"
    default:
        return false;
    }
}

/* Those that the compiler could build, of which the Makefile names each
 * kernel: what is above them runs their kernels. */
#define KERNEL(family, isa) | 1u << ISA_##isa
static const unsigned built = 0 KERNELS;

static void
find(void)
{
    bool has[ISA_COUNT] = { [ISA_SCALAR] = true };

    read_cpu();
    for (int i = 0; i < ISA_COUNT; i++) {
        has[i] = has[isas[i].below] && probe((enum isa)i);
        if (has[i] && built >> i & 1)
            cpu.best = (enum isa)i;
    }
    cpu.isa = cpu.best;
    cpu.asked = -1;
    cpu.text = getenv("TU_ISA");
    for (int i = 0; cpu.text && i < ISA_COUNT; i++)
        if (!strcmp(cpu.text, isas[i].name))
            cpu.asked = i;
    if (cpu.asked >= 0 && isa_is_under((enum isa)cpu.asked, cpu.best))
        cpu.isa = (enum isa)cpu.asked;
    atomic_store_explicit(&cpu.found, true, memory_order_release);
}

enum isa
cpu_isa(void)
{
    if (!atomic_load_explicit(&cpu.found, memory_order_acquire))
        pthread_once(&cpu.once, find);
    return cpu.isa;
}

/* A Xeon reads at 0.97 of memory's rate with 2048.  One thread of Zen 4 reads
 * bf16 for one row of X at 24 GB/s with 2048 and at 30 with 512, for two rows
 * at 16.5 and at 21; a row's screening by int8 takes 440 us and 345. */
size_t
cpu_ahead(void)
{
    cpu_isa();
    return cpu.is_amd ? 512 : 2048;
}

int
cpu_check(struct err *err)
{
    static const char all[] =
#define ISA(NAME, name, below, flags, instructions, probe) ", " #name
#include "core/kernel/isa.def"
        ;

    cpu_isa();
    if (!cpu.text || !*cpu.text)
        return 0;
    if (cpu.asked < 0)
        return err_set(err, TU_USAGE, "TU_ISA is \"%s\" (expected %s)",
                       cpu.text, all + 2);
    if (cpu.isa != (enum isa)cpu.asked)
        return err_set(err, TU_USAGE,
                       "TU_ISA is \"%s\", but this machine's best is \"%s\"",
                       cpu.text, isas[cpu.best].name);
    return 0;
}
