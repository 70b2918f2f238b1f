/* SPDX-License-Identifier: ISC */
/* The instruction sets that have tables of their own and run here. */
#ifndef TEST_UNIT_ISA_H
#define TEST_UNIT_ISA_H

#include <stdint.h>

#include "core/kernel/ops.h"

#define FOR_EACH_ISA(isa)                                   \
    for (enum isa isa = ISA_SCALAR; isa < ISA_COUNT; isa++) \
        if (isa_is_under(isa, cpu_isa()))

/* Those of them that have a table of their own. */
#define FOR_EACH_TABLE(family, isa) \
    FOR_EACH_ISA(isa)               \
    if (isa == ISA_SCALAR ||        \
        family##_ops_of(isa) != family##_ops_of(isa_below(isa)))

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
