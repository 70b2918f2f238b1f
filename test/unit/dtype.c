/* core/dtype: one element of each type, little-endian, against values written
 * out by hand from the formats. */
#include "core/dtype.h"

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

int
main(void)
{
    for (size_t i = 0; i < sizeof(elements) / sizeof(*elements); i++) {
        const struct element *e = &elements[i];
        size_t size = dtype_table[e->dtype].bits / 8;
        unsigned char data[16];

        memset(data, 0xff, sizeof(data));
        memcpy(data + size, e->bytes, size);
        tap_ok(dtype_get(e->dtype, data, 1) == e->value, "%s: %g",
               dtype_table[e->dtype].name, e->value);
    }
    return tap_done();
}
