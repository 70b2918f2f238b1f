/* SPDX-License-Identifier: ISC */
/*
 * sums by vectors: compiled for each instruction set that simd.h knows.
 *
 * Lanes are columns, so that no sum crosses them.  A tile of a dense sum, N
 * rows of p by C vectors of columns, has N * C accumulators: at least the 8
 * that hide an FMA's latency (4 cycles, two at once).  A sparse sum reads ROWS
 * rows of the table side by side, each a stream of its own: y is loaded
 * and stored once for all of them, and the first lines of the next ones are
 * prefetched.
 */
#include "core/kernel/sums.h"

#include "core/kernel/keys.h"
#include "core/kernel/simd.h"

/* ---- dense ---- */

#if defined(__AVX2__) && VF == 8
enum { TILE_N = 3, TILE_C = 4, WIDE_C = 4 }; /* 12 of 16 accumulate */
#else
enum { TILE_N = 6, TILE_C = 4, WIDE_C = 8 }; /* 24 of 32 */
#endif

/* Of a wide w, rows from what is read to what is prefetched: 100 ns of 12
 * cycles.  'next' is prefetched as fast as w is read, so that memory is never
 * idle: the columns of a narrow w take several passes, all but the first of
 * which find it in a cache.  With many rows of p each tile prefetches its part
 * of 'next', as the first ones would wait for all of it: 64 rows are 1.1 to 1.2
 * times as fast by it, 8 slower (Zen 3). */
enum { AHEAD_ROWS = 24, WIDE_ROW = 256 /* columns */, MANY_P = 32 };

INLINE void
fetch(const char *w, size_t nbytes)
{
    for (size_t b = 0; b < nbytes; b += 64)
        __builtin_prefetch(w + b);
}

/* C vectors of columns from c on, the last of 'n_last', for N rows from i. */
INLINE void
tile(const struct weighted_sum *s, enum dtype t, size_t i, const size_t N,
     size_t c, const size_t C, size_t n_last)
{
    const float *p = s->p + i * s->ldp;
    float *y = s->y + i * s->ldy + c;
    const size_t size = weight_nbytes(t), piece = C * VF * size;
    const char *w = (const char *)s->w + c * size, *ahead = s->next;
    const size_t step = s->ldw * size, ahead_step = ahead ? piece : step;
    const bool spread = ahead && s->n >= MANY_P;
    const bool fetches = !spread && i == 0 && (ahead || s->cols > WIDE_ROW);
    vf acc[TILE_N][WIDE_C], pv[TILE_N];

#pragma GCC unroll 8
    for (size_t k = 0; k < N; k++)
#pragma GCC unroll 8
        for (size_t v = 0; v < C; v++)
            acc[k][v] = !s->add ? vf_set1(0)
                        : n_last == VF
                            ? vf_load(y + k * s->ldy + v * VF)
                            : vf_load_n(y + k * s->ldy + v * VF, n_last);
    ahead = ahead ? ahead + c * s->rows * size : w + AHEAD_ROWS * step;
    if (spread) {
        const size_t lines = s->rows * piece / 64;

        for (size_t b = lines * i / s->n; b < lines * (i + N) / s->n; b++)
            __builtin_prefetch(ahead + 64 * b);
    }
    for (size_t r = 0; r < s->rows; r++, w += step) {
        if (fetches) {
            fetch(ahead, piece);
            ahead += ahead_step;
        }
#pragma GCC unroll 8
        for (size_t k = 0; k < N; k++)
            pv[k] = vf_set1(p[k * s->ldp + r]);
#pragma GCC unroll 8
        for (size_t v = 0; v < C; v++) {
            const char *at = w + v * VF * size;
            vf wv =
                n_last == VF ? vf_weights(t, at) : vf_weights_n(t, at, n_last);

#pragma GCC unroll 8
            for (size_t k = 0; k < N; k++)
                acc[k][v] = vf_fma(pv[k], wv, acc[k][v]);
        }
    }
#pragma GCC unroll 8
    for (size_t k = 0; k < N; k++)
#pragma GCC unroll 8
        for (size_t v = 0; v < C; v++)
            if (n_last == VF)
                vf_store(y + k * s->ldy + v * VF, acc[k][v]);
            else
                vf_store_n(y + k * s->ldy + v * VF, acc[k][v], n_last);
}

