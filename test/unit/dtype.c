/* SPDX-License-Identifier: ISC */
/* core/dtype: one element of each type, little-endian, against values written
 * out by hand from the formats; numbers rounded twice, against where the middle
 * of two neighbours is. */
#include "core/dtype.h"

#include <math.h>
#include <string.h>

#include "test/unit/tap.h"

struct element {
    enum dtype dtype;
    const char *bytes; /* of the second element, behind 8 of 0xff */
    double value;
};

static const struct element elements[] = {
    { DT_BOOL, "\1", 1 },
    { DT_U8, "\xfe", 254 },
    { DT_I8, "\xfe", -2 },
    { DT_F8_E5M2, "\xc2", -3 },        /* -1.5 2^1 */
    { DT_F8_E4M3, "\x7e", 448 },       /* 1.75 2^8, the largest */
    { DT_F8_E8M0, "\x80", 2 },         /* 2^(128 - 127) */
    { DT_F8_E4M3FNUZ, "\x7f", 240 },   /* 1.875 2^7, the largest */
    { DT_F8_E5M2FNUZ, "\x7f", 57344 }, /* 1.75 2^15, the largest */
    { DT_I16, "\xfe\xff", -2 },
    { DT_U16, "\xfe\xff", 65534 },
    { DT_F16, "\x00\xc1", -2.5 },
    { DT_BF16, "\x20\xc0", -2.5 },
    { DT_I32, "\xfe\xff\xff\xff", -2 },
    { DT_U32, "\xfe\xff\xff\xff", 4294967294 },
    { DT_F32, "\x00\x00\x20\xc0", -2.5 },
    { DT_F64, "\x00\x00\x00\x00\x00\x00\x04\xc0", -2.5 },
    { DT_C64, "\x00\x00\x20\xc0\x00\x00\x80\x3f", -2.5 }, /* its real part */
    { DT_I64, "\xfe\xff\xff\xff\xff\xff\xff\xff", -2 },
    { DT_U64, "\x00\x00\x00\x00\x00\x00\x00\x80", 0x1p63 },
};

static uint16_t
to_bf16(double v)
{
    return f32_to_bf16(f64_to_odd(v));
}

static uint16_t
to_f16(double v)
{
    return f32_to_f16(f64_to_odd(v));
}

/*
 * Of what lies between the numbers of two neighbouring codes, all under the
 * middle is the one's, all over it the other's, and the middle the even code's.
 * A middle is exact in f64, and its neighbours there are nearer to it than any
 * f32 is.  'n' codes from 0 on; 'sign' is set in all of them.
 */
static bool
middles_divide(uint16_t (*to)(double), float (*from)(uint16_t), uint16_t n,
               uint16_t sign)
{
    for (uint16_t i = 0; i + 1 < n; i++) {
        uint16_t a = i | sign, b = (uint16_t)(i + 1) | sign;
        double mid = ((double)from(a) + (double)from(b)) / 2;

        if (to(nextafter(mid, 0)) != a || to(mid) != (i & 1 ? b : a) ||
            to(nextafter(mid, 2 * mid)) != b || to((double)from(a)) != a)
            return false;
    }
    return true;
}

/* Up to the first code that is no finite number. */
static void
test_odd(const char *name, uint16_t (*to)(double), float (*from)(uint16_t),
         uint16_t n)
{
    tap_ok(middles_divide(to, from, n, 0), "f64_to_odd: %s as rounded once",
           name);
    tap_ok(middles_divide(to, from, n, 0x8000), "%s: and under 0", name);
    tap_ok(to(1e300) == n && to(-1e300) == (n | 0x8000) &&
               to((double)INFINITY) == n && to((double)NAN) > n,
           "%s: infinities and NaN", name);
}

int
main(void)
{
    test_odd("BF16", to_bf16, bf16_to_f32, 0x7f80);
    test_odd("F16", to_f16, f16_to_f32, 0x7c00);
    for (size_t i = 0; i < sizeof(elements) / sizeof(*elements); i++) {
        const struct element *e = &elements[i];
        size_t size = dtype_size(e->dtype);
        unsigned char data[16];

        memset(data, 0xff, sizeof(data));
        memcpy(data + size, e->bytes, size);
        tap_ok(dtype_get(e->dtype, data, 1) == e->value, "%s: %g",
               dtype_table[e->dtype].name, e->value);
    }
    for (int i = 0; i < DT_COUNT; i++) {
        const char *name = dtype_table[i].name;

        tap_ok(dtype_computes(i) ==
                   (!strcmp(name, "BF16") || !strcmp(name, "F16") ||
                    !strcmp(name, "F32")),
               "dtype_computes: %s", name);
    }
    return tap_done();
}
