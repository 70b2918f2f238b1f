/* SPDX-License-Identifier: ISC */
/*
 * Codes by vectors: compiled for each instruction set that simd.h knows.
 *
 * A v8 has 8 columns of one row or, where V8 is 2, of two, p and q; each
 * becomes (code - zero) * scale, rounded once, in the register.
 */
#include "core/kernel/code.h"
#include "core/kernel/lanes8.h"
#include "core/le.h"

enum { LINE = 32 /* columns */ };

/* What a block's codes meet, in each lane.  Of FP4 and, where V8 is 2, of
 * uint4, it is a table of all their numbers. */
struct block8 {
    v8 scale, zero;
};

#if VF == 16
INLINE struct block8
block8(enum code_kind kind, struct code_block p, struct code_block q)
{
    const v8 u4 =
        _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const v8 f4 = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1,
                                 -1.5f, -2, -3, -4, -6);

    if (kind == CODE_U4)
        return (struct block8){ (u4 - p.zero) * p.scale,
                                (u4 - q.zero) * q.scale };
    if (kind == CODE_F4)
        return (struct block8){ f4 * p.scale, f4 * q.scale };
    if (kind == CODE_F8)
        p.scale *= 0x1p8f, q.scale *= 0x1p8f;
    return (struct block8){
        _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(p.scale),
                             _mm512_set1_ps(q.scale)),
        _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(p.zero),
                             _mm512_set1_ps(q.zero)),
    };
}

/* Tables are looked up by 5 bits: those of q have the fifth.  Dword l of a
 * row's 16 bytes gets byte l / 2 of each 4, then its half of it. */
INLINE void
line_of_halves(v8 *w, const uint8_t *p, const uint8_t *q,
               const struct block8 *b)
{
    const __m512i order = _mm512_setr_epi32(
        0x0c080400, 0x0c080400, 0x0d090501, 0x0d090501, 0x0e0a0602, 0x0e0a0602,
        0x0f0b0703, 0x0f0b0703, 0x0c080400, 0x0c080400, 0x0d090501, 0x0d090501,
        0x0e0a0602, 0x0e0a0602, 0x0f0b0703, 0x0f0b0703);
    const __m512i half =
        _mm512_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
    const __m512i second =
        _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi8(16), 1);
    __m512i both = _mm512_mask_broadcast_i32x4(
        _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p)), 0xff00,
        _mm_loadu_si128((const void *)q));
    __m512i i = _mm512_srlv_epi32(_mm512_shuffle_epi8(both, order), half);

    i = _mm512_ternarylogic_epi32(i, _mm512_set1_epi8(15), second, 0xea);
    w[0] = _mm512_permutex2var_ps(b->scale, i, b->zero);
    w[1] = _mm512_permutex2var_ps(b->scale, _mm512_srli_epi32(i, 8), b->zero);
    w[2] = _mm512_permutex2var_ps(b->scale, _mm512_srli_epi32(i, 16), b->zero);
    w[3] = _mm512_permutex2var_ps(b->scale, _mm512_srli_epi32(i, 24), b->zero);
}

/* LINE columns: columns 8 j to 8 j + 7 are w[j]. */
INLINE void
line(v8 *w, enum code_kind kind, const uint8_t *p, const uint8_t *q,
     const struct block8 *b)
{
    if (kind == CODE_U4 || kind == CODE_F4) {
        line_of_halves(w, p, q, b);
        return;
    }
    for (int j = 0; j < 4; j++) {
        __m128i u =
            _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)(p + 8 * j)),
                               _mm_loadl_epi64((const void *)(q + 8 * j)));

        if (kind == CODE_F8)
            w[j] = _mm512_cvtph_ps(_mm256_and_si256(
                       _mm256_slli_epi16(_mm256_cvtepi8_epi16(u), 7),
                       _mm256_set1_epi16((short)0xbfff))) *
                   b->scale;
        else
            w[j] =
                (_mm512_cvtepi32_ps(kind == CODE_I8 ? _mm512_cvtepi8_epi32(u)
                                                    : _mm512_cvtepu8_epi32(u)) -
                 b->zero) *
                b->scale;
    }
}
#elif VF == 8
INLINE struct block8
block8(enum code_kind kind, struct code_block p, struct code_block q)
{
    (void)q;
    if (kind == CODE_F4)
        return (struct block8){
            _mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6) * p.scale, vf_set1(0)
        };
    if (kind == CODE_F8)
        p.scale *= 0x1p8f;
    return (struct block8){ vf_set1(p.scale), vf_set1(p.zero) };
}

INLINE v8
codes8(enum code_kind kind, const uint8_t *p, const struct block8 *b)
{
    __m256i u;

    if (kind == CODE_F8)
        return _mm256_cvtph_ps(_mm_and_si128(
                   _mm_slli_epi16(
                       _mm_cvtepi8_epi16(_mm_loadl_epi64((const void *)p)), 7),
                   _mm_set1_epi16((short)0xbfff))) *
               b->scale;
    if (kind == CODE_U4 || kind == CODE_F4)
        u = _mm256_srlv_epi32(_mm256_set1_epi32((int)le32(p)),
                              _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    if (kind == CODE_F4)
        return _mm256_xor_ps(
            _mm256_permutevar8x32_ps(b->scale, u),
            _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(u, 28)),
                          vf_set1(-0.f)));
    if (kind == CODE_U4)
        u = _mm256_and_si256(u, _mm256_set1_epi32(15));
    else if (kind == CODE_I8)
        u = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));
    else
        u = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
    return (_mm256_cvtepi32_ps(u) - b->zero) * b->scale;
}
#else
INLINE struct block8
block8(enum code_kind kind, struct code_block p, struct code_block q)
{
    (void)q;
    if (kind == CODE_F8)
        p.scale *= 0x1p8f;
    return (struct block8){ { vf_set1(p.scale), vf_set1(p.scale) },
                            { vf_set1(p.zero), vf_set1(p.zero) } };
}

