/*
 * From an instruction set to each family's table.  The Makefile defines
 * HAVE_avx2 and so on for what the compiler could build.
 */
#include <pthread.h>

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
TABLE(mix)
TABLE(sparse)
TABLE(vec)

/*
 * gemm's levels add kernels rather than replace tables: each one's is the
 * next lower's with its own over it.
 */
#define OVER(member) own->member ? own->member : below.member

static inline struct gemm_ops
over(const struct gemm_ops *own, struct gemm_ops below)
{
    return (struct gemm_ops){
        .exact = OVER(exact),
        .widen = OVER(widen),
        .bf16 = OVER(bf16),
        .bf16_to = own->bf16 ? own->bf16_to : below.bf16_to,
        .int8 = OVER(int8),
        .int8_rows = own->int8 ? own->int8_rows : below.int8_rows,
        .bf16_tile = own->bf16 ? own->bf16_tile : below.bf16_tile,
        .int8_tile = own->int8 ? own->int8_tile : below.int8_tile,
        .transpose = OVER(transpose),
        .interleave = OVER(interleave),
        .rescale = OVER(rescale),
        .absmax = OVER(absmax),
        .quantize = OVER(quantize),
        .rest = OVER(rest),
        .sums = OVER(sums),
    };
}

static struct gemm_ops gemm[ISA_COUNT];
static pthread_once_t gemm_once = PTHREAD_ONCE_INIT;

static void
fill_gemm(void)
{
    for (int i = 0; i < ISA_COUNT; i++)
        gemm[i] = gemm_scalar;
#if defined(HAVE_avx2)
    for (int i = ISA_AVX2; i <= ISA_AMX; i++)
        gemm[i] = over(&gemm_avx2, gemm[i]);
#endif
#if defined(HAVE_avx512)
    for (int i = ISA_AVX512; i <= ISA_AMX; i++)
        gemm[i] = over(&gemm_avx512, gemm[i]);
#endif
#if defined(HAVE_avx512vnni)
    for (int i = ISA_AVX512VNNI; i <= ISA_AMX; i++)
        gemm[i] = over(&gemm_avx512vnni, gemm[i]);
#endif
#if defined(HAVE_avx512bf16)
    for (int i = ISA_AVX512BF16; i <= ISA_AMX; i++)
        gemm[i] = over(&gemm_avx512bf16, gemm[i]);
#endif
#if defined(HAVE_amx)
    gemm[ISA_AMX] = over(&gemm_amx, gemm[ISA_AMX]);
#endif
#if defined(HAVE_neon)
    gemm[ISA_NEON] = over(&gemm_neon, gemm[ISA_NEON]);
#endif
}

const struct gemm_ops *
gemm_ops_of(enum isa isa)
{
    pthread_once(&gemm_once, fill_gemm);
    return &gemm[isa];
}
