/*
 * Template of sparse_ISA.c: SPARSE_OPS fills its table.
 *
 * Lanes are columns, so that no sum crosses them.  ROWS rows of the table are
 * read side by side, each a stream that lies anywhere: y is loaded and stored
 * once for all of them, and the first lines of the next ones are asked for.
 */
#include "core/kernel/ops.h"
#include "core/kernel/sparse.h"
#include "core/kernel/sparse_keys.h"
#include "core/kernel/weight_simd.h"

enum {
    ROWS = 8,
    LINE = 64,
    AHEAD = 8, /* lines of a row that the prefetcher is slow to ask for */
};

/* N rows from i on, added to 'n' of the columns from c on, at most VF. */
INLINE vf
add_rows(enum weight_type t, const char *const *w, const vf *v, const size_t N,
         size_t c, vf y, size_t n)
{
#pragma GCC unroll 8
    for (size_t k = 0; k < N; k++) {
        const char *from = w[k] + c * size_of(t);

        y = vf_fma(v[k], n == VF ? load_w(t, from) : load_w_n(t, from, n), y);
    }
    return y;
}

INLINE void
strip(const struct sparse *s, enum weight_type t, size_t i, const size_t N)
{
    const char *w[ROWS];
    size_t c = 0;
    vf v[ROWS];

#pragma GCC unroll 8
    for (size_t k = 0; k < N; k++) {
        w[k] = (const char *)s->w + s->idx[i + k] * s->ldw * size_of(t);
        v[k] = vf_set1(s->v[i + k]);
    }
    for (size_t k = i + N; k < s->n && k < i + N + ROWS; k++) {
        const char *next = (const char *)s->w + s->idx[k] * s->ldw * size_of(t);

        for (size_t b = 0; b < AHEAD * LINE && b < s->cols * size_of(t);
             b += LINE)
            __builtin_prefetch(next + b);
    }
    for (; c + 2 * VF <= s->cols; c += 2 * VF) {
        vf a = vf_load(s->y + c), b = vf_load(s->y + c + VF);

        a = add_rows(t, w, v, N, c, a, VF);
        b = add_rows(t, w, v, N, c + VF, b, VF);
        vf_store(s->y + c, a);
        vf_store(s->y + c + VF, b);
    }
    for (; c + VF <= s->cols; c += VF)
        vf_store(s->y + c, add_rows(t, w, v, N, c, vf_load(s->y + c), VF));
    if (c < s->cols) {
        size_t n = s->cols - c;

        vf_store_n(s->y + c, add_rows(t, w, v, N, c, vf_load_n(s->y + c, n), n),
                   n);
    }
}

INLINE void
kernel(const struct sparse *s, enum weight_type t)
{
    size_t i = 0;

    for (; i + ROWS <= s->n; i += ROWS)
        strip(s, t, i, ROWS);
    for (; i + 2 <= s->n; i += 2)
        strip(s, t, i, 2);
    if (i < s->n)
        strip(s, t, i, 1);
}

static void
bf16(const struct sparse *s)
{
    kernel(s, W_BF16);
}

static void
f16(const struct sparse *s)
{
    kernel(s, W_F16);
}

static void
f32(const struct sparse *s)
{
    kernel(s, W_F32);
}

static uint64_t
outside(const float *x, size_t n, float lo, float hi)
{
    const vf low = vf_set1(lo), high = vf_set1(hi);
    uint64_t bits = 0;
    size_t i = 0;

    if (n == 64) {
        UNROLL
        for (i = 0; i < 64; i += VF)
            bits |= (uint64_t)vf_outside(vf_load(x + i), low, high) << i;
        return bits;
    }
    for (; i + VF <= n; i += VF)
        bits |= (uint64_t)vf_outside(vf_load(x + i), low, high) << i;
    if (i < n)
        bits |= ((uint64_t)vf_outside(vf_load_n(x + i, n - i), low, high) &
                 ((1u << (n - i)) - 1))
                << i;
    return bits;
}

#if VF == 16
enum { KEYS = 8, FEW = 4 }; /* of a vector; to be done one by one */

/* All 8 are stored: whose last ones are none are written over. */
INLINE size_t
put_keys(uint64_t *to, __mmask8 m, __m512i v)
{
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi64(m, v));
    return (size_t)__builtin_popcount(m);
}

/* Few by themselves; else all eight of a block, without a branch. */
static size_t
keys(uint64_t *to, const float *x, uint64_t bits, uint32_t from)
{
    const __m512i low = _mm512_set1_epi64(UINT32_MAX);
    __m512i i = _mm512_add_epi64(_mm512_set1_epi64(from),
                                 _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    size_t n = 0;

    if (__builtin_popcountll(bits) <= FEW)
        return keys_each(to, x, bits, from);
    UNROLL
    for (size_t at = 0; at < 64; at += KEYS) {
        __mmask8 m = (__mmask8)(bits >> at);
        __m256i u = _mm256_castps_si256(_mm256_maskz_loadu_ps(m, x + at));
        __m512i v = _mm512_slli_epi64(_mm512_cvtepu32_epi64(u), 32);

        /* v | (low & ~i) */
        n += put_keys(to + n, m, _mm512_ternarylogic_epi64(v, low, i, 0xf4));
        i = _mm512_add_epi64(i, _mm512_set1_epi64(KEYS));
    }
    return n;
}

static size_t
over(const uint64_t *key, size_t n, uint64_t lo)
{
    const __m512i low = _mm512_set1_epi64((long long)lo);
    size_t n_over = 0, i = 0;
    __m512i v;

    for (; i + KEYS <= n; i += KEYS) {
        v = _mm512_loadu_si512(key + i);
        n_over += (size_t)__builtin_popcount(_mm512_cmpgt_epi64_mask(v, low));
    }
    v = _mm512_maskz_loadu_epi64((__mmask8)first(n - i), key + i);
    return n_over + (size_t)__builtin_popcount(_mm512_cmpgt_epi64_mask(v, low));
}

static size_t
between(uint64_t *to, const uint64_t *key, size_t n, uint64_t lo, uint64_t hi)
{
    const __m512i low = _mm512_set1_epi64((long long)lo);
    const __m512i high = _mm512_set1_epi64((long long)hi);
    size_t n_kept = 0, i = 0;
    __mmask8 m;
    __m512i v;

    for (; i + KEYS <= n; i += KEYS) {
        v = _mm512_loadu_si512(key + i);
        m = _mm512_cmpgt_epi64_mask(v, low);
        n_kept +=
            put_keys(to + n_kept, _mm512_mask_cmplt_epi64_mask(m, v, high), v);
    }
    m = (__mmask8)first(n - i);
    v = _mm512_maskz_loadu_epi64(m, key + i);
    m = _mm512_mask_cmpgt_epi64_mask(m, v, low);
    m = _mm512_mask_cmplt_epi64_mask(m, v, high);
    i = (size_t)__builtin_popcount(m);
    _mm512_mask_storeu_epi64(to + n_kept, (__mmask8)first(i),
                             _mm512_maskz_compress_epi64(m, v));
    return n_kept + i;
}

#define SPARSE_KEYS .keys = keys, .over = over, .between = between
#else
#define SPARSE_KEYS \
    .keys = keys_each, .over = keys_over, .between = keys_between
#endif

#define SPARSE_OPS                                                            \
    {                                                                         \
        .bf16 = bf16, .f16 = f16, .f32 = f32, .outside = outside, SPARSE_KEYS \
    }
