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

/* FP8's bits make a number that is smaller by this power of two: an F32, which
 * may be denormal, or by way of F16, which takes twice the operations. */
#if VF == 8
#define F8_UP 0x1p120f
#else
#define F8_UP 0x1p8f
#endif
#define F8_MOST (0x1p127f / F8_UP) /* scales are less */

/* What a block's codes meet, in each lane.  Of FP4 and, where V8 is 2, of
 * uint4, it is a table of all their numbers.  Fused, 'zero' is -zero * scale,
 * and one FMA makes an integer's number: see fits(). */
struct block8 {
    v8 scale, zero;
};

#if V8 == 2 || VF == 8
INLINE v8
scaled(v8 u, bool fuse, const struct block8 *b)
{
    if (fuse)
        return v8_fma(u, b->scale, b->zero);
    return (u - b->zero) * b->scale;
}
#endif

#if VF == 16
INLINE struct block8
block8(enum code_kind kind, bool fuse, struct code_block p, struct code_block q)
{
    const v8 u4 =
        _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const v8 f4 = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1,
                                 -1.5f, -2, -3, -4, -6);

    if (kind == CODE_U4 && fuse)
        return (struct block8){
            v8_fma(u4, vf_set1(p.scale), vf_set1(p.zero)),
            v8_fma(u4, vf_set1(q.scale), vf_set1(q.zero)),
        };
    if (kind == CODE_U4)
        return (struct block8){ (u4 - p.zero) * p.scale,
                                (u4 - q.zero) * q.scale };
    if (kind == CODE_F4)
        return (struct block8){ f4 * p.scale, f4 * q.scale };
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
line(v8 *w, enum code_kind kind, bool fuse, const uint8_t *p, const uint8_t *q,
     const struct block8 *b)
{
    if (kind == CODE_U4 || kind == CODE_F4) {
        line_of_halves(w, p, q, b);
        return;
    }
#pragma GCC unroll 4
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
            w[j] = scaled(_mm512_cvtepi32_ps(kind == CODE_I8
                                                 ? _mm512_cvtepi8_epi32(u)
                                                 : _mm512_cvtepu8_epi32(u)),
                          fuse, b);
    }
}
#elif VF == 8
INLINE struct block8
block8(enum code_kind kind, bool fuse, struct code_block p, struct code_block q)
{
    (void)fuse;
    (void)q;
    if (kind == CODE_F4)
        return (struct block8){
            _mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6) * p.scale, vf_set1(0)
        };
    return (struct block8){ vf_set1(p.scale), vf_set1(p.zero) };
}

INLINE v8
codes8(enum code_kind kind, bool fuse, const uint8_t *p, const struct block8 *b)
{
    __m256i u;

    if (kind == CODE_F8)
        return _mm256_castsi256_ps(_mm256_and_si256(
                   _mm256_slli_epi32(
                       _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)),
                       20),
                   _mm256_set1_epi32((int)0x87f00000))) *
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
    return scaled(_mm256_cvtepi32_ps(u), fuse, b);
}
#else
INLINE struct block8
block8(enum code_kind kind, bool fuse, struct code_block p, struct code_block q)
{
    (void)q;
    (void)kind;
    (void)fuse;
    return (struct block8){ { vf_set1(p.scale), vf_set1(p.scale) },
                            { vf_set1(p.zero), vf_set1(p.zero) } };
}

/* FP8 and FP4 by way of F16, whose upper half is all that FP4 needs. */
INLINE v8
codes8(enum code_kind kind, bool fuse, const uint8_t *p, const struct block8 *b)
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

        w = (v8){ vcvtq_f32_s32(vmovl_s16(vget_low_s16(i))),
                  vcvtq_f32_s32(vmovl_high_s16(i)) };
        if (fuse)
            return v8_fma(w, b->scale, b->zero);
        w = (v8){ w.lo - b->zero.lo, w.hi - b->zero.hi };
    }
    return (v8){ w.lo * b->scale.lo, w.hi * b->scale.hi };
}
#endif

