/* SPDX-License-Identifier: ISC */
/*
 * The exact class sums in eight lanes on every CPU.  A v8 has the lanes of V8
 * outputs: V8 rows of W that meet one row of X.
 *   v8_x(p)         8 floats of X, for each of the rows
 *   v8_weights(dtype, p, q)  8 weights at p and, if V8 is 2, 8 of the next row
 *                   at q, widened
 *   v8_weights_at(dtype, p, q, j)  those of columns 8 j to 8 j + 7, j < 4, of
 *                   rows that have 32 columns at p and q
 *   v8_sum4(to, v)  to[4 * V8] = v[0]'s sums, v[1]'s ..: (l, l + 4), then
 *                   (l, l + 2), then (l, l + 1)
 */
#ifndef CORE_KERNEL_LANES8_H
#define CORE_KERNEL_LANES8_H

#include "core/kernel/simd.h"

#if VF == 16
#define V8 2
typedef vf v8;

INLINE v8
v8_x(const float *p)
{
    return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
}

INLINE v8
v8_x_n(const float *p, size_t n)
{
    return _mm512_broadcast_f32x8(_mm256_maskz_loadu_ps((__mmask8)first(n), p));
}

INLINE v8
v8_f32(__m256 p, __m256 q)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(p), q, 1);
}

INLINE v8
v8_halves(enum dtype dtype, __m128i p, __m128i q)
{
    __m256i h = _mm256_inserti128_si256(_mm256_castsi128_si256(p), q, 1);

    return dtype == DT_BF16 ? widen_bf16(h) : _mm512_cvtph_ps(h);
}

INLINE v8
v8_weights(enum dtype dtype, const void *p, const void *q)
{
    return dtype == DT_F32
               ? v8_f32(_mm256_loadu_ps(p), _mm256_loadu_ps(q))
               : v8_halves(dtype, _mm_loadu_si128(p), _mm_loadu_si128(q));
}

INLINE v8
v8_weights_n(enum dtype dtype, const void *p, const void *q, size_t n)
{
    __mmask8 m = (__mmask8)first(n);

    return dtype == DT_F32 ? v8_f32(_mm256_maskz_loadu_ps(m, p),
                                    _mm256_maskz_loadu_ps(m, q))
                           : v8_halves(dtype, _mm_maskz_loadu_epi16(m, p),
                                       _mm_maskz_loadu_epi16(m, q));
}

/* One permutation instead of an insertion, an extension and a shift: the zeroed
 * words are the lower halves of the floats. */
#define WORD(j, i) (short)(8 * (j) + (i))
#define WORDS(j, b)                                                          \
    WORD(j, b + 7), 0, WORD(j, b + 6), 0, WORD(j, b + 5), 0, WORD(j, b + 4), \
        0, WORD(j, b + 3), 0, WORD(j, b + 2), 0, WORD(j, b + 1), 0,          \
        WORD(j, b), 0

INLINE v8
v8_weights_at(enum dtype dtype, const char *p, const char *q, const int j)
{
    if (dtype == DT_BF16)
        return _mm512_castsi512_ps(_mm512_maskz_permutex2var_epi16(
            0xaaaaaaaa, _mm512_loadu_si512(p),
            _mm512_set_epi16(WORDS(j, 32), WORDS(j, 0)),
            _mm512_loadu_si512(q)));
    p += 8 * (size_t)j * weight_nbytes(dtype);
    q += 8 * (size_t)j * weight_nbytes(dtype);
    return v8_weights(dtype, p, q);
}
#undef WORD
#undef WORDS

/* Rows a to h: [a a' b b'] and so on become [a b c d], then [a e ..]. */
INLINE void
v8_sum4(float *to, const v8 *v)
{
    const __m512i order =
        _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    vf ad = _mm512_shuffle_f32x4(v[0], v[1], 0x88) +
            _mm512_shuffle_f32x4(v[0], v[1], 0xdd);
    vf eh = _mm512_shuffle_f32x4(v[2], v[3], 0x88) +
            _mm512_shuffle_f32x4(v[2], v[3], 0xdd);
    vf q = _mm512_shuffle_ps(ad, eh, 0x44) + _mm512_shuffle_ps(ad, eh, 0xee);

    q = q + _mm512_permute_ps(q, 0xb1);
    _mm256_storeu_ps(to,
                     _mm512_castps512_ps256(_mm512_permutexvar_ps(order, q)));
}

