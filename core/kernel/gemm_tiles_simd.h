/* SPDX-License-Identifier: ISC */
/*
 * Of gemm_bf16_amx.c and gemm_int8_amx.c.
 *
 * Tiles: 16 rows of 64 bytes.  Both classes have one geometry: 64 bytes of a
 * row of X, 32 bf16 or 64 int8, meet 16 columns of a panel.  A step multiplies
 * two tiles of X by two of the panel: 4 KiB of loads in the 64 cycles of its 4
 * products, which the first cache can give and the second one cannot (it gives
 * about 47 bytes a cycle).  So k comes in blocks of 16 steps: 32 KiB of X meet
 * both halves of the panel before the next block.  The panel is loaded with the
 * hint that it passes by once: it would drive those rows out, which then came
 * from the second cache, too, and only blocks of 8 steps, whose sums come and
 * go twice as often, held them (0.48 of the register probe; 0.56 with the hint
 * and 16 steps).  A split X has twice the rows, and half the steps.
 *
 * While these rows are multiplied, what the thread will read next is fetched
 * into the second cache (8 %), and the sums before these go to C.
 *
 * TDPBF16PS rounds to nearest and takes denormals for zero; within a step the
 * even and the odd elements of a row are two chains of sums.  TDPBSSD is exact.
 */
#include <immintrin.h>

#include "core/kernel/ops.h"

#define ROWS   16   /* of a tile */
#define BOTH   32   /* rows that a step multiplies */
#define STEP_X 64   /* bytes of a row of X that a step takes */
#define STEP_B 4096 /* bytes of a panel */
#define LD_B   256  /* bytes */
#define LD_T   256
#define HALF   128 /* bytes of a row of sums, two tiles */

struct tilecfg {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};

enum product { BF16, SPLIT, INT8 };

/* Sums in 0 to 3, m <= 32 rows of X in 4 and 5, the panel in 6 and 7. */
static void
configure(size_t m)
{
    struct tilecfg c = { .palette = 1 };
    uint8_t upper = m < ROWS ? (uint8_t)m : ROWS;
    uint8_t lower = m > ROWS ? (uint8_t)(m - ROWS) : ROWS;
    const uint8_t rows[8] = { upper, upper, lower, lower,
                              upper, lower, ROWS,  ROWS };

    for (int i = 0; i < 8; i++) {
        c.colsb[i] = 64;
        c.rows[i] = rows[i];
    }
    /* gcc's intrinsic says that it reads 8 bytes: the others are read, too. */
    __asm__ volatile("" : : "m"(c));
    _tile_loadconfig(&c);
}

/* Of k, in steps. */
INLINE size_t
block_steps(enum product p)
{
    return p == SPLIT ? 8 : 16;
}

/* A panel's part for m rows: t = (add ? t : 0) + x b, or what that is to c. */
struct panel_part {
    char *t;
    const char *x, *lo, *b; /* lo: the other half of a SPLIT x */
    size_t ldx, m, steps;   /* ldx: bytes; 64 of k are a step */
    size_t halves;          /* of the columns that are wanted; 2 if c is set */
    bool add;
    const char *ahead; /* see struct gemm_ahead */
    size_t ahead_ld;
    char *c;    /* NULL: to t */
    size_t ldc; /* bytes */
    enum gemm_to how;
    const float *x_scale, *w_scale; /* INT8, for c: [m], [64] */
};

/*
 * Rows of sums on their way to C, some lines a step of the next rows': a burst
 * would take the fill buffers that the loads need.
 */
struct leaving {
    _Alignas(64) char sums[BOTH * LD_T];
    size_t row;        /* where they belong */
    size_t at, nbytes; /* of sums: done, in all */
};

/* The next 'nbytes' of them; a line is 16 sums. */
INLINE void
leave(enum product p, const struct panel_part *a, struct leaving *l,
      size_t nbytes)
{
    size_t end = l->at + nbytes < l->nbytes ? l->at + nbytes : l->nbytes;

    for (; l->at < end; l->at += 64) {
        size_t row = l->row + l->at / LD_T, col = l->at % LD_T;
        float *to = (float *)(void *)(a->c + row * a->ldc + col);
        const void *from = l->sums + l->at;
        __m512 v = _mm512_load_ps(from);

        if (p == INT8) {
            v = _mm512_cvtepi32_ps(_mm512_load_si512(from));
            v = _mm512_mul_ps(v, _mm512_set1_ps(a->x_scale[row]));
            v = _mm512_mul_ps(v, _mm512_loadu_ps(a->w_scale + col / 4));
        }
        if (a->how == TO_ADD)
            v = _mm512_add_ps(v, _mm512_loadu_ps(to));
        if (a->how == TO_STREAM)
            _mm512_stream_ps(to, v);
        else
            _mm512_storeu_ps(to, v);
    }
}

