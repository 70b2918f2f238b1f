/*
 * Template of gemm_ISA.c: what goes on around the products of the packed
 * classes.  GEMM_PACK_OPS are its entries of the table.
 */
#include <math.h>

#include "core/kernel/ops.h"
#include "core/kernel/simd.h"

#if VF == 16
/* VF words of each of VF rows, transposed. */
INLINE void
transpose_block(uint32_t *to, const char *from, size_t ld)
{
    __m512i r[16], s[16];

    UNROLL
    for (size_t i = 0; i < 16; i++)
        r[i] = _mm512_loadu_si512(from + i * ld);
    UNROLL
    for (size_t i = 0; i < 16; i += 2) { /* pairs of rows, of words */
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL
    for (size_t i = 0; i < 16; i += 4) { /* r[i + j]: words j of each quarter */
        r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
    UNROLL
    for (size_t j = 0; j < 4; j++) { /* quarters: 4 x 4 of them */
        __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
        __m512i b = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        __m512i c = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        __m512i d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);

        _mm512_storeu_si512(to + j * 64, _mm512_shuffle_i32x4(a, b, 0x88));
        _mm512_storeu_si512(to + (4 + j) * 64,
                            _mm512_shuffle_i32x4(c, d, 0x88));
        _mm512_storeu_si512(to + (8 + j) * 64,
                            _mm512_shuffle_i32x4(a, b, 0xdd));
        _mm512_storeu_si512(to + (12 + j) * 64,
                            _mm512_shuffle_i32x4(c, d, 0xdd));
    }
}

INLINE vf
vf_s32(const int32_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_loadu_si512(p));
}

/* Bits of a positive float, and those of NaNs, grow as integers do. */
INLINE vf
max_bits(vf a, vf b)
{
    return _mm512_castsi512_ps(
        _mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

INLINE vf
abs_bits(vf a)
{
    return _mm512_andnot_ps(vf_set1(-0.f), a);
}

INLINE void
store_int8(int8_t *to, vf v)
{
    _mm_storeu_si128((void *)to, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}

INLINE vf
sum_128(vf acc, const int8_t *b)
{
    __m512i pairs =
        _mm512_maddubs_epi16(_mm512_set1_epi8(1), _mm512_loadu_si512(b));

    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(acc),
                         _mm512_madd_epi16(pairs, _mm512_set1_epi16(128))));
}

INLINE vf
interleaved(const uint16_t *a, const uint16_t *b)
{
    __m512i lo = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)a));
    __m512i hi = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)b));

    return _mm512_castsi512_ps(_mm512_or_si512(lo, _mm512_slli_epi32(hi, 16)));
}

#elif VF == 8
INLINE void
transpose_block(uint32_t *to, const char *from, size_t ld)
{
    __m256i r[8], s[8];

    UNROLL
    for (size_t i = 0; i < 8; i++)
        r[i] = _mm256_loadu_si256((const void *)(from + i * ld));
    UNROLL
    for (size_t i = 0; i < 8; i += 2) { /* pairs of rows, of words */
        s[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL
    for (size_t i = 0; i < 8; i += 4) { /* r[i + j]: words j of each half */
        r[i] = _mm256_unpacklo_epi64(s[i], s[i + 2]);
        r[i + 1] = _mm256_unpackhi_epi64(s[i], s[i + 2]);
        r[i + 2] = _mm256_unpacklo_epi64(s[i + 1], s[i + 3]);
        r[i + 3] = _mm256_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
    UNROLL
    for (size_t j = 0; j < 4; j++) {
        _mm256_storeu_si256((void *)(to + j * 64),
                            _mm256_permute2x128_si256(r[j], r[4 + j], 0x20));
        _mm256_storeu_si256((void *)(to + (4 + j) * 64),
                            _mm256_permute2x128_si256(r[j], r[4 + j], 0x31));
    }
}

INLINE vf
vf_s32(const int32_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_loadu_si256((const void *)p));
}

INLINE vf
max_bits(vf a, vf b)
{
    return _mm256_castsi256_ps(
        _mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

INLINE vf
abs_bits(vf a)
{
    return _mm256_andnot_ps(vf_set1(-0.f), a);
}

INLINE void
store_int8(int8_t *to, vf v)
{
    __m256i i = _mm256_cvtps_epi32(v);
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(i),
                                _mm256_extracti128_si256(i, 1));

    _mm_storel_epi64((void *)to, _mm_packs_epi16(h, h));
}

INLINE vf
sum_128(vf acc, const int8_t *b)
{
    __m256i v = _mm256_loadu_si256((const void *)b);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), v);

    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(acc),
                         _mm256_madd_epi16(pairs, _mm256_set1_epi16(128))));
}

