/*
 * gemm by vectors: compiled for each instruction set that simd.h knows.
 *
 * The exact class sums as gemv_simd.c does: column c adds to lane c % VF of
 * its output's accumulator, vf_sum()'s order ends it with the part of k, and
 * the parts' sums are added in order.
 *
 * A tile is 4 rows of W by 6 of X (AVX2: 3): 24 accumulators, where an FMA's
 * latency of 4 cycles needs 8, and 10 loads for 24 FMAs.  The rows of X, 24 KiB
 * of a part, stay in the first cache while the 256 KiB of W come from the
 * second.  512 x 4096 x 1024 takes 1.35 times what FMAs alone would, or 1.12
 * times with all data in the first cache: the rest is W from the second,
 * widening it, and C.
 */
#include "core/kernel/simd.h"

enum { ROWS = 4 }; /* of w in a tile */

#if defined(__AVX2__) && VF == 8
enum { MAX_X = 3 }; /* 12 of 16 registers accumulate */
#else
enum { MAX_X = 6 }; /* 24 of 32 */
#endif

/* VF columns of a tile, or the last n of them; w's rows are 16 floats apart. */
INLINE void
exact_step(vf (*acc)[MAX_X], const float *w, const float *x, size_t ldx,
           const size_t X, size_t n)
{
    vf xv[MAX_X];

#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
        xv[i] = n == VF ? vf_load(x + i * ldx) : vf_load_n(x + i * ldx, n);
#pragma GCC unroll 8
    for (size_t r = 0; r < ROWS; r++) {
        vf wv = vf_load(w + 16 * r);

#pragma GCC unroll 8
        for (size_t i = 0; i < X; i++)
            acc[r][i] = vf_fma(wv, xv[i], acc[r][i]);
    }
}

/* ROWS rows of w from 'row' on by X of x from i0 on. */
INLINE void
exact_tile(const struct gemm_block *b, size_t row, size_t i0, const size_t X)
{
    const float *w = b->w + row * ((b->k + 15) / 16 * 16);
    const float *x = b->x + i0 * b->ldx, *end = x + b->k / 16 * 16;
    vf acc[ROWS][MAX_X];

#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
#pragma GCC unroll 8
        for (size_t r = 0; r < ROWS; r++)
            acc[r][i] = vf_set1(0);
    for (; x < end; x += 16, w += 64)
#pragma GCC unroll 4
        for (size_t j = 0; j < 16; j += VF)
            exact_step(acc, w + j, x + j, b->ldx, X, VF);
    for (size_t j = 0; j < b->k % 16; j += VF)
        exact_step(acc, w + j, x + j, b->ldx, X,
                   b->k % 16 - j < VF ? b->k % 16 - j : VF);
#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++) {
        float *t = b->t + (i0 + i) * b->ldt + row, sum[ROWS];

        vf_sum4(b->add ? sum : t, acc[0][i], acc[1][i], acc[2][i], acc[3][i]);
        for (size_t r = 0; r < ROWS && b->add; r++)
            t[r] += sum[r];
    }
}

/* X rows of x, which stay in the first cache while all of w is read. */
INLINE void
exact_strip(const struct gemm_block *b, size_t i0, const size_t X)
{
    for (size_t row = 0; row < b->rows; row += ROWS)
        exact_tile(b, row, i0, X);
}

static void
exact(const struct gemm_block *b)
{
    size_t i = 0;

    for (; i + MAX_X <= b->m; i += MAX_X)
        exact_strip(b, i, MAX_X);
#define LAST(n)                                   \
    case n:                                       \
        exact_strip(b, i, (n) < MAX_X ? (n) : 1); \
        break;
    switch (b->m - i) {
        LAST(5)
        LAST(4)
        LAST(3)
        LAST(2)
        LAST(1)
    default:
        break;
    }
}

INLINE void
widen_as(float *to, const char *from, enum dtype t, size_t n)
{
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(to + i / 16 * 64 + i % 16,
                 vf_weights(t, from + i * weight_nbytes(t)));
    for (; i < n || i % 16; i += VF)
        vf_store(
            to + i / 16 * 64 + i % 16,
            vf_weights_n(t, from + i * weight_nbytes(t), i < n ? n - i : 0));
}

static void
widen(float *to, const void *from, enum dtype dtype, size_t n)
{
    if (dtype == DT_BF16)
        widen_as(to, from, DT_BF16, n);
    else if (dtype == DT_F16)
        widen_as(to, from, DT_F16, n);
    else
        widen_as(to, from, DT_F32, n);
}

/* ---- weights into panels, int8's scales ---- */

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

/* Bits of a positive float, and those of NaNs, grow as integers do. */
INLINE vf
max_bits(vf a, vf b)
{
    return _mm512_castsi512_ps(
        _mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
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
max_bits(vf a, vf b)
{
    return _mm256_castsi256_ps(
        _mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
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
max_bits(vf a, vf b)
{
    return vreinterpretq_f32_s32(
        vmaxq_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b)));
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
#endif

INLINE vf
vf_s32(const int32_t *p)
{
    vf bits = vf_load((const void *)p);

    return __builtin_convertvector((vs)bits, vf);
}

INLINE vf
abs_bits(vf a)
{
    return (vf)((vu)a & 0x7fffffffu);
}

/* Words of two bf16: the low halves from a, the high ones from b. */
INLINE vf
interleaved(const uint16_t *a, const uint16_t *b)
{
    return (vf)((vu)vf_bf16(a) >> 16 | (vu)vf_bf16(b));
}

/* Rows: those of the caller's weights are pages apart, which no hardware
 * prefetcher follows. */
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

/* Rows in the outer loop: a hardware prefetcher follows VF streams, not 64. */
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
        const float *w_scale, size_t m, size_t n, bool stream)
{
    for (size_t i = 0; i < m; i++, s += 64) {
        const vf x = vf_set1(x_scale[i]);
        float *row = c + i * ldc;
        size_t j = 0;

        if (stream)
            for (; j + VF <= n; j += VF)
                vf_stream(row + j, vf_s32(s + j) * x * vf_load(w_scale + j));
        for (; j + VF <= n; j += VF)
            vf_store(row + j, vf_s32(s + j) * x * vf_load(w_scale + j));
        for (; j < n; j++)
            row[j] = (float)s[j] * x_scale[i] * w_scale[j];
    }
    if (stream)
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
        if (!(lanes[i] <= max)) /* true for a NaN, which stays */
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

const struct gemm_ops TABLE(gemm) = {
    .exact = exact,
    .widen = widen,
    .transpose = transpose,
    .interleave = interleave,
    .rescale = rescale,
    .absmax = absmax,
    .quantize = quantize,
    .rest = rest,
    .sums = sums,
};