#define PRODUCT(p, sum, x, b)          \
    do {                               \
        if ((p) == INT8)               \
            _tile_dpbssd(sum, x, b);   \
        else                           \
            _tile_dpbf16ps(sum, x, b); \
    } while (0)

/* One half of X by two tiles of the panel. */
INLINE void
products(enum product p, const char *x, size_t ldx, bool two)
{
    _tile_loadd(4, x, ldx);
    if (two)
        _tile_loadd(5, x + ROWS * ldx, ldx);
    PRODUCT(p, 0, 4, 6);
    PRODUCT(p, 1, 4, 7);
    if (two) {
        PRODUCT(p, 2, 5, 6);
        PRODUCT(p, 3, 5, 7);
    }
}

/* Rows [i, i + BOTH), or with !two the last up to 16, by half h of the panel's
 * columns, steps [s, end). */
INLINE void
block(enum product p, const struct panel_part *a, size_t i, bool two, size_t h,
      size_t s, size_t end, struct leaving *l)
{
    const size_t n_rows = (a->m + BOTH - 1) / BOTH;
    const size_t lines = a->ahead ? (BOTH + n_rows - 1) / n_rows : 0;
    const size_t share = (BOTH * LD_T / 64 / 2 + a->steps - 1) / a->steps * 128;
    const char *b = a->b + h * HALF, *ahead = a->ahead;
    char *t = a->t + (a->c && !a->add ? 0 : i * LD_T) + h * HALF, *to = t;
    size_t ld = LD_T;

    if (ahead)
        ahead += (i / BOTH * 2 + h) * lines * a->ahead_ld;
    if (a->add || s > 0) {
        _tile_loadd(0, t, LD_T);
        _tile_loadd(1, t + 64, LD_T);
        if (two) {
            _tile_loadd(2, t + ROWS * LD_T, LD_T);
            _tile_loadd(3, t + ROWS * LD_T + 64, LD_T);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; s < end; s++) {
        size_t x = i * a->ldx + s * STEP_X;

        leave(p, a, l, share);
        for (size_t n = 0; n < lines; n++)
            _mm_prefetch(ahead + n * a->ahead_ld + s * STEP_X, _MM_HINT_T1);
        _tile_stream_loadd(6, b + s * STEP_B, LD_B);
        _tile_stream_loadd(7, b + s * STEP_B + 64, LD_B);
        products(p, a->x + x, a->ldx, two);
        if (p == SPLIT)
            products(p, a->lo + x, a->ldx, two);
    }
    if (a->c && end == a->steps && p != INT8 && a->how == TO_STORE) {
        to = a->c + i * a->ldc + h * HALF;
        ld = a->ldc;
    } else if (a->c && end == a->steps) {
        if (h == 0)
            leave(p, a, l, sizeof(l->sums));
        to = l->sums + h * HALF;
        l->row = i;
        l->at = 0;
        l->nbytes = h == 0 ? 0 : (a->m - i < BOTH ? a->m - i : BOTH) * LD_T;
    }
    _tile_stored(0, to, ld);
    _tile_stored(1, to + 64, ld);
    if (two) {
        _tile_stored(2, to + ROWS * ld, ld);
        _tile_stored(3, to + ROWS * ld + 64, ld);
    }
}

/* A sum's steps come in one order wherever its row is. */
INLINE void
run(enum product p, const struct panel_part *a)
{
    struct leaving l;

    l.at = l.nbytes = 0;
    configure(BOTH);
    for (size_t i = 0; i < a->m; i += BOTH) {
        size_t n = a->m - i;

        if (n < BOTH)
            configure(n);
        for (size_t s = 0, end; s < a->steps; s = end) {
            end = s + block_steps(p);
            end = end < a->steps ? end : a->steps;
            for (size_t h = 0; h < a->halves; h++)
                if (n > ROWS)
                    block(p, a, i, true, h, s, end, &l);
                else
                    block(p, a, i, false, h, s, end, &l);
        }
    }
    _tile_release();
    leave(p, a, &l, sizeof(l.sums));
    if (a->c && a->how == TO_STREAM)
        _mm_sfence();
}