INLINE vf
interleaved(const uint16_t *a, const uint16_t *b)
{
    __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)a));
    __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)b));

    return _mm256_castsi256_ps(_mm256_or_si256(lo, _mm256_slli_epi32(hi, 16)));
}

#else
INLINE void
transpose_block(uint32_t *to, const char *from, size_t ld)
{
    uint32x4_t r[4], s[4];

    for (size_t i = 0; i < 4; i++)
        memcpy(&r[i], from + i * ld, 16);
    s[0] = vzip1q_u32(r[0], r[2]);
    s[1] = vzip2q_u32(r[0], r[2]);
    s[2] = vzip1q_u32(r[1], r[3]);
    s[3] = vzip2q_u32(r[1], r[3]);
    vst1q_u32(to, vzip1q_u32(s[0], s[2]));
    vst1q_u32(to + 64, vzip2q_u32(s[0], s[2]));
    vst1q_u32(to + 128, vzip1q_u32(s[1], s[3]));
    vst1q_u32(to + 192, vzip2q_u32(s[1], s[3]));
}

INLINE vf
vf_s32(const int32_t *p)
{
    return vcvtq_f32_s32(vld1q_s32(p));
}

INLINE vf
max_bits(vf a, vf b)
{
    return vreinterpretq_f32_s32(
        vmaxq_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b)));
}

INLINE vf
abs_bits(vf a)
{
    return vabsq_f32(a);
}

INLINE void
store_int8(int8_t *to, vf v)
{
    int16x4_t h = vmovn_s32(vcvtnq_s32_f32(v));
    int8x8_t b = vmovn_s16(vcombine_s16(h, h));

    memcpy(to, &b, 4);
}

INLINE vf
sum_128(vf acc, const int8_t *b)
{
    int32x4_t sum = vpaddlq_s16(vpaddlq_s8(vld1q_s8(b)));

    return vreinterpretq_f32_s32(
        vaddq_s32(vreinterpretq_s32_f32(acc), vshlq_n_s32(sum, 7)));
}
INLINE vf
interleaved(const uint16_t *a, const uint16_t *b)
{
    return vreinterpretq_f32_u16(
        vcombine_u16(vzip1_u16(load16_n(a, 4), load16_n(b, 4)),
                     vzip2_u16(load16_n(a, 4), load16_n(b, 4))));
}
#endif

/* Rows: those of the caller's weights are pages apart, which no CPU foresees.
 */
enum { AHEAD = 32 };

static void
interleave(uint32_t *to, const void *from, size_t ld, size_t n)
{
    const char *row = from;

    for (size_t i = 0; i < n; i++, row += 2 * ld, to += 64) {
        const uint16_t *a = (const void *)row, *b = (const void *)(row + ld);

        if (i + AHEAD / 2 < n) {
            const char *p = row + AHEAD * ld;

            __builtin_prefetch(p);
            __builtin_prefetch(p + 64);
            __builtin_prefetch(p + ld);
            __builtin_prefetch(p + ld + 64);
        }
        UNROLL
        for (size_t j = 0; j < 64; j += VF)
            vf_store((float *)(void *)(to + j), interleaved(a + j, b + j));
    }
}

