/* SPDX-License-Identifier: ISC */
/*
 * Which instructions this CPU and this kernel let us use.
 */
#ifndef CORE_KERNEL_CPU_H
#define CORE_KERNEL_CPU_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

/* ISA_AVX2, and ISA_avx2 as its files spell it: a row each of isa.def. */
enum isa {
#define ISA(NAME, name, below, flags, instructions, probe) \
    ISA_##NAME, ISA_##name = ISA_##NAME,
#include "core/kernel/isa.def"
    ISA_COUNT
};

const char *isa_name(enum isa isa); /* "avx512bf16", as TU_ISA spells it */
enum isa isa_below(enum isa isa);   /* the next lower level; scalar's own */

/* cpu_isa() is the best level that CPUID and XCR0 grant, lowered by the
 * environment's TU_ISA if that names a lower one.  Found once. */
enum isa cpu_isa(void);

/* cpu_ahead(): bytes from what a kernel reads of a row to what it prefetches,
 * where rows come from memory and reading them is all of its work. */
size_t cpu_ahead(void);

/* isa_is_under(): is 'isa' the level 'top', or one of those below it? */
bool isa_is_under(enum isa isa, enum isa top);

/* cpu_check() is -1 with TU_USAGE if TU_ISA names no ISA, or one that this
 * machine does not have: main calls it once, so that a typo is not ignored. */
int cpu_check(struct err *err);

#endif
