/* SPDX-License-Identifier: ISC */
/*
 * From an instruction set to each family's table, its own or the best below.
 */
#include <stdatomic.h>

#include "core/kernel/ops.h"

#define FAMILIES      \
    FAMILY(code)      \
    FAMILY(cvt)       \
    FAMILY(encode)    \
    FAMILY(gemm)      \
    FAMILY(gemm_bf16) \
    FAMILY(gemm_int8) \
    FAMILY(gemv)      \
    FAMILY(shadow)    \
    FAMILY(sums)      \
    FAMILY(vec)

#define FAMILY(name) name##_family,
enum family { FAMILIES FAMILY_COUNT };
#undef FAMILY

/* What the Makefile found: a KERNEL(family, isa) for each table. */
#define KERNEL(family, isa) extern const struct family##_ops family##_##isa;
KERNELS
#undef KERNEL

/* NULL where a level has no kernels of its own, until its first use. */
#define KERNEL(family, isa) [family##_family][ISA_##isa] = &family##_##isa,
static _Atomic(const void *) tables[FAMILY_COUNT][ISA_COUNT] = { KERNELS };

static const void *
table_of(enum family family, enum isa isa)
{
    const void *t =
        atomic_load_explicit(&tables[family][isa], memory_order_relaxed);

    if (!t) {
        t = table_of(family, isa_below(isa));
        atomic_store_explicit(&tables[family][isa], t, memory_order_relaxed);
    }
    return t;
}

#define FAMILY(name)                                     \
    const struct name##_ops *name##_ops_of(enum isa isa) \
    {                                                    \
        return table_of(name##_family, isa);             \
    }
FAMILIES
