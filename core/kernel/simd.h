/* SPDX-License-Identifier: ISC */
/*
 * Vectors of floats, as much of them as the kernels need, in the widest form
 * that the including file's flags allow: FAMILY_simd.c is written once over
 * these and compiled for each instruction set of the Makefile's VECTORS.
 *
 *   VF              lanes of a vector, type 'vf'; + - * / are C's own
 *   vf_load, _store, ..  VF floats at any address
 *   vf_stream       vf_store() that bypasses the caches, p aligned to a vector;
 *                   stream_end() before another thread may look
 *   vf_load_n, ..   the first n < VF lanes alone are touched, 0 in the others
 *   vf_bf16, _f16   VF weights, little-endian, at any address, widened
 *   vf_weights      either of them, or f32: where it is compiled for one dtype
 *   vf_fma(a, b, c) a * b + c, rounded once
 *   vf_max, _min    b if either is a NaN (x86); NEON: NaN
 *   vf_outside      bit i: lane i is not within lo .. hi, or is a NaN
 *   vf_largest      of the lanes, none of which is a NaN
 *   vf_sum          lanes added in halves: i and i + VF / 2 first
 *   vf_pow2(t)      2^n of EXP_ROUND + n
 *   vf_abs          the sign's bit is cleared
 *   vf_f16_exact    vf_f16() that keeps a NaN's bits
 *   vf_to_bf16, _f16  VF floats rounded to nearest even
 *   vu              a vector's bits: C's own operators, (vu)v and (vf)u
 */
#ifndef CORE_KERNEL_SIMD_H
#define CORE_KERNEL_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/kernel/exp.h"
#include "core/kernel/ops.h"

/* Before a short loop: all of it, so that an array's elements are registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__AVX2__)
#include <immintrin.h>

INLINE void
stream_end(void)
{
    _mm_sfence();
}

/* Lanes added in halves. */
INLINE float
sum8(__m256 v)
{
    __m128 b =
        _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
#endif

#if defined(__AVX512F__)
#define VF 16
typedef __m512 vf;
typedef uint32_t vu __attribute__((vector_size(64)));
typedef int32_t vs __attribute__((vector_size(64)));

INLINE __mmask16
first(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

INLINE vf
vf_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(first(n), p);
}

INLINE void
vf_stream(float *p, vf v)
{
    _mm512_stream_ps(p, v);
}

INLINE void
vf_store_n(float *p, vf v, size_t n)
{
    _mm512_mask_storeu_ps(p, first(n), v);
}

INLINE vf
widen_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE vf
vf_bf16(const void *p)
{
    return widen_bf16(_mm256_loadu_si256(p));
}

INLINE vf
vf_bf16_n(const void *p, size_t n)
{
    return widen_bf16(_mm256_maskz_loadu_epi16(first(n), p));
}

INLINE vf
vf_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

INLINE vf
vf_f16_n(const void *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}

INLINE vf
vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vf
vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

INLINE vf
vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

INLINE unsigned
vf_outside(vf v, vf lo, vf hi)
{
    return (unsigned)_mm512_cmp_ps_mask(v, lo, _CMP_NGE_UQ) |
           (unsigned)_mm512_cmp_ps_mask(v, hi, _CMP_NLE_UQ);
}

INLINE int
vf_has_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0;
}

INLINE float
vf_largest(vf v)
{
    return _mm512_reduce_max_ps(v);
}

INLINE float
vf_sum(vf v)
{
    return sum8(
        _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}

INLINE void
store_high(void *p, vu v)
{
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16((__m512i)(v >> 16)));
}

INLINE void
vf_to_f16(void *p, vf v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__AVX2__)
#define VF 8
typedef __m256 vf;
typedef uint32_t vu __attribute__((vector_size(32)));
typedef int32_t vs __attribute__((vector_size(32)));

INLINE __m256i
first(size_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
}

INLINE void
vf_stream(float *p, vf v)
{
    _mm256_stream_ps(p, v);
}

INLINE void
vf_store_n(float *p, vf v, size_t n)
{
    _mm256_maskstore_ps(p, first(n), v);
}

INLINE vf
widen_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE vf
vf_bf16(const void *p)
{
    return widen_bf16(_mm_loadu_si128(p));
}

INLINE vf
vf_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

INLINE vf
vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vf
vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

INLINE vf
vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

INLINE unsigned
vf_outside(vf v, vf lo, vf hi)
{
    return (unsigned)_mm256_movemask_ps(_mm256_or_ps(
        _mm256_cmp_ps(v, lo, _CMP_NGE_UQ), _mm256_cmp_ps(v, hi, _CMP_NLE_UQ)));
}

INLINE int
vf_has_nan(vf a)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0;
}

INLINE float
vf_largest(vf v)
{
    __m128 b =
        _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

INLINE float
vf_sum(vf v)
{
    return sum8(v);
}

INLINE void
store_high(void *p, vu v)
{
    __m256i high = (__m256i)(v >> 16);

    _mm_storeu_si128(p, _mm_packus_epi32(_mm256_castsi256_si128(high),
                                         _mm256_extracti128_si256(high, 1)));
}

INLINE void
vf_to_f16(void *p, vf v)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__ARM_NEON)
#include <arm_neon.h>

