/* SPDX-License-Identifier: ISC */
/*
 * gemm by vectors: compiled for each instruction set that simd.h knows.
 *
 * The exact class sums as gemv_simd.c does: column c adds to lane c % 8 of its
 * output, v8_sum4() ends the lanes with the part of k, and the parts' sums are
 * added in order.
 *
 * A tile is ROWS rows of W by MAX_X of X: 24 accumulators (AVX2: 12), where an
 * FMA's latency of 4 cycles needs 8, and 10 loads (AVX2: 7) for as many FMAs.
 * The rows of X, 24 KiB of a part (AVX2: 16), stay in the first cache while W
 * comes from the second.  The first rows of X meet W as it is in memory: it is
 * widened in their tiles, not in a pass of its own.
 */
#include "core/kernel/gemm_by_k_simd.h"
#include "core/kernel/lanes8.h"

/*
 * With AVX2, 3 rows of W that pass 4 of X take 96 bytes a step from the second
 * cache, 4 that pass 3 take 128: 5 % on a Zen 3, whose second cache gives 32
 * bytes a cycle.  There prefetching costs loads, of which 7 are enough already
 * (8 %), and a branch after each step 5 %.
 */
#if V8 == 2
enum { TILE_W = 4, MAX_X = 6, AHEAD_W = 256 }; /* floats, 1 KiB */
#define UNROLL_K
#else
enum { TILE_W = 3, MAX_X = 4, AHEAD_W = 0 };
#define UNROLL_K _Pragma("GCC unroll 4")
#endif

enum { ROWS = TILE_W * V8 }; /* of w in a tile, and in a group of the block */

/* A tile's sums, and where its next columns are. */
struct exact_tile {
    v8 acc[MAX_X][4];
    const float *x;
    float *w;
    const char *from[ROWS];
};

/* 8 columns from c on, or the last n of them. */
INLINE void
exact_step(struct exact_tile *to, size_t ldx, size_t c, const size_t X,
           const bool WIDEN, enum dtype t, size_t n)
{
    float *w = to->w + c * ROWS;
    v8 wv[TILE_W], xv;

#pragma GCC unroll 4
    for (size_t r = 0; r < TILE_W; r++, w += 8 * V8) {
        if (WIDEN) {
            const char *p = to->from[r * V8] + c * weight_nbytes(t);
            const char *q = to->from[r * V8 + V8 - 1] + c * weight_nbytes(t);

            wv[r] = n == 8 ? v8_weights(t, p, q) : v8_weights_n(t, p, q, n);
            v8_store(w, wv[r]);
        } else {
            wv[r] = v8_load(w);
            if (AHEAD_W)
                __builtin_prefetch(w + AHEAD_W);
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++) {
        xv =
            n == 8 ? v8_x(to->x + i * ldx + c) : v8_x_n(to->x + i * ldx + c, n);
#pragma GCC unroll 4
        for (size_t r = 0; r < TILE_W; r++)
            to->acc[i][r] = v8_fma(wv[r], xv, to->acc[i][r]);
    }
}

/*
 * ROWS rows of w from 'row' on by X of x from i0 on.  WIDEN: w comes from
 * b->from, of type t, and is left in the block; rows after the last are that
 * one again, and nobody reads their sums.
 */
INLINE void
exact_tile(const struct gemm_block *b, size_t row, size_t i0, const size_t X,
           const bool WIDEN, enum dtype t)
{
    struct exact_tile tile = { .x = b->x + i0 * b->ldx,
                               .w = b->w + row * ((b->k + 7) / 8 * 8) };
    const bool apart = b->add || TILE_W < 4;
    size_t c = 0;

    if (WIDEN)
#pragma GCC unroll 8
        for (size_t r = 0; r < ROWS; r++)
            tile.from[r] = (const char *)b->from +
                           (row + r < b->rows ? row + r : b->rows - 1) * b->ld;
#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++)
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++)
            tile.acc[i][r] = v8_zero();
    UNROLL_K
    for (; c + 8 <= b->k; c += 8)
        exact_step(&tile, b->ldx, c, X, WIDEN, t, 8);
    if (c < b->k)
        exact_step(&tile, b->ldx, c, X, WIDEN, t, b->k - c);
#pragma GCC unroll 8
    for (size_t i = 0; i < X; i++) {
        float *to = b->t + (i0 + i) * b->ldt + row, sum[4 * V8];

        v8_sum4(apart ? sum : to, tile.acc[i]);
#pragma GCC unroll 8
        for (size_t r = 0; r < ROWS && apart; r++)
            to[r] = b->add ? to[r] + sum[r] : sum[r];
    }
}

/* X rows of x, which stay in the first cache while all of w is read. */
INLINE void
exact_strip(const struct gemm_block *b, size_t i0, const size_t X,
            const bool WIDEN, enum dtype t)
{
    for (size_t row = 0; row < b->rows; row += ROWS)
        exact_tile(b, row, i0, X, WIDEN, t);
}

