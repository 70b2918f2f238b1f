/* SPDX-License-Identifier: ISC */
/* Conversions against IEEE 754's formulas, on every instruction set. */
#include "core/kernel/cvt.h"

#include <math.h>
#include <string.h>

#include "core/le.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

/* What a 16-bit float is, by the formula of IEEE 754; NaN for a NaN. */
static double
value(uint16_t h, int e_bits, int m_bits)
{
    int bias = (1 << (e_bits - 1)) - 1, e = h >> m_bits & ((1 << e_bits) - 1);
    double m = h & ((1 << m_bits) - 1), s = h >> 15 ? -1 : 1;

    if (e == (1 << e_bits) - 1)
        return m != 0 ? NAN : s * INFINITY;
    if (e == 0)
        return s * ldexp(m, 1 - bias - m_bits);
    return s * ldexp(m + (1 << m_bits), e - bias - m_bits);
}

static bool
same(double want, float got)
{
    if (isnan(want))
        return isnan(got);
    return want == (double)got && !signbit(want) == !signbit(got);
}

/* All 65536 codes, at some offsets from a vector's begin. */
static void
test_widen(enum isa isa)
{
    static float f[65536];
    static uint8_t codes[65536 * 2 + 1];
    const struct cvt_ops *ops = cvt_ops_of(isa);
    bool bf16 = true, f16 = true, nan = true;

    for (size_t i = 0; i < 65536; i++)
        put_le16(codes + 1 + 2 * i, (uint16_t)i);
    for (size_t at = 0; at < 3; at++) {
        ops->from_bf16(f, codes + 1 + 2 * at, 65536 - at);
        for (size_t i = at; i < 65536; i++)
            bf16 &= same(value((uint16_t)i, 8, 7), f[i - at]) &&
                    f32_bits(f[i - at]) == (uint32_t)i << 16;
        ops->from_f16(f, codes + 1 + 2 * at, 65536 - at);
        for (size_t i = at; i < 65536; i++) {
            f16 &= same(value((uint16_t)i, 5, 10), f[i - at]);
            if (isnan(f[i - at]))
                nan &= f32_bits(f[i - at]) ==
                       ((uint32_t)(i & 0x8000) << 16 | 0x7f800000 |
                        (uint32_t)(i & 0x3ff) << 13);
        }
    }
    tap_ok(bf16, "cvt %s: all bf16 codes by the formula", isa_name(isa));
    tap_ok(f16, "cvt %s: all f16 codes by the formula", isa_name(isa));
    tap_ok(nan, "cvt %s: NaNs of f16 keep sign and payload", isa_name(isa));
}

/* The nearest of the neighbours lo <= |f| <= hi, the even one at a tie. */
static uint16_t
nearest(float f, int e_bits, int m_bits)
{
    uint16_t sign = signbit(f) ? 0x8000 : 0, lo = 0, hi, inf;
    double a = fabs((double)f), mid;

    inf = (uint16_t)(((1 << e_bits) - 1) << m_bits);
    hi = inf;
    while (hi - lo > 1) {
        uint16_t m = (uint16_t)((lo + hi) / 2);

        if (value(m, e_bits, m_bits) <= a)
            lo = m;
        else
            hi = m;
    }
    /* Beyond the largest the next step of equal size stands for infinity. */
    mid = hi == inf
              ? value(lo, e_bits, m_bits) * 1.5 -
                    value((uint16_t)(lo - 1), e_bits, m_bits) * 0.5
              : (value(lo, e_bits, m_bits) + value(hi, e_bits, m_bits)) / 2;
    if (a > mid || (a == mid && (lo & 1)))
        lo = hi;
    return sign | lo;
}

enum { N = 20000 };

/* Ties and what is next to them, then bits at random. */
static void
fill(float *f, int e_bits, int m_bits)
{
    for (size_t i = 0; i < N; i++) {
        uint16_t h = (uint16_t)((uint32_t)(rnd() * 0x1p30f) & 0x7fff);
        double a = value(h, e_bits, m_bits);
        double b = value((uint16_t)(h + 1), e_bits, m_bits);
        float tie = (float)((a + b) / 2);

        if (!isfinite(tie))
            tie = i % 2 ? 65520.0f : 3.3961775e38f; /* ties at the top */
        switch (i % 4) {
        case 0:
            f[i] = tie;
            break;
        case 1:
            f[i] = nextafterf(tie, INFINITY);
            break;
        case 2:
            f[i] = -nextafterf(tie, 0);
            break;
        default:
            f[i] = f32_from_bits((uint32_t)(int32_t)(rnd() * 0x1p31f));
            if (isnan(f[i]))
                f[i] = i % 8 == 3 ? INFINITY : -0.0f;
        }
    }
}