#elif VF == 8
#define V8 1
typedef vf v8;

INLINE void
v8_sum4(float *to, const v8 *v)
{
    __m256 ab = _mm256_permute2f128_ps(v[0], v[1], 0x20) +
                _mm256_permute2f128_ps(v[0], v[1], 0x31);
    __m256 cd = _mm256_permute2f128_ps(v[2], v[3], 0x20) +
                _mm256_permute2f128_ps(v[2], v[3], 0x31);
    /* [a0 a1 c0 c1, b0 b1 d0 d1], then [a c a c, b d b d] */
    __m256 q =
        _mm256_shuffle_ps(ab, cd, 0x44) + _mm256_shuffle_ps(ab, cd, 0xee);

    q = _mm256_shuffle_ps(q, q, 0x88) + _mm256_shuffle_ps(q, q, 0xdd);
    _mm_storeu_ps(to, _mm_unpacklo_ps(_mm256_castps256_ps128(q),
                                      _mm256_extractf128_ps(q, 1)));
}

#else
#define V8 1
typedef struct {
    vf lo, hi;
} v8;

INLINE v8
v8_zero(void)
{
    return (v8){ vf_set1(0), vf_set1(0) };
}

INLINE v8
v8_fma(v8 a, v8 b, v8 c)
{
    return (v8){ vf_fma(a.lo, b.lo, c.lo), vf_fma(a.hi, b.hi, c.hi) };
}

INLINE v8
v8_load(const float *p)
{
    return (v8){ vf_load(p), vf_load(p + 4) };
}

INLINE void
v8_store(float *p, v8 v)
{
    vf_store(p, v.lo);
    vf_store(p + 4, v.hi);
}

INLINE vf
v8_pairs(v8 a, v8 b)
{
    vf p = a.lo + a.hi, q = b.lo + b.hi;

    return vcombine_f32(vadd_f32(vget_low_f32(p), vget_high_f32(p)),
                        vadd_f32(vget_low_f32(q), vget_high_f32(q)));
}

INLINE void
v8_sum4(float *to, const v8 *v)
{
    vst1q_f32(to, vpaddq_f32(v8_pairs(v[0], v[1]), v8_pairs(v[2], v[3])));
}
#endif

#if VF >= 8
INLINE v8
v8_zero(void)
{
    return vf_set1(0);
}

INLINE v8
v8_fma(v8 a, v8 b, v8 c)
{
    return vf_fma(a, b, c);
}

INLINE v8
v8_load(const float *p)
{
    return vf_load(p);
}

INLINE void
v8_store(float *p, v8 v)
{
    vf_store(p, v);
}
#endif

#if VF == 8
INLINE v8
v8_weights(enum dtype dtype, const void *p, const void *q)
{
    (void)q;
    return vf_weights(dtype, p);
}

INLINE v8
v8_weights_n(enum dtype dtype, const void *p, const void *q, size_t n)
{
    (void)q;
    return vf_weights_n(dtype, p, n);
}
#elif VF == 4
INLINE v8
v8_weights(enum dtype dtype, const void *p, const void *q)
{
    (void)q;
    return (
        v8){ vf_weights(dtype, p),
             vf_weights(dtype, (const char *)p + 4 * weight_nbytes(dtype)) };
}

INLINE v8
v8_weights_n(enum dtype dtype, const void *p, const void *q, size_t n)
{
    float f[8] = { 0 };

    (void)q;
    vf_store(f, n < 4 ? vf_weights_n(dtype, p, n) : vf_weights(dtype, p));
    if (n > 4)
        vf_store(f + 4,
                 vf_weights_n(dtype, (const char *)p + 4 * weight_nbytes(dtype),
                              n - 4));
    return v8_load(f);
}
#endif

#if VF < 16
INLINE v8
v8_weights_at(enum dtype dtype, const char *p, const char *q, const int j)
{
    return v8_weights(dtype, p + 8 * (size_t)j * weight_nbytes(dtype), q);
}

INLINE v8
v8_x(const float *p)
{
    return v8_weights(DT_F32, p, p);
}

INLINE v8
v8_x_n(const float *p, size_t n)
{
    return v8_weights_n(DT_F32, p, p, n);
}
#endif

#endif
