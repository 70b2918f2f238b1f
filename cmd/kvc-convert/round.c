/* Numbers of any dtype to f16, bf16 or f32, rounded as torch does. */
#include <string.h>

#include "cmd/kvc-convert/kvc.h"
#include "core/kernel/cvt.h"
#include "core/le.h"

bool
round_known(enum dtype from)
{
    return dtype_table[from].bits >= 8 && dtype_table[from].kind != DK_COMPLEX;
}

/* All go through f32, 64-bit whole numbers in one rounding. */
static float
to_f32(const void *from, enum dtype type, size_t i)
{
    const char *p = from;

    if (type == DT_I64)
        return (float)(int64_t)le64(p + 8 * i);
    if (type == DT_U64)
        return (float)le64(p + 8 * i);
    return (float)dtype_get(type, from, i);
}

void
round_to(void *to, enum dtype dtype, const void *from, enum dtype from_type,
         size_t n, float *scratch)
{
    if (dtype == from_type) { /* NaN keep what they carry */
        memcpy(to, from, n * dtype_table[dtype].bits / 8);
        return;
    }
    if (dtype_computes(from_type))
        cvt_to_f32(scratch, from, from_type, n);
    else
        for (size_t i = 0; i < n; i++)
            scratch[i] = to_f32(from, from_type, i);
    cvt_from_f32(to, dtype, scratch, n);
}
