/* SPDX-License-Identifier: ISC */
#include "core/dtype.h"

#include <math.h>
#include <string.h>

#include "core/le.h"

const struct dtype_info dtype_table[DT_COUNT] = {
    [DT_BOOL] = { "BOOL", 8, DK_BOOL, "|b1" },
    [DT_F4] = { "F4", 4, DK_FLOAT, NULL },
    [DT_F6_E2M3] = { "F6_E2M3", 6, DK_FLOAT, NULL },
    [DT_F6_E3M2] = { "F6_E3M2", 6, DK_FLOAT, NULL },
    [DT_U8] = { "U8", 8, DK_UINT, "|u1" },
    [DT_I8] = { "I8", 8, DK_INT, "|i1" },
    [DT_F8_E5M2] = { "F8_E5M2", 8, DK_FLOAT, NULL },
    [DT_F8_E4M3] = { "F8_E4M3", 8, DK_FLOAT, NULL },
    [DT_F8_E8M0] = { "F8_E8M0", 8, DK_FLOAT, NULL },
    [DT_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", 8, DK_FLOAT, NULL },
    [DT_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", 8, DK_FLOAT, NULL },
    [DT_I16] = { "I16", 16, DK_INT, "<i2" },
    [DT_U16] = { "U16", 16, DK_UINT, "<u2" },
    [DT_F16] = { "F16", 16, DK_FLOAT, "<f2" },
    [DT_BF16] = { "BF16", 16, DK_FLOAT, NULL },
    [DT_I32] = { "I32", 32, DK_INT, "<i4" },
    [DT_U32] = { "U32", 32, DK_UINT, "<u4" },
    [DT_F32] = { "F32", 32, DK_FLOAT, "<f4" },
    [DT_C64] = { "C64", 64, DK_COMPLEX, "<c8" },
    [DT_F64] = { "F64", 64, DK_FLOAT, "<f8" },
    [DT_I64] = { "I64", 64, DK_INT, "<i8" },
    [DT_U64] = { "U64", 64, DK_UINT, "<u8" },
};

int
dtype_parse(const char *name, size_t nbytes)
{
    for (int i = 0; i < DT_COUNT; i++)
        if (strlen(dtype_table[i].name) == nbytes &&
            !memcmp(dtype_table[i].name, name, nbytes))
            return i;
    return -1;
}

bool
dtype_computes(enum dtype dtype)
{
    return dtype == DT_BF16 || dtype == DT_F16 || dtype == DT_F32;
}

bool
dtype_nbytes(enum dtype dtype, uint64_t n, uint64_t *nbytes)
{
    uint64_t bits;

    if (__builtin_mul_overflow(n, (uint64_t)dtype_table[dtype].bits, &bits) ||
        bits % 8)
        return false;
    *nbytes = bits / 8;
    return true;
}

/*
 * A sign, 'e' exponent bits, 'm' mantissa bits and a bias give a number by
 * the one IEEE rule; what a format does with its highest codes is its own.
 */
static float
small_float(unsigned v, int e, int m, int bias)
{
    int exponent = (int)(v >> m & ((1u << e) - 1));
    int mantissa = (int)(v & ((1u << m) - 1));
    float f = exponent
                  ? ldexpf((float)(mantissa + (1 << m)), exponent - bias - m)
                  : ldexpf((float)mantissa, 1 - bias - m);

    return v >> (e + m) & 1 ? -f : f;
}

float
f16_to_f32(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000) << 16;

    if ((v & 0x7c00) == 0x7c00) /* infinity, or NaN with its payload */
        return f32_from_bits(sign | 0x7f800000 | (uint32_t)(v & 0x3ff) << 13);
    return small_float(v, 5, 10, 15);
}

uint16_t
f32_to_f16(float f)
{
    uint32_t u = f32_bits(f);
    uint32_t a = u & 0x7fffffff;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);

    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) /* 65520 and up round to infinity */
        return sign | 0x7c00;
    if (a < 0x38800000) /* under 2^-14: a multiple of 2^-24, rounded by FPU */
        return (uint16_t)(sign | (uint16_t)lrintf(f32_from_bits(a) * 0x1p24f));
    a += 0xfff + (a >> 13 & 1);
    return (uint16_t)(sign | ((a - 0x38000000) >> 13));
}

double
dtype_get(enum dtype dtype, const void *data, size_t i)
{
    const uint8_t *p = (const uint8_t *)data + i * dtype_size(dtype);

    switch (dtype) {
    case DT_BOOL:
    case DT_U8:
        return *p;
    case DT_I8:
        return (int8_t)*p;
    case DT_F8_E5M2: /* the upper byte of an F16 */
        return f16_to_f32((uint16_t)(*p << 8));
    case DT_F8_E4M3: /* no infinity */
        return (*p & 0x7f) == 0x7f ? NAN : small_float(*p, 4, 3, 7);
    case DT_F8_E8M0: /* a power of two */
        return *p == 255 ? NAN : ldexpf(1, *p - 127);
    case DT_F8_E4M3FNUZ: /* no infinity, no -0 */
        return *p == 0x80 ? NAN : small_float(*p, 4, 3, 8);
    case DT_F8_E5M2FNUZ:
        return *p == 0x80 ? NAN : small_float(*p, 5, 2, 16);
    case DT_I16:
        return (int16_t)le16(p);
    case DT_U16:
        return le16(p);
    case DT_F16:
        return f16_to_f32(le16(p));
    case DT_BF16:
        return bf16_to_f32(le16(p));
    case DT_I32:
        return (int32_t)le32(p);
    case DT_U32:
        return le32(p);
    case DT_F32:
    case DT_C64:
        return le_f32(p);
    case DT_F64:
        return le_f64(p);
    case DT_I64:
        return (double)(int64_t)le64(p);
    case DT_U64:
        return (double)le64(p);
    default: /* the sub-byte types */
        return NAN;
    }
}

/* 8 bytes at a time: adding one to an exponent of ones carries. */
bool
dtype_finite(const void *elements, enum dtype dtype, size_t n)
{
    const char *v = elements;
    const uint64_t exponents = dtype == DT_F32   ? 0x7f8000007f800000
                               : dtype == DT_F16 ? 0x7c007c007c007c00
                                                 : 0x7f807f807f807f80;
    const uint64_t ones = exponents & ~(exponents << 1);
    const uint64_t carries = exponents << 1 & ~exponents;
    size_t nbytes = n * dtype_size(dtype), i = 0;
    uint64_t bad = 0;

    for (; i + 8 <= nbytes; i += 8)
        bad |= (le64(v + i) & exponents) + ones;
    if (i < nbytes) {
        char last[8] = { 0 };

        memcpy(last, v + i, nbytes - i);
        bad |= (le64(last) & exponents) + ones;
    }
    return !(bad & carries);
}
