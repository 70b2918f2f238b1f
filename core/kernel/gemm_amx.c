/*
 * Tiles: 16 rows of 64 bytes.  Both classes have one geometry: 64 bytes of a
 * row of X, 32 bf16 or 64 int8, meet 16 rows of a panel, which lie 256 bytes
 * apart; a step makes 2 x 2 tiles of sums.
 *
 * A step needs four tiles, 4 KiB, in the 64 cycles of its products, more than
 * the second cache gives: k comes in blocks, so that much of a panel's block
 * stays in the first while all rows pass by, and the sums wait in t meanwhile.
 * (Blocks of 8 and 32 steps were slower, and so was asking for rows ahead.)
 *
 * TDPBF16PS rounds to nearest and takes denormals for zero; within a step the
 * even and the odd elements of a row are two chains of sums.  TDPBSSD is exact.
 */
#include <immintrin.h>

#include "core/kernel/ops.h"

#define INLINE static inline __attribute__((always_inline))

#define STEP_X 64   /* bytes of a row of X that a step takes */
#define STEP_B 4096 /* bytes of a panel */
#define BLOCK  16   /* steps: 64 KiB of a panel */
#define LD_T   256  /* bytes of a row of t */
#define LD_B   256

struct tilecfg {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};

/* Sums in 0..3, X in 4 and 5, the panel in 6 and 7; m <= 32 rows of X. */
static void
configure(size_t m)
{
    struct tilecfg c = { .palette = 1 };
    uint8_t upper = (uint8_t)(m < 16 ? m : 16), lower = (uint8_t)(m - upper);

    for (int i = 0; i < 8; i++)
        c.colsb[i] = 64;
    c.rows[0] = c.rows[1] = c.rows[4] = upper;
    c.rows[2] = c.rows[3] = c.rows[5] = lower ? lower : 1; /* 0 is a fault */
    c.rows[6] = c.rows[7] = 16;
    /* gcc's intrinsic says that it reads 8 bytes: the others are read, too. */
    __asm__ volatile("" : : "m"(c));
    _tile_loadconfig(&c);
}

enum product { BF16, INT8 };

#define PRODUCT(p, sum, x, b)          \
    do {                               \
        if ((p) == BF16)               \
            _tile_dpbf16ps(sum, x, b); \
        else                           \
            _tile_dpbssd(sum, x, b);   \
    } while (0)

/* 32 columns of t for the configured rows; 'two': there are more than 16. */
INLINE void
tiles(enum product p, bool two, char *t, const char *x, size_t ldx,
      const char *b, size_t steps, bool add)
{
    char *t2 = t + 16 * LD_T;

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (add) {
        _tile_loadd(0, t, LD_T);
        _tile_loadd(1, t + 64, LD_T);
        if (two) {
            _tile_loadd(2, t2, LD_T);
            _tile_loadd(3, t2 + 64, LD_T);
        }
    }
    for (size_t s = 0; s < steps; s++, x += STEP_X, b += STEP_B) {
        _tile_loadd(6, b, LD_B);
        _tile_loadd(4, x, ldx);
        PRODUCT(p, 0, 4, 6);
        _tile_loadd(7, b + 64, LD_B);
        PRODUCT(p, 1, 4, 7);
        if (two) {
            _tile_loadd(5, x + 16 * ldx, ldx);
            PRODUCT(p, 2, 5, 6);
            PRODUCT(p, 3, 5, 7);
        }
    }
    _tile_stored(0, t, LD_T);
    _tile_stored(1, t + 64, LD_T);
    if (two) {
        _tile_stored(2, t2, LD_T);
        _tile_stored(3, t2 + 64, LD_T);
    }
}

/* Full tiles: m rows, a multiple of 32, by a block of k. */
INLINE void
block(enum product p, char *t, const char *x, size_t ldx, const char *b,
      size_t m, size_t steps, bool add)
{
    for (size_t i = 0; i < m; i += 32)
        for (size_t half = 0; half < 2; half++)
            tiles(p, true, t + i * LD_T + 128 * half, x + i * ldx, ldx,
                  b + 128 * half, steps, add);
}

/* The last m < 32 rows: a tile of them, or two. */
INLINE void
block_end(enum product p, char *t, const char *x, size_t ldx, const char *b,
          size_t m, size_t steps, bool add)
{
    for (size_t half = 0; half < 2; half++)
        if (m > 16)
            tiles(p, true, t + 128 * half, x, ldx, b + 128 * half, steps, add);
        else
            tiles(p, false, t + 128 * half, x, ldx, b + 128 * half, steps, add);
}

/* One panel: full tiles first, then the rest; each sum's blocks of k come in
 * the same order wherever its row lies. */
INLINE void
panel(enum product p, char *t, const char *x, size_t ldx, const char *b,
      size_t m, size_t steps, bool add)
{
    size_t full = m / 32 * 32, n;

    if (full)
        configure(32);
    for (size_t s = 0; s < steps && full; s += n) {
        n = steps - s < BLOCK ? steps - s : BLOCK;
        block(p, t, x + s * STEP_X, ldx, b + s * STEP_B, full, n, add || s);
    }
    t += full * LD_T;
    x += full * ldx;
    m -= full;
    if (m)
        configure(m);
    for (size_t s = 0; s < steps && m; s += n) {
        n = steps - s < BLOCK ? steps - s : BLOCK;
        block_end(p, t, x + s * STEP_X, ldx, b + s * STEP_B, m, n, add || s);
    }
    _tile_release();
}

static void
bf16(float *t, const uint16_t *a, size_t lda, const uint16_t *b, size_t m,
     size_t k, bool add)
{
    panel(BF16, (char *)t, (const char *)a, 2 * lda, (const char *)b, m, k / 32,
          add);
}

static void
int8(int32_t *t, const int8_t *a, size_t lda, const int8_t *b,
     const int32_t *comp, size_t m, size_t k, bool add)
{
    (void)comp; /* both are signed here */
    panel(INT8, (char *)t, (const char *)a, lda, (const char *)b, m, k / 64,
          add);
}

const struct gemm_ops gemm_amx = { .bf16 = bf16, .int8 = int8 };
