/* The instruction sets that have tables of their own and run here. */
#ifndef TEST_UNIT_ISA_H
#define TEST_UNIT_ISA_H

#include <stdint.h>

#include "core/kernel/ops.h"

static __attribute__((unused)) int
isa_runs(enum isa isa)
{
    enum isa best = cpu_isa();

    if (isa == ISA_SCALAR || isa == best)
        return 1;
    return best != ISA_NEON && isa < best;
}

static __attribute__((unused)) int
isa_has_tables(enum isa isa)
{
    return isa == ISA_SCALAR || isa == ISA_AVX2 || isa == ISA_AVX512 ||
           isa == ISA_NEON;
}

#define FOR_EACH_ISA(isa)                                   \
    for (enum isa isa = ISA_SCALAR; isa < ISA_COUNT; isa++) \
        if (isa_runs(isa))

/* xorshift64*: the same numbers everywhere, in [-1, 1). */
static __attribute__((unused)) float
rnd(void)
{
    static uint64_t s = 88172645463325252u;

    s ^= s >> 12;
    s ^= s << 25;
    s ^= s >> 27;
    return (float)(int32_t)(s * 2685821657736338717u >> 32) * 0x1p-31f;
}

#endif
