/*
 * What the objects of one instruction set export, each one table a family,
 * and who finds the right one.  Private to core/kernel and its tests: tools
 * call the families' own headers.
 */
#ifndef CORE_KERNEL_OPS_H
#define CORE_KERNEL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/kernel/cpu.h"

struct cvt_ops {
    void (*from_bf16)(float *to, const void *from, size_t n);
    void (*from_f16)(float *to, const void *from, size_t n);
    void (*to_bf16)(void *to, const float *from, size_t n);
    void (*to_f16)(void *to, const float *from, size_t n);
};

/* A block of gemv(): 'w' begins at its first row, 'y' at that row's output. */
struct gemv_args {
    float *y;
    const void *w;
    const float *x;
    size_t ldy, ldx; /* in floats */
    size_t rows, cols, n_x;
};

struct gemv_ops {
    void (*bf16)(const struct gemv_args *a);
    void (*f16)(const struct gemv_args *a);
    void (*f32)(const struct gemv_args *a);
};

struct vec_ops {
    float (*dot)(const float *a, const float *b, size_t n);
    void (*axpy)(float *y, float s, const float *x, size_t n);
    void (*add)(float *y, const float *x, size_t n);
    void (*scale)(float *y, float s, size_t n);
    float (*max)(const float *x, size_t n, bool *nan); /* of what is no NaN */
    void (*scale_mul)(float *y, const float *x, float s, const float *w,
                      size_t n); /* y[i] = x[i] * s * w[i] */
    float (*exp_sum)(float *x, float max, size_t n);
    void (*silu_mul)(float *gate, const float *up, size_t n);
    void (*gelu_tanh_mul)(float *gate, const float *up, size_t n);
    void (*rope)(float *x, const float *c, const float *s, size_t half);
};

/* The table of the best level up to 'isa' that this compiler could build. */
const struct cvt_ops *cvt_ops_of(enum isa isa);
const struct gemv_ops *gemv_ops_of(enum isa isa);
const struct vec_ops *vec_ops_of(enum isa isa);

extern const struct cvt_ops cvt_scalar, cvt_avx2, cvt_avx512, cvt_neon;
extern const struct gemv_ops gemv_scalar, gemv_avx2, gemv_avx512, gemv_neon;
extern const struct vec_ops vec_scalar, vec_avx2, vec_avx512, vec_neon;

/* Element i of little-endian 16 or 32-bit data at any address; not le16(),
 * whose bytes keep compilers from vectorizing. */
static inline uint16_t
load16(const void *p, size_t i)
{
    uint16_t v;

    memcpy(&v, (const char *)p + 2 * i, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap16(v);
#endif
    return v;
}

static inline float
load_f32(const void *p, size_t i)
{
    uint32_t u;
    float f;

    memcpy(&u, (const char *)p + 4 * i, sizeof(u));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    u = __builtin_bswap32(u);
#endif
    memcpy(&f, &u, sizeof(f));
    return f;
}

#endif
