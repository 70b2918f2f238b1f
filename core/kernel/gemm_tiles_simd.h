/*
 * Of gemm_bf16_amx.c and gemm_int8_amx.c.
 *
 * Tiles: 16 rows of 64 bytes.  Both classes have one geometry: 64 bytes of a
 * row of X, 32 bf16 or 64 int8, meet 16 rows of a panel, which lie 256 bytes
 * apart; a step makes four tiles of sums, 16 rows by the panel's 64 columns.
 *
 * A step takes 4 KiB of the panel in the 64 cycles of its products, which only
 * the first cache can give: k comes in blocks of 24 KiB of a panel, which stay
 * there for all rows, while the sums wait in t.  The next rows of X are
 * prefetched and need room there, too: blocks of 32 KiB are 10 to 20 % slower.
 * (2 x 2 tiles load less, but the rows twice.)  Of a split X both halves meet a
 * tile of the panel while it is there: 6 KiB in 128 cycles.
 *
 * TDPBF16PS rounds to nearest and takes denormals for zero; within a step the
 * even and the odd elements of a row are two chains of sums.  TDPBSSD is exact.
 */
#include <immintrin.h>

#include "core/kernel/ops.h"

#define ROWS   16
#define STEP_X 64   /* bytes of a row of X that a step takes */
#define STEP_B 4096 /* bytes of a panel */
#define BLOCK  6    /* steps */
#define LD_B   256  /* bytes */
#define LD_T   256

struct tilecfg {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};

enum product { BF16, SPLIT, INT8 };

/* Sums in 0..3, m <= 16 rows of X in 4 (SPLIT: and 5), the panel in others. */
static void
configure(enum product p, size_t m)
{
    struct tilecfg c = { .palette = 1 };

    for (int i = 0; i < 8; i++) {
        c.colsb[i] = 64;
        c.rows[i] = i < (p == SPLIT ? 6 : 5) ? (uint8_t)m : ROWS;
    }
    /* gcc's intrinsic says that it reads 8 bytes: the others are read, too. */
    __asm__ volatile("" : : "m"(c));
    _tile_loadconfig(&c);
}

#define PRODUCT(p, sum, x, b)          \
    do {                               \
        if ((p) == INT8)               \
            _tile_dpbssd(sum, x, b);   \
        else                           \
            _tile_dpbf16ps(sum, x, b); \
    } while (0)

/* Where sums come from, where they go, and how far apart their rows are. */
struct tile_sums {
    const char *from; /* NULL: zero */
    char *to;
    size_t ld_from, ld_to; /* bytes */
};

/*
 * What to prefetch: the rows of X that follow, too far apart for the hardware
 * to do it, and the panel's next block, a share of it for each tile of rows.
 */
struct next {
    ptrdiff_t x; /* bytes from these rows to those */
    const char *b;
    size_t b_nbytes; /* a step's share */
};

INLINE void
fetch_rows(const char *x, size_t ldx)
{
    for (size_t i = 0; i < ROWS; i++)
        _mm_prefetch(x + i * ldx, _MM_HINT_T0);
}

INLINE void
fetch(const struct next *next, size_t s)
{
    const char *b = next->b + s * next->b_nbytes;

    for (size_t i = 0; i < next->b_nbytes; i += 64)
        _mm_prefetch(b + i, _MM_HINT_T1);
}

/* Loads first: a core with two threads looks less far ahead, and would not
 * reach them behind products that wait. */
INLINE void
step(enum product p, const char *x, size_t ldx, const char *b)
{
    _tile_loadd(5, b, LD_B);
    _tile_loadd(6, b + 64, LD_B);
    _tile_loadd(7, b + 128, LD_B);
    _tile_loadd(4, x, ldx);
    PRODUCT(p, 0, 4, 5);
    _tile_loadd(5, b + 192, LD_B);
    PRODUCT(p, 1, 4, 6);
    PRODUCT(p, 2, 4, 7);
    PRODUCT(p, 3, 4, 5);
}

