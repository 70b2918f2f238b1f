#include "core/kernel/cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[ISA_COUNT] = {
    [ISA_SCALAR] = "scalar",
    [ISA_AVX2] = "avx2",
    [ISA_AVX512] = "avx512",
    [ISA_AVX512VNNI] = "avx512vnni",
    [ISA_AVX512BF16] = "avx512bf16",
    [ISA_AMX] = "amx",
    [ISA_NEON] = "neon",
};

static struct {
    pthread_once_t once;
    enum isa best; /* what the machine has */
    enum isa isa;  /* what TU_ISA leaves of it */
    int asked;     /* the level TU_ISA names; -1: none of them */
    const char *text;
} cpu = { .once = PTHREAD_ONCE_INIT };

const char *
isa_name(enum isa isa)
{
    return names[isa];
}

#if defined(__x86_64__)
#define BIT(n) (1u << (n))

/* XCR0: which registers the kernel saves on a context switch. */
static uint64_t
xcr0(void)
{
    uint32_t a, d;

    /* Bytes of xgetbv: no assembler option is needed for them. */
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

/* Tile data are 8 KiB a thread: Linux grants them on request only. */
static bool
amx_granted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ==
           0;
}

static bool
all_of(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

static enum isa
find_best(void)
{
    uint32_t a, b, c, d, c1, a71 = 0;
    uint64_t state;

    if (!__get_cpuid(1, &a, &b, &c1, &d) || !(c1 & bit_OSXSAVE))
        return ISA_SCALAR;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return ISA_SCALAR;
    if (a >= 1)
        __get_cpuid_count(7, 1, &a71, &(uint32_t){ 0 }, &(uint32_t){ 0 },
                          &(uint32_t){ 0 });
    state = xcr0();
    if ((state & 0x6) != 0x6 || !all_of(c1, bit_AVX | bit_FMA | bit_F16C) ||
        !(b & bit_AVX2))
        return ISA_SCALAR;
    /* AVX512F is EBX bit 16, DQ 17, BW 30, VL 31; VNNI is ECX bit 11. */
    if ((state & 0xe6) != 0xe6 ||
        !all_of(b, BIT(16) | BIT(17) | BIT(30) | BIT(31)))
        return ISA_AVX2;
    if (!(c & BIT(11)))
        return ISA_AVX512;
    if (!(a71 & BIT(5))) /* AVX512_BF16 */
        return ISA_AVX512VNNI;
    /* AMX-BF16 is EDX bit 22, AMX-TILE 24, AMX-INT8 25. */
    if (!all_of(d, BIT(22) | BIT(24) | BIT(25)) ||
        (state & 0x60000) != 0x60000 || !amx_granted())
        return ISA_AVX512BF16;
    return ISA_AMX;
}
#elif defined(__aarch64__)
static enum isa
find_best(void)
{
    return ISA_NEON;
}
#else
static enum isa
find_best(void)
{
    return ISA_SCALAR;
}
#endif

/* The best that the compiler could build, as the Makefile says: what is
 * above it runs its kernels. */
static enum isa
built(void)
{
#if defined(HAVE_neon)
    return ISA_NEON;
#elif defined(HAVE_amx)
    return ISA_AMX;
#elif defined(HAVE_avx512bf16)
    return ISA_AVX512BF16;
#elif defined(HAVE_avx512vnni)
    return ISA_AVX512VNNI;
#elif defined(HAVE_avx512)
    return ISA_AVX512;
#elif defined(HAVE_avx2)
    return ISA_AVX2;
#else
    return ISA_SCALAR;
#endif
}

static bool
available(enum isa isa)
{
    if (isa == ISA_NEON || cpu.best == ISA_NEON)
        return isa == cpu.best || isa == ISA_SCALAR;
    return isa <= cpu.best;
}

static void
find(void)
{
    cpu.best = find_best();
    if (cpu.best > built())
        cpu.best = built();
    cpu.isa = cpu.best;
    cpu.asked = -1;
    cpu.text = getenv("TU_ISA");
    for (int i = 0; cpu.text && i < ISA_COUNT; i++)
        if (!strcmp(cpu.text, names[i]))
            cpu.asked = i;
    if (cpu.asked >= 0 && available((enum isa)cpu.asked))
        cpu.isa = (enum isa)cpu.asked;
}

enum isa
cpu_isa(void)
{
    pthread_once(&cpu.once, find);
    return cpu.isa;
}

int
cpu_check(struct err *err)
{
    cpu_isa();
    if (!cpu.text || !*cpu.text)
        return 0;
    if (cpu.asked < 0)
        return err_set(err, TU_USAGE,
                       "TU_ISA is \"%s\" (expected scalar, avx2, avx512, "
                       "avx512vnni, avx512bf16, amx, neon)",
                       cpu.text);
    if (cpu.isa != (enum isa)cpu.asked)
        return err_set(err, TU_USAGE,
                       "TU_ISA is \"%s\", but this machine's best is \"%s\"",
                       cpu.text, names[cpu.best]);
    return 0;
}