static void
test_round(enum isa isa)
{
    static float f[N];
    static uint8_t out[2 * N + 3];
    const struct cvt_ops *ops = cvt_ops_of(isa);
    bool good = true;

    fill(f, 8, 7);
    for (size_t at = 0; at < 3; at++) {
        ops->to_bf16(out + 1, f + at, N - at);
        for (size_t i = at; i < N; i++)
            good &= le16(out + 1 + 2 * (i - at)) == nearest(f[i], 8, 7);
    }
    tap_ok(good, "cvt %s: f32 to bf16, nearest and ties to even",
           isa_name(isa));
    good = true;
    fill(f, 5, 10);
    for (size_t at = 0; at < 3; at++) {
        ops->to_f16(out + 1, f + at, N - at);
        for (size_t i = at; i < N; i++)
            good &= le16(out + 1 + 2 * (i - at)) == nearest(f[i], 5, 10);
    }
    tap_ok(good, "cvt %s: f32 to f16, nearest and ties to even", isa_name(isa));
}

static void
test_nan_and_tails(enum isa isa)
{
    static const uint32_t nans[] = { 0x7f800001, 0xff800001, 0x7fc00000,
                                     0xffffffff, 0x7fa00000 };
    const struct cvt_ops *ops = cvt_ops_of(isa);
    bool good = true, tail = true;
    float f[40];
    uint8_t out[82];

    for (size_t i = 0; i < 40; i++)
        f[i] = f32_from_bits(nans[i % 5]);
    ops->to_bf16(out, f, 40);
    for (size_t i = 0; i < 40; i++)
        good &= le16(out + 2 * i) == (nans[i % 5] >> 16 | 0x40);
    ops->to_f16(out, f, 40);
    for (size_t i = 0; i < 40; i++)
        good &= le16(out + 2 * i) == ((nans[i % 5] >> 16 & 0x8000) | 0x7e00 |
                                      (nans[i % 5] >> 13 & 0x3ff));
    tap_ok(good, "cvt %s: a NaN stays a quiet NaN", isa_name(isa));
    for (size_t n = 0; n < 40; n++) {
        memset(out, 0xaa, sizeof(out));
        ops->to_bf16(out, f, n);
        tail &= out[2 * n] == 0xaa && (n == 0 || out[2 * n - 1] != 0xaa);
        ops->to_f16(out, f, n);
        tail &= out[2 * n] == 0xaa;
        f[n] = 7;
        ops->from_f16(f, out, n);
        tail &= f[n] == 7;
        ops->from_bf16(f, out, n);
        tail &= f[n] == 7;
        for (size_t i = 0; i < 40; i++)
            f[i] = f32_from_bits(nans[i % 5]);
    }
    tap_ok(tail, "cvt %s: nothing is written behind n", isa_name(isa));
}

static void
test_public(void)
{
    const uint8_t bytes[] = { 0, 0, 0x80, 0x3f, 0xc0 };
    uint8_t out[5] = { 0 };
    float f, two = 2;

    cvt_to_f32(&f, bytes + 1, DT_F32, 1);
    tap_ok(f32_bits(f) == 0xc03f8000, "cvt_to_f32: F32 at an odd address");
    cvt_to_f32(&f, bytes + 2, DT_BF16, 1);
    tap_ok(f == 1, "cvt_to_f32: BF16");
    cvt_from_f32(out + 1, DT_F32, &two, 1);
    tap_ok(!memcmp(out, "\0\0\0\0\x40", 5), "cvt_from_f32: little-endian F32");
    cvt_from_f32(out + 1, DT_F16, &two, 1);
    tap_ok(!memcmp(out, "\0\0\x40\0\x40", 5), "cvt_from_f32: F16");
}

/* Alone and among others, where vectors and where tails look at them. */
static void
test_finite(enum dtype dtype, int e_bits, int m_bits)
{
    static float f[N];
    uint8_t out[4 * 50];
    bool fits = true, finite = true;

    fill(f, e_bits, m_bits);
    f[0] = NAN;
    f[1] = -INFINITY;
    f[2] = 3.4028234e38f;
    for (size_t i = 0; i < N; i++) {
        float some[50] = { 0 };
        bool want = dtype == DT_F32
                        ? isfinite(f[i])
                        : isfinite(value(nearest(f[i], e_bits, m_bits), e_bits,
                                         m_bits)) &&
                              !isnan(f[i]);

        some[i % 50] = f[i];
        fits &= cvt_fits(&f[i], dtype, 1) == want;
        fits &= cvt_fits(some, dtype, 50) == want;
        fits &= cvt_fits(some, dtype, i % 50);
        cvt_from_f32(out, dtype, some, 50);
        finite &= dtype_finite(out, dtype, 50) == want;
        finite &= dtype_finite(out, dtype, i % 50);
    }
    tap_ok(fits, "cvt_fits: %s, what rounds to NaN or infinity does not",
           dtype_table[dtype].name);
    tap_ok(finite, "dtype_finite: %s", dtype_table[dtype].name);
}

int
main(void)
{
    FOR_EACH_ISA(isa)
    {
        test_widen(isa);
        test_round(isa);
        test_nan_and_tails(isa);
    }
    test_public();
    test_finite(DT_F16, 5, 10);
    test_finite(DT_BF16, 8, 7);
    test_finite(DT_F32, 8, 7);
    return tap_done();
}