#if VF < 16
INLINE void
line(v8 *w, enum code_kind kind, bool fuse, const uint8_t *p, const uint8_t *q,
     const struct block8 *b)
{
    const size_t nbytes = kind == CODE_U4 || kind == CODE_F4 ? 4 : 8;

    (void)q;
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++)
        w[j] = codes8(kind, fuse, p + j * nbytes, b);
}
#endif

/* FP8 has NaNs, which these conversions do not know: looks for them in LINE
 * codes more. */
#if VF == 4
typedef uint8x16_t nans;

INLINE nans
nans_add(nans seen, const uint8_t *p)
{
    const uint8x16_t m = vdupq_n_u8(127);

    return vmaxq_u8(seen, vmaxq_u8(vandq_u8(vld1q_u8(p), m),
                                   vandq_u8(vld1q_u8(p + 16), m)));
}

INLINE bool
nans_any(nans seen)
{
    return vmaxvq_u8(seen) == 127;
}
#else
typedef __m256i nans;

INLINE nans
nans_add(nans seen, const uint8_t *p)
{
    const __m256i m = _mm256_set1_epi8(127);
    __m256i u = _mm256_and_si256(_mm256_loadu_si256((const void *)p), m);

    return _mm256_or_si256(seen, _mm256_cmpeq_epi8(u, m));
}

INLINE bool
nans_any(nans seen)
{
    return _mm256_movemask_epi8(seen) != 0;
}
#endif

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

/* As code_some(), by lines, from an even column on, and if F8_UP times the
 * scale is a number. */
INLINE void
lines(float *to, enum code_kind kind, const uint8_t *row, size_t col, size_t n,
      struct code_block b)
{
    const bool halves = kind == CODE_U4 || kind == CODE_F4;
    const size_t nbytes = halves ? LINE / 2 : LINE;
    struct code_block f = { b.scale * (kind == CODE_F8 ? F8_UP : 1), b.zero };
    const struct block8 all = block8(kind, false, f, f);
    size_t done = 0;
    v8 w[4];

