/* SPDX-License-Identifier: ISC */
/*
 * Element types of tensors: names as in safetensors, sizes in bits, what numpy
 * calls them, and exact scalar conversion of the small floats.  Conversion in
 * bulk is core/kernel/cvt.
 */
#ifndef CORE_DTYPE_H
#define CORE_DTYPE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* In the order in which safetensors sorts a file: see dtype.c for the table. */
enum dtype {
    DT_BOOL,
    DT_F4, /* e2m1, two in a byte */
    DT_F6_E2M3,
    DT_F6_E3M2,
    DT_U8,
    DT_I8,
    DT_F8_E5M2,
    DT_F8_E4M3,
    DT_F8_E8M0,
    DT_F8_E4M3FNUZ,
    DT_F8_E5M2FNUZ,
    DT_I16,
    DT_U16,
    DT_F16,
    DT_BF16,
    DT_I32,
    DT_U32,
    DT_F32,
    DT_C64,
    DT_F64,
    DT_I64,
    DT_U64,
    DT_COUNT
};

enum dtype_kind { DK_BOOL, DK_INT, DK_UINT, DK_FLOAT, DK_COMPLEX };

struct dtype_info {
    const char *name;     /* "BF16" */
    unsigned bits;        /* of one element: 4 .. 64 */
    enum dtype_kind kind; /* F4 and F6 are DK_FLOAT */
    const char *npy;      /* numpy's descr, "<f4"; NULL: numpy has none */
};

extern const struct dtype_info dtype_table[DT_COUNT];

/*
 * dtype_computes(): BF16, F16 or F32, the types of weights and activations that
 * every kernel takes.  A type that is added here must be known to all of these:
 * some would read it as F32 or F16, wrong numbers without an error.
 *   core/kernel/cvt.c       both directions
 *   core/kernel/ops.h       BY_DTYPE, weight_nbytes()
 *   core/kernel/scalar.h    weight()
 *   core/kernel/simd.h      vf_weights(), vf_weights_n()
 *   core/kernel/lanes8.h    v8_weights(), v8_weights_n() of AVX-512
 *   callers of this         kvc-convert, lut-apply, moe-sft, moe_weights.c
 * The refusal in core/format/stwant.c and the pages name the types, and
 * test/unit/stwant.c and test/ref/tiny_models.py expect F64 to be refused.
 */
bool dtype_computes(enum dtype dtype);

/* dtype_parse() finds a type by its safetensors name; -1 if there is none. */
int dtype_parse(const char *name, size_t nbytes);

/*
 * dtype_nbytes() is the size of n elements; false if n * bits overflows 64
 * bits or is not a whole number of bytes.
 */
bool dtype_nbytes(enum dtype dtype, uint64_t n, uint64_t *nbytes);

/* dtype_size() is the bytes of an element of a type of whole bytes. */
static inline size_t
dtype_size(enum dtype dtype)
{
    return dtype_table[dtype].bits / 8;
}

/*
 * dtype_get() reads element i of a little-endian array of a type of whole
 * bytes (real part of C64).  Exact but for 64-bit integers beyond 2^53.
 */
double dtype_get(enum dtype dtype, const void *data, size_t i);

/* dtype_finite(): are n elements of BF16, F16 or F32, little-endian, neither
 * NaN nor infinite? */
bool dtype_finite(const void *elements, enum dtype dtype, size_t n);

static inline float
f32_from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline uint32_t
f32_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

/*
 * f64_to_odd() is v cut to an f32, the last bit set where anything was lost
 * ("round to odd"): a second rounding, to BF16 or F16, then gives what one
 * rounding of v would.  Out of range: infinity; a NaN stays one.
 */
static inline float
f64_to_odd(double v)
{
    float f = (float)v;
    uint32_t u = f32_bits(f);

    if ((double)f == v || !isfinite(f))
        return f;
    if (fabs((double)f) > fabs(v))
        u--; /* toward 0 */
    return f32_from_bits(u | 1);
}

static inline float
bf16_to_f32(uint16_t v)
{
    return f32_from_bits((uint32_t)v << 16);
}

/* Nearest, ties to even; a NaN stays a (quiet) NaN. */
static inline uint16_t
f32_to_bf16(float f)
{
    uint32_t u = f32_bits(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float f16_to_f32(uint16_t v);
uint16_t f32_to_f16(float f); /* nearest, ties to even; overflow gives inf */

#endif
