/* SPDX-License-Identifier: ISC */
/* Rows of W and x that screening's bound and its tests must stand. */
#ifndef TEST_UNIT_SCREEN_SET_H
#define TEST_UNIT_SCREEN_SET_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/ops.h"
#include "core/le.h"
#include "test/unit/isa.h"

enum { MAX_N = 700, M = 64 };

/* About normal: the sum of four even ones. */
static float
gauss(void)
{
    return (rnd() + rnd() + rnd() + rnd()) * 0.866f;
}

static size_t
below(size_t n)
{
    return (size_t)((rnd() + 1) / 2 * (float)n) % n;
}

struct set {
    size_t n, in;
    enum dtype dtype;
    void *e;     /* [n, in] */
    float *bias; /* [n] */
    float *x;    /* [M, in] */
};

/* ---- rows that are hard in some way ---- */

enum { X_GAUSS, X_OFFSET, X_OUTLIERS, X_HALFWAY, X_TINY, X_HUGE, X_MIXED, X_N };

static void
fill_x(float *x, size_t in, size_t kind, bool scaled)
{
    const float scale = scaled ? ldexpf(1, (int)below(90) - 35) : 1;

    for (size_t i = 0; i < in; i++) {
        float f = gauss();

        switch (kind) {
        case X_OFFSET:
            f = f * 0.01f + 100;
            break;
        case X_OUTLIERS:
            f *= i % 61 == 3 ? 3000 : 1;
            break;
        case X_HALFWAY: /* bf16 loses as much as it can, always upwards */
            f = bf16_to_f32(f32_to_bf16(f));
            f = f32_from_bits((f32_bits(f) & 0xff80ffff) | 0x7fff);
            break;
        case X_TINY:
            f *= 0x1p-38f;
            break;
        case X_HUGE:
            f *= 0x1p54f;
            break;
        case X_MIXED: /* to subnormal ones */
            f *= ldexpf(1, -(int)below(140));
            break;
        default:
            break;
        }
        x[i] = kind < X_TINY ? f * scale : f;
    }
}

enum {
    E_GAUSS,
    E_SCALED,
    E_SUBNORMAL,
    E_SPARSE,
    E_ZERO,
    E_TWIN,
    E_ALONG, /* what bf16 loses of x: Cauchy's equality */
    E_CANCEL,
    E_N
};

static void
fill_e(float *e, const float *x, size_t in, size_t kind)
{
    const float scale = ldexpf(1, (int)below(60) - 30);

    for (size_t i = 0; i < in; i++) {
        float f = gauss();

        if (kind == E_SCALED)
            f *= scale;
        else if (kind == E_SUBNORMAL)
            f *= i % 2 ? 0x1p-128f : 1;
        else if (kind == E_SPARSE)
            f *= below(16) == 0;
        else if (kind == E_ZERO)
            f = 0;
        else if (kind == E_ALONG)
            f = x[i] - bf16_to_f32(f32_to_bf16(x[i]));
        else if (kind == E_CANCEL)
            f = x[i ^ (i + 1 < in || i % 2)] * (i % 2 ? 1 : -1);
        e[i] = f;
    }
    if (kind == E_ALONG || kind == E_CANCEL) { /* to about 1 */
        float max = 0;

        for (size_t i = 0; i < in; i++)
            max = fmaxf(max, fabsf(e[i]));
        for (size_t i = 0; i < in && max > 0; i++)
            e[i] /= max;
    }
}

static void
put(const struct set *s, size_t at, float f)
{
    if (s->dtype == DT_F32)
        put_le32((char *)s->e + 4 * at, f32_bits(f));
    else
        put_le16((char *)s->e + 2 * at,
                 s->dtype == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f));
}

/* Any kinds; hard: else x and E are about normal. */
static void
make_set(struct set *s, size_t n, size_t in, enum dtype dtype, bool hard)
{
    float *row = malloc(in * sizeof(*row));

    *s = (struct set){ .n = n, .in = in, .dtype = dtype };
    s->e = malloc(n * in * weight_nbytes(dtype));
    s->bias = malloc(n * sizeof(float));
    s->x = malloc(M * in * sizeof(float));
    for (size_t i = 0; i < M; i++)
        fill_x(s->x + i * in, in, hard ? below(X_N) : X_GAUSS, hard);
    for (size_t i = 0; i < n; i++) {
        size_t kind = hard ? below(E_N) : E_GAUSS;

        if (kind != E_TWIN || i == 0)
            fill_e(row, s->x + below(M) * in, in, kind);
        for (size_t c = 0; c < in; c++)
            put(s, i * in + c, row[c]);
        s->bias[i] = hard && below(4) == 0 ? 100 * gauss() : 0;
        if (kind == E_TWIN && i > 0)
            s->bias[i] = s->bias[i - 1];
    }
    free(row);
}

static void
free_set(struct set *s)
{
    free(s->e);
    free(s->bias);
    free(s->x);
}

static struct gemm_matrix
matrix_of(const struct set *s)
{
    return (struct gemm_matrix){
        .weight = { .data = s->e, .dtype = s->dtype, .ld = s->in },
        .n = s->n,
        .k = s->in
    };
}

#endif