/* FP8 and FP4 by way of F16, whose upper half is all that FP4 needs. */
INLINE v8
codes8(enum code_kind kind, const uint8_t *p, const struct block8 *b)
{
    const uint8x16_t f4 = { 0,    0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46,
                            0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4, 0xc6 };
    uint8x8_t u;
    v8 w;

    if (kind == CODE_U4 || kind == CODE_F4) {
        u = vcreate_u8(le32(p));
        u = vzip1_u8(vand_u8(u, vdup_n_u8(15)), vshr_n_u8(u, 4));
    } else {
        u = vld1_u8(p);
    }
    if (kind == CODE_F8 || kind == CODE_F4) {
        uint16x8_t h =
            kind == CODE_F4
                ? vshll_n_u8(vqtbl1_u8(f4, u), 8)
                : vandq_u16(vshlq_n_u16(vreinterpretq_u16_s16(
                                            vmovl_s8(vreinterpret_s8_u8(u))),
                                        7),
                            vdupq_n_u16(0xbfff));
        float16x8_t f = vreinterpretq_f16_u16(h);

        w = (v8){ vcvt_f32_f16(vget_low_f16(f)),
                  vcvt_f32_f16(vget_high_f16(f)) };
    } else {
        int16x8_t i = kind == CODE_I8 ? vmovl_s8(vreinterpret_s8_u8(u))
                                      : vreinterpretq_s16_u16(vmovl_u8(u));

        w = (v8){ vcvtq_f32_s32(vmovl_s16(vget_low_s16(i))) - b->zero.lo,
                  vcvtq_f32_s32(vmovl_high_s16(i)) - b->zero.hi };
    }
    return (v8){ w.lo * b->scale.lo, w.hi * b->scale.hi };
}
#endif

#if VF < 16
INLINE void
line(v8 *w, enum code_kind kind, const uint8_t *p, const uint8_t *q,
     const struct block8 *b)
{
    const size_t nbytes = kind == CODE_U4 || kind == CODE_F4 ? 4 : 8;

    (void)q;
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++)
        w[j] = codes8(kind, p + j * nbytes, b);
}
#endif

/* FP8 has NaNs, which these conversions do not know. */
INLINE bool
has_nan(const uint8_t *p)
{
#if VF == 4
    const uint8x16_t m = vdupq_n_u8(127);

    return vmaxvq_u8(vmaxq_u8(vandq_u8(vld1q_u8(p), m),
                              vandq_u8(vld1q_u8(p + 16), m))) == 127;
#else
    const __m256i m = _mm256_set1_epi8(127);
    __m256i u = _mm256_and_si256(_mm256_loadu_si256((const void *)p), m);

    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(u, m)) != 0;
#endif
}

INLINE void
store(float *p, float *q, v8 v)
{
#if V8 == 2
    _mm256_storeu_ps(p, _mm512_castps512_ps256(v));
    _mm256_storeu_ps(q, _mm512_extractf32x8_ps(v, 1));
#elif VF == 8
    (void)q;
    vf_store(p, v);
#else
    (void)q;
    vf_store(p, v.lo);
    vf_store(p + 4, v.hi);
#endif
}

/* As code_some(), by lines, from an even column on, and if 2^8 times the scale
 * is a number. */
INLINE void
lines(float *to, enum code_kind kind, const uint8_t *row, size_t col, size_t n,
      struct code_block b)
{
    const bool halves = kind == CODE_U4 || kind == CODE_F4;
    const size_t nbytes = halves ? LINE / 2 : LINE;
    const struct block8 all = block8(kind, b, b);
    size_t done = 0;
    v8 w[4];

    if (halves && col % 2 && n > 0) {
        code_some(to, kind, row, col, 1, b);
        done = 1;
    }
    while (done + LINE <= n && b.scale < 0x1p119f) {
        const uint8_t *p = row + (col + done) * nbytes / LINE;
        size_t second = V8 == 2 && done + 2 * LINE <= n ? LINE : 0;

        line(w, kind, p, p + second * nbytes / LINE, &all);
        for (size_t j = 0; j < 4; j++)
            store(to + done + 8 * j, to + done + second + 8 * j, w[j]);
        if (kind == CODE_F8 && (has_nan(p) || has_nan(p + second)))
            code_some(to + done, kind, row, col + done, LINE + second, b);
        done += LINE + second;
    }
    code_some(to + done, kind, row, col + done, n - done, b);
}

static void
read_codes(float *to, const struct weight *w, size_t row, size_t col, size_t n)
{
#define READ(kind) code_row(to, w, row, col, n, kind, lines)
    BY_CODE(w->code->kind, READ);
#undef READ
}

const struct code_ops TABLE(code) = { .read = read_codes };
