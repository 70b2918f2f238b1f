/*
 * From an instruction set to each family's table.  The Makefile defines
 * HAVE_avx2 and so on for what the compiler could build.
 */
#include "core/kernel/ops.h"

#if defined(HAVE_avx512)
#define AVX512(family) (&family##_avx512)
#else
#define AVX512(family) AVX2(family)
#endif
#if defined(HAVE_avx2)
#define AVX2(family) (&family##_avx2)
#else
#define AVX2(family) (&family##_scalar)
#endif
#if defined(HAVE_neon)
#define NEON(family) (&family##_neon)
#else
#define NEON(family) (&family##_scalar)
#endif

#define TABLE(family)                                        \
    const struct family##_ops *family##_ops_of(enum isa isa) \
    {                                                        \
        switch (isa) {                                       \
        case ISA_AMX:                                        \
        case ISA_AVX512BF16:                                 \
        case ISA_AVX512VNNI:                                 \
        case ISA_AVX512:                                     \
            return AVX512(family);                           \
        case ISA_AVX2:                                       \
            return AVX2(family);                             \
        case ISA_NEON:                                       \
            return NEON(family);                             \
        default:                                             \
            return &family##_scalar;                         \
        }                                                    \
    }

TABLE(cvt)
TABLE(gemv)
TABLE(vec)