#define VF 4
typedef float32x4_t vf;
typedef uint32_t vu __attribute__((vector_size(16)));
typedef int32_t vs __attribute__((vector_size(16)));

INLINE void
vf_stream(float *p, vf v)
{
    vst1q_f32(p, v);
}

INLINE void
stream_end(void)
{
}

INLINE void
vf_store_n(float *p, vf v, size_t n)
{
    float f[4];

    vst1q_f32(f, v);
    memcpy(p, f, 4 * n);
}

INLINE uint16x4_t
load_halves(const void *p)
{
    uint16x4_t h;

    memcpy(&h, p, sizeof(h));
    return h;
}

INLINE vf
vf_bf16(const void *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(load_halves(p), 16));
}

INLINE vf
vf_f16(const void *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(load_halves(p)));
}

INLINE vf
vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}

INLINE vf
vf_max(vf a, vf b)
{
    return vmaxq_f32(a, b);
}

INLINE vf
vf_min(vf a, vf b)
{
    return vminq_f32(a, b);
}

INLINE unsigned
vf_outside(vf v, vf lo, vf hi)
{
    const uint32x4_t bit = { 1, 2, 4, 8 };
    uint32x4_t in = vandq_u32(vcgeq_f32(v, lo), vcleq_f32(v, hi));

    return vaddvq_u32(vbicq_u32(bit, in));
}

INLINE int
vf_has_nan(vf a)
{
    return vminvq_u32(vceqq_f32(a, a)) == 0;
}

INLINE float
vf_largest(vf v)
{
    return vmaxvq_f32(v);
}

INLINE float
vf_sum(vf v)
{
    float32x2_t b = vadd_f32(vget_low_f32(v), vget_high_f32(v));

    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

INLINE void
store_high(void *p, vu v)
{
    uint16x4_t h = vshrn_n_u32((uint32x4_t)v, 16);

    memcpy(p, &h, sizeof(h));
}

INLINE void
vf_to_f16(void *p, vf v)
{
    float16x4_t h = vcvt_f16_f32(v);

    memcpy(p, &h, sizeof(h));
}
#endif

/* At any address: files of others begin their numbers at odd ones. */
typedef float vf_any
    __attribute__((vector_size(4 * VF), aligned(1), may_alias));

INLINE vf
vf_set1(float x)
{
    return (vf)(x - (vf_any){ 0 }); /* x + 0 would lose the sign of -0 */
}

INLINE vf
vf_load(const float *p)
{
    const vf_any *at = (const vf_any *)p;

    return (vf)at[0];
}

INLINE void
vf_store(float *p, vf v)
{
    *(vf_any *)p = (vf_any)v;
}

#if VF < 16
INLINE vf
vf_load_n(const float *p, size_t n)
{
    float f[VF] = { 0 }; /* no vmaskmov: QEMU 7 reads what is masked, too */

    memcpy(f, p, 4 * n);
    return vf_load(f);
}

INLINE vf
vf_bf16_n(const void *p, size_t n)
{
    uint16_t h[VF] = { 0 };

    memcpy(h, p, 2 * n);
    return vf_bf16(h);
}

INLINE vf
vf_f16_n(const void *p, size_t n)
{
    uint16_t h[VF] = { 0 };

    memcpy(h, p, 2 * n);
    return vf_f16(h);
}
#endif

INLINE vf
vf_weights(enum dtype dtype, const void *p)
{
    return dtype == DT_BF16  ? vf_bf16(p)
           : dtype == DT_F16 ? vf_f16(p)
                             : vf_load(p);
}

INLINE vf
vf_weights_n(enum dtype dtype, const void *p, size_t n)
{
    return dtype == DT_BF16  ? vf_bf16_n(p, n)
           : dtype == DT_F16 ? vf_f16_n(p, n)
                             : vf_load_n(p, n);
}

INLINE vf
vf_pow2(vf t)
{
    return (vf)(((vu)t + 127u) << 23);
}

/* a where a lane's bits are all set, b where none is. */
INLINE vf
vf_select(vu mask, vf a, vf b)
{
    return (vf)((mask & (vu)a) | (~mask & (vu)b));
}

INLINE vf
vf_abs(vf v)
{
    return (vf)((vu)v & 0x7fffffffu);
}

/* The conversion sets a NaN's quiet bit, 0x200 of the half: cleared again if
 * it was not set.  (The half is in the upper 16 bits of its bf16.) */
INLINE vf
vf_f16_exact(const void *p)
{
    vf f = vf_f16(p);
    vu nan = (vu)(f != f), half = (vu)vf_bf16(p) >> 3;

    return (vf)((vu)f & ~(nan & ~half & 0x400000u));
}

/* To nearest even; a NaN stays one, and quiet. */
INLINE void
vf_to_bf16(void *p, vf v)
{
    vu u = (vu)v, nan = (vu)(v != v);
    vu rounded = u + 0x7fffu + (u >> 16 & 1u);

    store_high(p, (nan & (u | 0x400000u)) | (~nan & rounded));
}

#endif