/* Rows in the outer loop: VF streams at a time are what a CPU can foresee. */
static void
transpose(uint32_t *to, const void *from, size_t ld, size_t n)
{
    for (size_t r = 0; r < 64; r += VF) {
        const char *row = (const char *)from + r * ld;
        size_t i = 0;

        for (; i + VF <= n; i += VF)
            transpose_block(to + i * 64 + r, row + 4 * i, ld);
        for (; i < n; i++)
            for (size_t j = 0; j < VF; j++)
                memcpy(to + i * 64 + r + j, row + j * ld + 4 * i, 4);
    }
}

static void
rescale(float *c, size_t ldc, const int32_t *s, const float *x_scale,
        const float *w_scale, size_t m, size_t n, bool past)
{
    for (size_t i = 0; i < m; i++, s += 64) {
        const vf x = vf_set1(x_scale[i]);
        float *row = c + i * ldc;
        size_t j = 0;

        if (past)
            for (; j + VF <= n; j += VF)
                vf_stream(row + j, vf_s32(s + j) * x * vf_load(w_scale + j));
        for (; j + VF <= n; j += VF)
            vf_store(row + j, vf_s32(s + j) * x * vf_load(w_scale + j));
        for (; j < n; j++)
            row[j] = (float)s[j] * x_scale[i] * w_scale[j];
    }
    if (past)
        stream_end();
}

static float
absmax(const float *x, size_t n)
{
    vf m0 = vf_set1(0), m1 = m0;
    float lanes[VF], max = 0;
    size_t i = 0;

    for (; i + 2 * VF <= n; i += 2 * VF) {
        m0 = max_bits(m0, abs_bits(vf_load(x + i)));
        m1 = max_bits(m1, abs_bits(vf_load(x + i + VF)));
    }
    if (i + VF <= n) {
        m0 = max_bits(m0, abs_bits(vf_load(x + i)));
        i += VF;
    }
    if (i < n)
        m1 = max_bits(m1, abs_bits(vf_load_n(x + i, n - i)));
    vf_store(lanes, max_bits(m0, m1));
    for (i = 0; i < VF; i++)
        if (!(lanes[i] <= max)) /* a NaN enters, and stays */
            max = isnan(max) ? max : lanes[i];
    return max;
}

INLINE vf
clamped(vf x, float by)
{
    return vf_max(vf_min(x * vf_set1(by), vf_set1(127)), vf_set1(-127));
}

static void
quantize(int8_t *to, const float *x, float by, size_t n)
{
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        store_int8(to + i, clamped(vf_load(x + i), by));
    if (i < n) {
        int8_t last[8 > VF ? 8 : VF];

        store_int8(last, clamped(vf_load_n(x + i, n - i), by));
        memcpy(to + i, last, n - i);
    }
}

static void
rest(float *to, const float *x, const uint16_t *hi, size_t n)
{
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(to + i, vf_load(x + i) - vf_bf16(hi + i));
    if (i < n)
        vf_store_n(to + i, vf_load_n(x + i, n - i) - vf_bf16_n(hi + i, n - i),
                   n - i);
}

static void
sums(int32_t *sum, const int8_t *b, size_t k)
{
    for (size_t j = 0; j < 64; j += 4 * VF) {
        vf acc[4] = { vf_set1(0), vf_set1(0), vf_set1(0), vf_set1(0) };

        for (size_t c = 0; c < k; c += 4) {
            UNROLL
            for (size_t v = 0; v < 4; v++)
                acc[v] = sum_128(acc[v], b + c * 64 + 4 * (j + v * VF));
        }
        for (size_t v = 0; v < 4; v++)
            memcpy(sum + j + v * VF, &acc[v], sizeof(vf));
    }
}

#define GEMM_PACK_OPS                                                     \
    .transpose = transpose, .interleave = interleave, .rescale = rescale, \
    .absmax = absmax, .quantize = quantize, .rest = rest, .sums = sums