/* C vectors of columns for the rows of p from i to 'end'. */
INLINE void
columns(const struct weighted_sum *s, enum dtype t, size_t i, size_t end,
        size_t c, const size_t C, size_t n_last)
{
    for (; i + TILE_N <= end; i += TILE_N)
        tile(s, t, i, TILE_N, c, C, n_last);
    if (TILE_N > 4 && i + 4 <= end) {
        tile(s, t, i, 4, c, C, n_last);
        i += 4;
    }
    if (i + 2 <= end) {
        tile(s, t, i, 2, c, C, n_last);
        i += 2;
    }
    if (i < end)
        tile(s, t, i, 1, c, C, n_last);
}

/*
 * For one or two rows of p reading w is all of the work, and wider pieces of
 * its rows are read faster.  A long w that comes from memory is read once for
 * all rows of p, some columns after the other, which stay in the first cache.
 */
INLINE void
weighted_by(const struct weighted_sum *s, enum dtype t)
{
    const size_t step = s->next ? s->n : TILE_N;

    for (size_t i = 0; i < s->n; i += step) {
        size_t end = smaller(i + step, s->n), c = 0;

        for (; end - i == 2 && c + WIDE_C * VF <= s->cols; c += WIDE_C * VF)
            tile(s, t, i, 2, c, WIDE_C, VF);
        for (; end - i == 1 && c + WIDE_C * VF <= s->cols; c += WIDE_C * VF)
            tile(s, t, i, 1, c, WIDE_C, VF);
        for (; c + TILE_C * VF <= s->cols; c += TILE_C * VF)
            columns(s, t, i, end, c, TILE_C, VF);
        for (; c + VF <= s->cols; c += VF)
            columns(s, t, i, end, c, 1, VF);
        if (c < s->cols)
            columns(s, t, i, end, c, 1, s->cols - c);
    }
}

static void
weighted(const struct weighted_sum *s)
{
    BY_DTYPE(weighted_by, s);
}

/* ---- sparse ---- */

enum {
    ROWS = 8,
    LINE = 64,
    AHEAD = 8, /* lines of a row that the prefetcher is slow to ask for */
};

/* N rows from i on, added to 'n' of the columns from c on, at most VF. */
INLINE vf
add_rows(enum dtype t, const char *const *w, const vf *v, const size_t N,
         size_t c, vf y, size_t n)
{
#pragma GCC unroll 8
    for (size_t k = 0; k < N; k++) {
        const char *from = w[k] + c * weight_nbytes(t);

        y = vf_fma(v[k],
                   n == VF ? vf_weights(t, from) : vf_weights_n(t, from, n), y);
    }
    return y;
}

INLINE void
add_strip(const struct sparse_sum *s, enum dtype t, size_t i, const size_t N)
{
    const char *w[ROWS];
    size_t c = 0;
    vf v[ROWS];

#pragma GCC unroll 8
    for (size_t k = 0; k < N; k++) {
        w[k] = (const char *)s->w + s->idx[i + k] * s->ldw * weight_nbytes(t);
        v[k] = vf_set1(s->v[i + k]);
    }
    for (size_t k = i + N; k < s->n && k < i + N + ROWS; k++) {
        const char *next =
            (const char *)s->w + s->idx[k] * s->ldw * weight_nbytes(t);

        for (size_t b = 0; b < AHEAD * LINE && b < s->cols * weight_nbytes(t);
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
sparse_by(const struct sparse_sum *s, enum dtype t)
{
    size_t i = 0;

    for (; i + ROWS <= s->n; i += ROWS)
        add_strip(s, t, i, ROWS);
    for (; i + 2 <= s->n; i += 2)
        add_strip(s, t, i, 2);
    if (i < s->n)
        add_strip(s, t, i, 1);
}

static void
sparse(const struct sparse_sum *s)
{
    BY_DTYPE(sparse_by, s);
}

/* ---- top-k ---- */

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

#endif

const struct sums_ops TABLE(sums) = {
    .weighted = weighted,
    .sparse = sparse,
    .outside = outside,
#if VF == 16
    .keys = keys,
    .over = over,
    .between = between,
#else
    .keys = keys_each,
    .over = keys_over,
    .between = keys_between,
#endif
};