    if (halves && col % 2 && n > 0) {
        code_some(to, kind, row, col, 1, b);
        done = 1;
    }
    while (done + LINE <= n && (kind != CODE_F8 || fabsf(b.scale) < F8_MOST)) {
        const uint8_t *p = row + (col + done) * nbytes / LINE;
        size_t second = V8 == 2 && done + 2 * LINE <= n ? LINE : 0;

        line(w, kind, false, p, p + second * nbytes / LINE, &all);
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++)
            store(to + done + 8 * j, to + done + second + 8 * j, w[j]);
        if (kind == CODE_F8 &&
            nans_any(nans_add(nans_add((nans){ 0 }, p), p + second)))
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

/* ---- gemv ---- */

/*
 * As gemv_simd.c: a tile of rows, the heads of as many runs of rows, by X rows
 * of x; column c adds to lane c % 8.
 */
enum { MOST_X = 6, MOST_ROWS = 4, MOST_ACC = 12 };
enum { MOST_BLOCKS = EXACT_PART / LINE }; /* of a part of a row */
#define ROWS(X) (V8 == 2 || (X) == 1 ? 4 : 2)

struct code_place {
    const uint8_t *codes;
    size_t block; /* of its first column */
};

/* What the blocks of a part of a row are for lines. */
struct code_part {
    float scale[MOST_BLOCKS + VF], zero[MOST_BLOCKS + VF];
};

INLINE vu
bytes(const uint8_t *p, size_t n)
{
    uint8_t b[VF] = { 0 };
    vu u;

    if (n < VF) {
        memcpy(b, p, n);
        p = b;
    }
#if VF == 16
    u = (vu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
#elif VF == 8
    u = (vu)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
#else
    u = (vu){ p[0], p[1], p[2], p[3] };
#endif
    return u;
}

/* n <= VF scales from 'at' on; those of E8M0 that are denormal or NaN are 0,
 * or infinite. */
INLINE vf
scales(const struct weight_code *code, size_t at, size_t n, enum dtype dtype)
{
    const char *p = code->scale;

    if (dtype == DT_F8_E8M0)
        return (vf)(bytes((const uint8_t *)p + at, n) << 23);
    p += at * weight_nbytes(dtype);
    if (n == 1) /* the way by memory waits */
        return vf_set1(weight(p, dtype, 0));
    return n < VF ? vf_weights_n(dtype, p, n) : vf_weights(dtype, p);
}

/* Makes n blocks from 'at' on ready; false: lines cannot take all of them.
 * code * scale - zero * scale is rounded once where zero * scale is exact.  A
 * number that is -0 is 0 so: no sum shows it but one of nothing but -0. */
INLINE bool
ready_as(struct code_part *to, enum code_kind kind,
         const struct weight_code *code, size_t at, size_t n, enum dtype dtype)
{
    const bool is_int = kind <= CODE_U4;
    const vf most = vf_set1(is_int            ? 0x1p100f
                            : kind == CODE_F8 ? F8_MOST
                                              : 0x1p127f);
    const vf least = vf_set1(is_int                ? 0x1p-100f
                             : dtype == DT_F8_E8M0 ? 0x1p-126f
                                                   : 0);
    vf zero = vf_set1((float)code->zero_all);
    unsigned bad = 0;

    for (size_t i = 0; i < n; i += VF) {
        size_t some = smaller(n - i, VF);
        vf s = scales(code, at + i, some, dtype);

        bad |= vf_outside(vf_abs(s), least, most) & ((1u << some) - 1);
        if (is_int && code->zero) {
            vs z = (vs)bytes(code->zero + at + i, some);

            zero = __builtin_convertvector(z - (kind == CODE_I8 ? 128 : 0), vf);
        }
        vf_store(to->scale + i, s * vf_set1(kind == CODE_F8 ? F8_UP : 1));
        if (is_int)
            vf_store(to->zero + i, -zero * s);
    }
    return !bad;
}

INLINE bool
ready(struct code_part *to, enum code_kind kind, const struct weight_code *code,
      size_t at, size_t n)
{
    return code->scale_dtype == DT_BF16
               ? ready_as(to, kind, code, at, n, DT_BF16)
           : code->scale_dtype == DT_F16
               ? ready_as(to, kind, code, at, n, DT_F16)
           : code->scale_dtype == DT_F32
               ? ready_as(to, kind, code, at, n, DT_F32)
               : ready_as(to, kind, code, at, n, DT_F8_E8M0);
}

#define READY(KIND)                                                      \
    static __attribute__((noinline)) bool ready_##KIND(                  \
        struct code_part *to, const struct weight_code *code, size_t at, \
        size_t n)                                                        \
    {                                                                    \
        return ready(to, CODE_##KIND, code, at, n);                      \
    }
READY(I8)
READY(U8)
READY(U4)
READY(F8)
READY(F4)

/* Up to LINE columns of a block by way of memory: where lines do not do. */
static __attribute__((noinline)) void
add_few(v8 *acc, const struct code_gemv *a, const struct code_place *row,
        const float *x, size_t c, size_t n, size_t R, size_t X)
{
    const struct weight_code *code = a->w->code;
    float w[MOST_ROWS][LINE];

    memset(w, 0, sizeof(w));
    for (size_t r = 0; r < R; r++) {
        struct code_block b = code_block(code, row[r].block + c / code->cols);

#define FEW(kind) code_some(w[r], kind, row[r].codes, c, n, b)
        BY_CODE(code->kind, FEW);
#undef FEW
    }
    for (size_t j = 0; j < n; j += 8)
        for (size_t i = 0; i < X; i++) {
            const float *p = x + i * a->ldx + c + j;
            v8 xv = n - j < 8 ? v8_x_n(p, n - j) : v8_x(p), *to = acc;

            for (size_t r = 0; r < R; r += V8, to++)
                to[i * R / V8] =
                    v8_fma(v8_weights(DT_F32, w[r] + j, w[r + V8 - 1] + j), xv,
                           to[i * R / V8]);
        }
}

INLINE struct code_block
code_of(const struct code_part *part, size_t i)
{
    return (struct code_block){ part->scale[i], part->zero[i] };
}

/* Lines of columns c to end - 1 of block i; returns where it stopped. */
INLINE size_t
add_lines(v8 *acc, const struct code_gemv *a, enum code_kind kind,
          const struct code_place *row, const struct code_part *b, size_t i,
          const float *x, size_t c, size_t end, nans *seen, const size_t R,
          const size_t X)
{
    enum { G = V8 }; /* registers of which a line is made at once */
    const size_t nbytes = kind == CODE_U4 || kind == CODE_F4 ? LINE / 2 : LINE;
    const bool fuse = kind <= CODE_U4;
    const bool by_columns = VF < 16 && (kind >= CODE_U4 || X > 1);
    struct block8 b8[MOST_ROWS];

    UNROLL
    for (size_t r = 0; r < R; r += V8)
        b8[r / V8] =
            block8(kind, fuse, code_of(&b[r], i), code_of(&b[r + V8 - 1], i));
    for (; c + LINE <= end; c += LINE) {
        size_t from = c / LINE * nbytes;

        UNROLL
        for (size_t r = 0; r < R; r++)
            __builtin_prefetch(row[r].codes + from + a->ahead);
        UNROLL
        for (size_t r = 0; r < R && kind == CODE_F8; r++)
            *seen = nans_add(*seen, row[r].codes + from);
#if VF < 16
        /* rows inside of columns: the sums of one wait for each other; bytes
         * are quick enough without.  Numbers first, as x may be from memory */
        UNROLL
        for (size_t j = 0; j < 4 && by_columns; j++) {
            v8 u[MOST_ROWS];

            UNROLL
            for (size_t r = 0; r < R; r++)
                u[r] = codes8(kind, fuse, row[r].codes + from + j * nbytes / 4,
                              &b8[r]);
            UNROLL
            for (size_t k = 0; k < X; k++) {
                v8 xv = v8_x(x + k * a->ldx + c + 8 * j);

                UNROLL
                for (size_t r = 0; r < R; r++)
                    acc[k * R + r] = v8_fma(u[r], xv, acc[k * R + r]);
            }
        }
#endif
        UNROLL
        for (size_t r = 0; r < R / V8 && !by_columns; r += G) {
            v8 w[G][4];

            UNROLL
            for (size_t g = 0; g < G; g++)
                line(w[g], kind, fuse, row[(r + g) * V8].codes + from,
                     row[(r + g) * V8 + V8 - 1].codes + from, &b8[r + g]);
            UNROLL
            for (size_t j = 0; j < 4; j++)
                UNROLL
            for (size_t k = 0; k < X; k++) {
                v8 xv = v8_x(x + k * a->ldx + c + 8 * j);
                v8 *to = acc + k * R / V8 + r;

                UNROLL
                for (size_t g = 0; g < G; g++)
                    to[g] = v8_fma(w[g][j], xv, to[g]);
            }
        }
    }
    return c;
}

static __attribute__((noinline)) bool
row_has_nan(const uint8_t *p, size_t n)
{
    bool found = false;

    for (size_t c = 0; c < n; c++)
        found |= (p[c] & 127) == 127;
    return found;
}

INLINE void
tile(const struct code_gemv *a, enum code_kind kind, size_t first, size_t step,
     const float *x, float *y, __typeof__(ready_I8) find, const size_t R,
     const size_t X)
{
    const struct weight_code *code = a->w->code;
    struct code_part b[MOST_ROWS];
    struct code_place row[MOST_ROWS];
    float sum[MOST_ACC * V8];
    v8 acc[MOST_ACC], few[MOST_ACC];
    nans seen = { 0 };

    UNROLL
    for (size_t r = 0; r < R; r++) {
        size_t at = a->row + smaller(first + r * step, a->rows - 1);

        row[r].codes = weight_at(a->w, at, 0);
        row[r].block =
            (a->w->row + at) / code->rows * code->ld + a->w->col / code->cols;
    }
    for (size_t c = 0, stop; c < a->cols;) {
        size_t begin = c, at = c / code->cols;
        bool good = true;

        stop = smaller(c + EXACT_PART, a->cols);
        UNROLL
        for (size_t r = 0; r < R; r++)
            good &= find(&b[r], code, row[r].block + at,
                         (stop - 1) / code->cols - at + 1);
        UNROLL
        for (size_t i = 0; i < MOST_ACC; i++)
            acc[i] = v8_zero();
        for (size_t i = 0; c < stop;) {
            size_t end = smaller((at + i + 1) * code->cols, stop);

            if (good)
                c = add_lines(acc, a, kind, row, b, i, x, c, end, &seen, R, X);
            if (c < end) {
                size_t n = smaller(end - c, LINE);

                memcpy(few, acc, sizeof(few));
                add_few(few, a, row, x, c, n, R, X);
                memcpy(acc, few, sizeof(few));
                c += n;
            }
            i += c == end;
        }
        UNROLL
        for (size_t i = 0; i < R * X / V8; i += 4)
            v8_sum4(sum + i * V8, acc + i);
        for (size_t i = 0; i < X; i++)
            for (size_t r = 0; r < R && first + r * step < a->rows; r++) {
                float *to = y + i * a->ldy + first + r * step;

                *to = begin > 0 ? *to + sum[i * R + r] : sum[i * R + r];
            }
    }
    /* which lines take for 480 */
    for (size_t r = 0; kind == CODE_F8 && nans_any(seen) && r < R &&
                       first + r * step < a->rows;
         r++)
        if (row_has_nan(row[r].codes, a->cols))
            for (size_t i = 0; i < X; i++)
                y[i * a->ldy + first + r * step] = NAN;
}

/* All rows, for X of the x. */
#define STRIP(KIND, X)                                                        \
    static __attribute__((noinline)) void strip_##KIND##_##X(                 \
        const struct code_gemv *a)                                            \
    {                                                                         \
        const size_t n = (a->rows + ROWS(X) - 1) / ROWS(X);                   \
                                                                              \
        for (size_t r = 0; r < n; r++)                                        \
            tile(a, CODE_##KIND, r, n, a->x, a->y, ready_##KIND, ROWS(X), X); \
    }
#define STRIPS(KIND) \
    STRIP(KIND, 1)   \
    STRIP(KIND, 2) STRIP(KIND, 3) STRIP(KIND, 4) STRIP(KIND, 5) STRIP(KIND, 6)
STRIPS(I8)
STRIPS(U8)
STRIPS(U4)
STRIPS(F8)
STRIPS(F4)
#define NAMES(KIND)                                              \
    {                                                            \
        strip_##KIND##_1, strip_##KIND##_2, strip_##KIND##_3,    \
            strip_##KIND##_4, strip_##KIND##_5, strip_##KIND##_6 \
    }

static bool
gemv(const struct code_gemv *a)
{
    static void (*const strips[][6])(
        const struct code_gemv *a) = { [CODE_I8] = NAMES(I8),
                                       [CODE_U8] = NAMES(U8),
                                       [CODE_U4] = NAMES(U4),
                                       [CODE_F8] = NAMES(F8),
                                       [CODE_F4] = NAMES(F4) };
    const struct weight_code *c = a->w->code;
    bool whole = c->cols % LINE == 0 || c->cols >= a->cols;
    bool exact = c->kind > CODE_U4 || c->scale_dtype != DT_F32 ||
                 (!c->zero && (c->zero_all & (c->zero_all - 1)) == 0);

    if (c->block || !whole || !exact || a->w->col % c->cols || a->cols == 0 ||
        a->n_x > MOST_X)
        return false;
    strips[c->kind][a->n_x - 1](a);
    return true;
}

const struct code_ops TABLE(code) = { .read = read_codes, .gemv = gemv };