INLINE void
step_of_both(const char *x, const char *lo, size_t ldx, const char *b)
{
    _tile_loadd(4, x, ldx);
    _tile_loadd(6, b, LD_B);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 64, LD_B);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, lo, ldx);
    _tile_dpbf16ps(0, 5, 6);
    _tile_dpbf16ps(1, 5, 7);
    _tile_loadd(6, b + 128, LD_B);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, b + 192, LD_B);
    _tile_dpbf16ps(3, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* The configured rows by a block of k. */
INLINE void
tiles(enum product p, const struct tile_sums *t, const char *x, const char *lo,
      size_t ldx, const char *b, size_t steps, const struct next *next)
{
    if (t->from) {
        _tile_loadd(0, t->from, t->ld_from);
        _tile_loadd(1, t->from + 64, t->ld_from);
        _tile_loadd(2, t->from + 128, t->ld_from);
        _tile_loadd(3, t->from + 192, t->ld_from);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t s = 0; s < steps; s++) {
        const char *xs = x + s * STEP_X, *bs = b + s * STEP_B;

        fetch(next, s);
        fetch_rows(xs + next->x, ldx);
        if (p == SPLIT)
            fetch_rows(lo + s * STEP_X + next->x, ldx);
        if (p == SPLIT)
            step_of_both(xs, lo + s * STEP_X, ldx, bs);
        else
            step(p, xs, ldx, bs);
    }
    _tile_stored(0, t->to, t->ld_to);
    _tile_stored(1, t->to + 64, t->ld_to);
    _tile_stored(2, t->to + 128, t->ld_to);
    _tile_stored(3, t->to + 192, t->ld_to);
}

/* A panel's part for m rows; c: where the last block's sums go instead. */
struct panel_part {
    char *t, *c; /* c NULL: to t */
    size_t ldc;  /* bytes */
    bool stream; /* c is written by streaming stores */
    const char *x, *lo, *b;
    size_t ldx, steps; /* bytes; 64 of k each */
    bool add;
};

/* Rows of sums to C by streaming stores. */
static void
store_stream(char *c, size_t ldc, const char *t, size_t m)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < LD_T; j += 16)
            _mm_stream_ps((float *)(void *)(c + i * ldc + j),
                          _mm_load_ps((const void *)(t + i * LD_T + j)));
}

/* After rows i of block s: the rows below, or the next block's first; and this
 * tile's share of that block, unless full tiles have fetched it. */
INLINE struct next
next_of(const struct panel_part *a, size_t s, size_t i, size_t begin,
        size_t end, size_t step)
{
    size_t n_tiles = (end - begin + step - 1) / step;
    size_t share = (STEP_B / n_tiles + 63) / 64 * 64;
    size_t at = (i - begin) / step * BLOCK * share;
    bool more = s + BLOCK < a->steps;
    struct next next = { .x = (ptrdiff_t)(step * a->ldx) };

    if (i + step >= end)
        next.x = more ? BLOCK * STEP_X - (ptrdiff_t)((i - begin) * a->ldx) : 0;
    if (begin == 0 && at < BLOCK * STEP_B) {
        next.b = a->b + (s + BLOCK) * STEP_B + at;
        next.b_nbytes = share;
    }
    return next;
}

/* Rows [begin, end), 'step' of them at a time, which are configured. */
INLINE void
rows(enum product p, const struct panel_part *a, size_t begin, size_t end,
     size_t step)
{
    for (size_t s = 0, n; s < a->steps; s += n) {
        const char *b = a->b + s * STEP_B;
        bool last, add = a->add || s;

        n = a->steps - s < BLOCK ? a->steps - s : BLOCK;
        last = a->c && s + n == a->steps;
        for (size_t i = begin; i < end; i += step) {
            size_t at = i * a->ldx + s * STEP_X;
            bool direct = last && !a->stream;
            const struct next next = next_of(a, s, i, begin, end, step);
            const struct tile_sums t = {
                .from = add ? a->t + i * LD_T : NULL,
                .to = direct ? a->c + i * a->ldc : a->t + i * LD_T,
                .ld_from = LD_T,
                .ld_to = direct ? a->ldc : LD_T,
            };

            tiles(p, &t, a->x + at, p == SPLIT ? a->lo + at : NULL, a->ldx, b,
                  n, &next);
            if (last && a->stream)
                store_stream(a->c + i * a->ldc, a->ldc, a->t + i * LD_T, step);
        }
    }
}

/* Full tiles first; a sum's blocks come in one order wherever its row lies. */
INLINE void
run(enum product p, const struct panel_part *a, size_t m)
{
    size_t full = m / ROWS * ROWS;

    if (full) {
        configure(p, ROWS);
        rows(p, a, 0, full, ROWS);
    }
    if (m > full) {
        configure(p, m - full);
        rows(p, a, full, m, m - full);
    }
    _tile_release();
    if (a->c && a->stream)
        _mm_sfence();
}