INLINE void
exact_first(const struct gemm_block *b, enum dtype t)
{
    if (b->m >= MAX_X)
        exact_strip(b, 0, MAX_X, true, t);
    else
        exact_strip(b, 0, 1, true, t);
}

static void
exact(const struct gemm_block *b)
{
    size_t i = 0;

    if (b->from) {
        BY_DTYPE(exact_first, b);
        i = b->m >= MAX_X ? MAX_X : 1;
    }
    for (; i + MAX_X <= b->m; i += MAX_X)
        exact_strip(b, i, MAX_X, false, DT_F32);
#define LAST(n)                                                  \
    case n:                                                      \
        exact_strip(b, i, (n) < MAX_X ? (n) : 1, false, DT_F32); \
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

/* Words of two bf16: the low halves from a, the high ones from b. */
INLINE vf
interleaved(const uint16_t *a, const uint16_t *b)
{
    return (vf)((vu)vf_bf16(a) >> 16 | (vu)vf_bf16(b));
}

/* Rows: those of the caller's weights are pages apart, which no hardware
 * prefetcher follows, and in a few sets of the first cache: they are brought
 * to the second. */
enum { AHEAD = 64 };

static void
interleave(uint32_t *to, const void *from, size_t ld, size_t cols, size_t n)
{
    const char *row = from;

    for (size_t i = 0; i < n; i++, row += 2 * ld, to += 64) {
        const uint16_t *a = (const void *)row, *b = (const void *)(row + ld);

        if (i + AHEAD / 2 < n) {
            const char *p = row + AHEAD * ld;

            __builtin_prefetch(p, 0, 2);
            __builtin_prefetch(p + 64, 0, 2);
            __builtin_prefetch(p + ld, 0, 2);
            __builtin_prefetch(p + ld + 64, 0, 2);
        }
        UNROLL
        for (size_t j = 0; j < cols; j += VF)
            vf_store((float *)(void *)(to + j), interleaved(a + j, b + j));
    }
}

/* Rows in the outer loop: a hardware prefetcher follows VF streams, not 64, and
 * is helped AHEAD_T bytes before it. */
#define AHEAD_T 1024

static void
transpose(uint32_t *to, const void *from, size_t ld, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r += VF) {
        const char *row = (const char *)from + r * ld;
        size_t i = 0;

        for (; i + VF <= n; i += VF) {
            for (size_t j = 0; j < VF && 4 * i % 64 == 0; j++)
                __builtin_prefetch(row + j * ld + 4 * i + AHEAD_T);
            transpose_block(to + i * 64 + r, row + 4 * i, ld);
        }
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

INLINE float
absmax_of(const char *x, size_t n, enum dtype dtype)
{
    const size_t step = VF * weight_nbytes(dtype);
    vf m0 = vf_set1(0), m1 = m0;
    float lanes[VF], max = 0;
    size_t i = 0;

    for (; i + 2 * VF <= n; i += 2 * VF, x += 2 * step) {
        m0 = max_bits(m0, vf_abs(vf_weights(dtype, x)));
        m1 = max_bits(m1, vf_abs(vf_weights(dtype, x + step)));
    }
    if (i + VF <= n) {
        m0 = max_bits(m0, vf_abs(vf_weights(dtype, x)));
        i += VF;
        x += step;
    }
    if (i < n)
        m1 = max_bits(m1, vf_abs(vf_weights_n(dtype, x, n - i)));
    vf_store(lanes, max_bits(m0, m1));
    for (i = 0; i < VF; i++)
        if (!(lanes[i] <= max)) /* true for a NaN, which stays */
            max = isnan(max) ? max : lanes[i];
    return max;
}

static float
absmax(const void *x, enum dtype dtype, size_t n)
{
    return dtype == DT_BF16 ? absmax_of(x, n, DT_BF16)
                            : absmax_of(x, n, DT_F32);
}

INLINE vf
clamped(vf x, float by)
{
    return vf_max(vf_min(x * vf_set1(by), vf_set1(127)), vf_set1(-127));
}

INLINE void
quantize_of(int8_t *to, const char *x, float by, size_t n, enum dtype dtype)
{
    const size_t size = weight_nbytes(dtype);
    size_t i = 0;

    for (; i + VF <= n; i += VF)
        store_int8(to + i, clamped(vf_weights(dtype, x + i * size), by));
    if (i < n) {
        int8_t last[8 > VF ? 8 : VF];

        store_int8(last, clamped(vf_weights_n(dtype, x + i * size, n - i), by));
        memcpy(to + i, last, n - i);
    }
}

static void
quantize(int8_t *to, const void *x, enum dtype dtype, float by, size_t n)
{
    if (dtype == DT_BF16)
        quantize_of(to, x, by, n, DT_BF16);
    else
        quantize_of(to, x, by, n, DT_F32);
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
    .group = ROWS,
    .exact_by_k = exact_by_k,
    .group_by_k = LANE_GROUP,
    .transpose = transpose,
    .interleave = interleave,
    .rescale = rescale,
    .absmax = absmax,
    .quantize = quantize,
    .rest = rest,
    .sums = sums,
};
