/*
 * Which instructions this CPU and this kernel let us use.
 */
#ifndef CORE_KERNEL_CPU_H
#define CORE_KERNEL_CPU_H

#include <stdbool.h>

#include "core/err.h"

/* Each level holds all before it on x86; NEON and scalar stand alone. */
enum isa {
    ISA_SCALAR,
    ISA_AVX2,       /* AVX2, FMA, F16C */
    ISA_AVX512,     /* F, BW, DQ, VL */
    ISA_AVX512VNNI, /* + VNNI */
    ISA_AVX512BF16, /* + BF16 */
    ISA_AMX,        /* + AMX tile, bf16, int8, granted by the kernel */
    ISA_NEON,
    ISA_COUNT
};

const char *isa_name(enum isa isa); /* "avx512bf16", as TU_ISA spells it */

/* cpu_isa() is the best level that CPUID and XCR0 grant, lowered by the
 * environment's TU_ISA if that names a lower one.  Found once. */
enum isa cpu_isa(void);

/* cpu_check() is -1 with TU_USAGE if TU_ISA names no ISA, or one that this
 * machine lacks: main asks once, so that a typing error is not ignored. */
int cpu_check(struct err *err);

#endif
