/*
 * Template of mix_ISA.c: MIX_OPS fills its table.
 *
 * Lanes are columns, so that no sum crosses them; a tile of N rows of p by C
 * vectors of columns has N * C accumulators, enough to hide the latency of FMA.
 */
#include "core/kernel/mix.h"
#include "core/kernel/ops.h"
#include "core/kernel/weight_simd.h"

#if defined(__AVX2__) && VF == 8
enum { MAX_N = 6, MAX_C = 2 }; /* 12 of 16 registers accumulate */
#else
enum { MAX_N = 6, MAX_C = 4 }; /* 24 of 32 */
#endif

INLINE const char *
at(const struct mix *m, enum weight_type t, size_t r, size_t c)
{
    return (const char *)m->w + (r * m->ldw + c) * size_of(t);
}

/* C vectors of columns from c on, the last of 'n_last', for N rows from i. */
INLINE void
tile(const struct mix *m, enum weight_type t, size_t i, const size_t N,
     size_t c, const size_t C, size_t n_last)
{
    const float *p = m->p + i * m->ldp;
    float *y = m->y + i * m->ldy + c;
    vf acc[MAX_N][MAX_C], wv[MAX_C];

#pragma GCC unroll 8
    for (size_t k = 0; k < N; k++)
#pragma GCC unroll 8
        for (size_t v = 0; v < C; v++)
            acc[k][v] = !m->add ? vf_set1(0)
                        : n_last == VF
                            ? vf_load(y + k * m->ldy + v * VF)
                            : vf_load_n(y + k * m->ldy + v * VF, n_last);
    for (size_t r = 0; r < m->rows; r++) {
#pragma GCC unroll 8
        for (size_t v = 0; v < C; v++) {
            const char *w = at(m, t, r, c + v * VF);

            wv[v] = n_last == VF ? load_w(t, w) : load_w_n(t, w, n_last);
        }
#pragma GCC unroll 8
        for (size_t k = 0; k < N; k++) {
            vf pv = vf_set1(p[k * m->ldp + r]);

#pragma GCC unroll 8
            for (size_t v = 0; v < C; v++)
                acc[k][v] = vf_fma(pv, wv[v], acc[k][v]);
        }
    }
#pragma GCC unroll 8
    for (size_t k = 0; k < N; k++)
#pragma GCC unroll 8
        for (size_t v = 0; v < C; v++)
            if (n_last == VF)
                vf_store(y + k * m->ldy + v * VF, acc[k][v]);
            else
                vf_store_n(y + k * m->ldy + v * VF, acc[k][v], n_last);
}

/* All columns for N rows of p. */
INLINE void
strip(const struct mix *m, enum weight_type t, size_t i, const size_t N)
{
    size_t c = 0;

    for (; c + MAX_C * VF <= m->cols; c += MAX_C * VF)
        tile(m, t, i, N, c, MAX_C, VF);
    for (; c + VF <= m->cols; c += VF)
        tile(m, t, i, N, c, 1, VF);
    if (c < m->cols)
        tile(m, t, i, N, c, 1, m->cols - c);
}

INLINE void
kernel(const struct mix *m, enum weight_type t)
{
    size_t i = 0;

    for (; i + MAX_N <= m->n; i += MAX_N)
        strip(m, t, i, MAX_N);
    if (i + 4 <= m->n) {
        strip(m, t, i, 4);
        i += 4;
    }
    if (i + 2 <= m->n) {
        strip(m, t, i, 2);
        i += 2;
    }
    if (i < m->n)
        strip(m, t, i, 1);
}

static void
bf16(const struct mix *m)
{
    kernel(m, W_BF16);
}

static void
f16(const struct mix *m)
{
    kernel(m, W_F16);
}

static void
f32(const struct mix *m)
{
    kernel(m, W_F32);
}

#define MIX_OPS                              \
    {                                        \
        .bf16 = bf16, .f16 = f16, .f32 = f32 \
    }
