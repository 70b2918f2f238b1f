/* SPDX-License-Identifier: ISC */
/* core/err, mem, str, dtype, le, js, fd and clock: each against its rule,
 * written anew. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/fd.h"
#include "core/js.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/str.h"
#include "test/unit/tap.h"

static char warned[2000];

static void
note(const char *what)
{
    snprintf(warned, sizeof(warned), "%s", what);
}

static void
test_err(void)
{
    struct err err;
    char *big = xmalloc(3000);

    memset(big, 'x', 2999);
    big[2999] = '\0';
    tap_ok(err_set(&err, EX_DATAERR, "f: %d", 7) == -1 &&
               err.status == EX_DATAERR && !strcmp(err.what, "f: 7"),
           "err_set fills the error and returns -1");
    err_set(&err, 1, "%s", big);
    tap_ok(strlen(err.what) == sizeof(err.what) - 1 &&
               !strcmp(err.what + sizeof(err.what) - 4, "..."),
           "a line that is too long ends in three dots");
    tap_ok(err_data(&err, "f", "has %d bytes", 7) == -1 &&
               err.status == EX_DATAERR && !strcmp(err.what, "f: has 7 bytes"),
           "err_data begins the line with the file");
    err_data(&err, big, "has %d bytes", 7);
    tap_ok(strlen(err.what) == sizeof(err.what) - 1 &&
               !strcmp(err.what + sizeof(err.what) - 4, "..."),
           "a file's name that is too long, too");
    errno = ENOENT;
    err_sys(&err, EX_NOINPUT, "%s", big);
    tap_ok(!!strstr(err.what, "...: No such file or directory"),
           "the text of errno is there behind a cut line, too");
    err_warn("nobody hears");
    err_warn_hook(note);
    err_warn("shard %d", 3);
    err_warn_hook(NULL);
    tap_ok(!strcmp(warned, "shard 3"), "a warning goes to the hook");
    free(big);
}

static void
test_mem(void)
{
    size_t r = 5;
    struct err err;
    char *p;

    tap_ok(!size_mul((size_t)1 << 32, (size_t)1 << 32, &r) &&
               !size_add(SIZE_MAX, 1, &r) && r == 5 &&
               size_mul((size_t)1 << 32, ((size_t)1 << 32) - 1, &r) &&
               r == 0xffffffff00000000u,
           "products and sums that do not fit are told");
    tap_ok(!mem_try(SIZE_MAX, 2, "w", &err) && err.status == EX_SOFTWARE &&
               !mem_big((size_t)1 << 60, 1, "w", &err) &&
               !mem_big(SIZE_MAX, 2, "w", &err) && err.status == EX_SOFTWARE,
           "memory no machine has is an error, not an end");
    p = mem_big(3, 3 << 20, "w", &err);
    tap_ok(p && (uintptr_t)p % 64 == 0 && !p[0] && !p[(9 << 20) - 1],
           "mem_big is aligned and zero to its last byte");
    mem_big_free(p, 3, 3 << 20);
    {
        char *a, *b;
        float *c;
        const struct mem_array list[] = { { &a, 3, 5, 1 },
                                          { &b, 0, 9, 1 },
                                          { NULL, 65, 1, 1 },
                                          { &c, 2, 2, 4 } };
        const struct mem_array many = { &a, SIZE_MAX / 4, 1, 8 };
        size_t nbytes = 0;

        p = mem_arrays(list, 4, &nbytes, "w", &err);
        tap_ok(p && nbytes == 256 && (void *)a == p && b == a + 64 &&
                   (char *)c == a + 192 &&
                   !mem_arrays_nbytes(&many, 1, &nbytes),
               "mem_arrays places each on 64 bytes, and counts them");
        mem_big_free(p, 256, 1);
    }
}

/* UTF-8 by RFC 3629's table of well-formed sequences, as code points. */
static int
encode(unsigned char *b, uint32_t c)
{
    if (c < 0x80)
        return b[0] = (unsigned char)c, 1;
    if (c < 0x800)
        return b[0] = (unsigned char)(0xc0 + c / 64),
               b[1] = (unsigned char)(0x80 + c % 64), 2;
    if (c < 0x10000)
        return b[0] = (unsigned char)(0xe0 + c / 4096),
               b[1] = (unsigned char)(0x80 + c / 64 % 64),
               b[2] = (unsigned char)(0x80 + c % 64), 3;
    return b[0] = (unsigned char)(0xf0 + c / 262144),
           b[1] = (unsigned char)(0x80 + c / 4096 % 64),
           b[2] = (unsigned char)(0x80 + c / 64 % 64),
           b[3] = (unsigned char)(0x80 + c % 64), 4;
}

static void
test_utf8(void)
{
    unsigned char b[4];
    size_t n_wrong = 0, n_pairs = 0;
    uint32_t got;
    char put[4];

    for (uint32_t c = 0; c < 0x140000; c++) {
        int n = encode(b, c), sound = c <= 0x10ffff && c / 0x800 != 27;
        int k = utf8_next((char *)b, (size_t)n, &got);

        n_wrong += sound ? k != n || got != c : k != 0;
        n_wrong += n > 1 && utf8_next((char *)b, (size_t)n - 1, &got) != 0;
        if (sound)
            n_wrong += utf8_put(put, c) != n || memcmp(put, b, (size_t)n);
    }
    tap_ok(n_wrong == 0, "every code point is read, cut off, and written");
    for (unsigned i = 0; i < 65536; i++) {
        char two[2] = { (char)(i >> 8), (char)i };
        int k = utf8_next(two, 2, &got);

        n_pairs += k == 2;
        n_wrong += k != (i < 0x8000 ? 1 : k == 2 ? 2 : 0);
    }
    tap_ok(n_wrong == 0 && n_pairs == 0x800 - 0x80,
           "of all byte pairs 1920 are a code point: none overlong");
    tap_ok(utf8_valid("a\xc3\xa4\xff", 4) == 3, "utf8_valid stops at 0xff");
}

static void
test_esc(void)
{
    struct str s = { 0 };

    str_esc(&s, "a\\\n\x1b\x7f\xff\xc3\xa4\xe2\x80\xae", 11);
    tap_ok(!strcmp(s.s, "a\\\\\\n\\x1b\\x7f\\xff\xc3\xa4\\u{202e}"),
           "str_esc: escapes, bad bytes and bidi marks cannot be printed");
    str_clear(&s);
    str_esc_text(&s,
                 "a\\\n\t\r\x1b]0;\x07\x7f\xc2\x9b\xe2\x80\xae\xe2\x81\xa6"
                 "\xe2\x80\x8d\xef\xb8\x8f\xc3\xa4\xe2\x82",
                 29);
    tap_ok(
        !strcmp(s.s, "a\\\n\t\\r\\x1b]0;\\x07\\x7f\\u{009b}\\u{202e}"
                     "\\u{2066}\xe2\x80\x8d\xef\xb8\x8f\xc3\xa4\\xe2\\x82"),
        "str_esc_text: what drives a terminal or reorders a line is escaped");
    str_clear(&s);
    str_xml(&s, "a<b>&amp;\"'\xc3\xa4", 13);
    tap_ok(!strcmp(s.s, "a&lt;b&gt;&amp;amp;&quot;&#39;\xc3\xa4"),
           "str_xml: what would be markup is text");
    str_free(&s);
}

/* Which code points a name cannot have as they are: by the charts of Unicode.
 */
static void
test_deceives(void)
{
    static const struct {
        uint32_t first, last;
    } hidden[] = {
        { 0x80, 0x9f },       /* C1 */
        { 0xad, 0xad },       /* soft hyphen */
        { 0x34f, 0x34f },     /* combining grapheme joiner */
        { 0x61c, 0x61c },     /* Arabic letter mark */
        { 0x115f, 0x1160 },   /* Hangul fillers */
        { 0x17b4, 0x17b5 },   /* Khmer inherent vowels */
        { 0x180b, 0x180f },   /* Mongolian selectors */
        { 0x200b, 0x200f },   /* zero width, marks of direction */
        { 0x2028, 0x202e },   /* separators, embeddings, overrides */
        { 0x2060, 0x206f },   /* word joiner, isolates */
        { 0x2800, 0x2800 },   /* Braille without dots */
        { 0x3164, 0x3164 },   /* Hangul filler */
        { 0xfe00, 0xfe0f },   /* variation selectors */
        { 0xfeff, 0xfeff },   /* byte order mark */
        { 0xffa0, 0xffa0 },   /* halfwidth Hangul filler */
        { 0xfff0, 0xfffb },   /* reserved, interlinear annotation */
        { 0xfffe, 0xffff },   /* noncharacters that XML forbids */
        { 0x1bca0, 0x1bca3 }, /* shorthand format controls */
        { 0x1d173, 0x1d17a }, /* musical beams and slurs */
        { 0xe0000, 0xe0fff }, /* tags, variation selectors */
    };
    size_t n_wrong = 0, i = 0;
    struct str s = { 0 };

    for (uint32_t c = 0x80; c <= 0x10ffff; c++) {
        while (i < sizeof(hidden) / sizeof(hidden[0]) && hidden[i].last < c)
            i++;
        n_wrong +=
            utf8_deceives(c) !=
            (i < sizeof(hidden) / sizeof(hidden[0]) && hidden[i].first <= c);
    }
    tap_ok(n_wrong == 0, "utf8_deceives: the code points of the charts");
    str_esc(&s, "\xe1\x85\x9f\xe2\xa0\x80\xef\xbf\xb0\xef\xbf\xbd\xef\xb8\x8f",
            15);
    tap_ok(!strcmp(s.s, "\\u{115f}\\u{2800}\\u{fff0}\xef\xbf\xbd\\u{fe0f}"),
           "str_esc: what shows as nothing is shown");
    str_free(&s);
}

static void
test_f16(void)
{
    size_t n_wrong = 0;

    for (unsigned i = 0; i < 65536; i++) {
        int e = i >> 10 & 31, m = i & 1023;
        float want = e == 31 ? (m ? NAN : INFINITY)
                     : e     ? ldexpf(1 + (float)m / 1024, e - 15)
                             : ldexpf((float)m / 1024, -14);
        float got = f16_to_f32((uint16_t)i);

        want = i & 0x8000 ? -want : want;
        n_wrong += isnan(want) ? !isnan(got) : f32_bits(got) != f32_bits(want);
        if (!isnan(got))
            n_wrong += f32_to_f16(got) != i;
    }
    tap_ok(n_wrong == 0, "all f16 codes are IEEE's and come back");
    tap_ok(f32_to_f16(65519.99f) == 0x7bff && f32_to_f16(65520) == 0x7c00 &&
               f32_to_f16(0x1p-25f) == 0 && f32_to_f16(0x1.8p-25f) == 1 &&
               f32_to_f16(1 + 0x1p-11f) == 0x3c00 &&
               f32_to_f16(1 + 0x3p-11f) == 0x3c02,
           "f16 rounds to nearest, ties to even, 65520 to infinity");
    tap_ok(f32_to_bf16(1 + 0x1p-8f) == 0x3f80 &&
               f32_to_bf16(1 + 0x3p-8f) == 0x3f82 &&
               f32_to_bf16(f32_from_bits(0x7f800001)) == 0x7fc0,
           "bf16 rounds ties to even and keeps a NaN a NaN");
}

/* (-1)^s 2^(e - bias) (1 + m / 2^mbits), e 0 as 1 without the 1. */
static float
small(unsigned v, int mbits, int bias)
{
    int e = (int)((v & 127) >> mbits), m = (int)(v & ((1u << mbits) - 1));
    double f =
        pow(2, (e ? e : 1) - bias) * ((e ? 1 : 0) + (double)m / (1 << mbits));

    return (float)(v & 128 ? -f : f);
}

static int
same(float a, float b)
{
    return isnan(a) ? isnan(b) : f32_bits(a) == f32_bits(b);
}

static void
test_f8(void)
{
    size_t n_wrong = 0;

    for (unsigned i = 0; i < 256; i++) {
        uint8_t v = (uint8_t)i;
        float e5 = small(i, 2, 15);

        if ((i & 0x7c) == 0x7c)
            e5 = i & 3 ? NAN : i & 128 ? -INFINITY : INFINITY;
        n_wrong += !same((float)dtype_get(DT_F8_E5M2, &v, 0), e5);
        n_wrong += !same((float)dtype_get(DT_F8_E4M3, &v, 0),
                         (i & 127) == 127 ? NAN : small(i, 3, 7));
        n_wrong += !same((float)dtype_get(DT_F8_E4M3FNUZ, &v, 0),
                         i == 128 ? NAN : small(i, 3, 8));
        n_wrong += !same((float)dtype_get(DT_F8_E5M2FNUZ, &v, 0),
                         i == 128 ? NAN : small(i, 2, 16));
        n_wrong += !same((float)dtype_get(DT_F8_E8M0, &v, 0),
                         i == 255 ? NAN : (float)pow(2, (int)i - 127));
    }
    tap_ok(n_wrong == 0, "all codes of five f8 types are their formula's");
}

static void
test_dtype(void)
{
    uint64_t n;
    uint8_t b[8] = { 1, 2, 3, 4, 5, 6, 7, 0x88 }, c[8];

    tap_ok(dtype_nbytes(DT_F4, 6, &n) && n == 3 &&
               !dtype_nbytes(DT_F4, 5, &n) &&
               !dtype_nbytes(DT_F64, (uint64_t)1 << 58, &n),
           "sizes: half bytes and overflow are refused");
    tap_ok(dtype_parse("BF16", 4) == DT_BF16 && dtype_parse("BF1", 3) == -1,
           "types have their safetensors names");
    put_le64(c, 0x8807060504030201u);
    tap_ok(le64(b) == 0x8807060504030201u && le16(b + 6) == 0x8807 &&
               le32(b + 1) == 0x05040302 && !memcmp(b, c, 8),
           "little-endian integers, unaligned");
}

static void
test_js(void)
{
    static const char text[] = "{\"a\": {\"b\": [1, 2.5, \"x\"]}, \"yes\": "
                               "true, \"null\": null}";
    struct err err;
    struct str s = { 0 };
    json_t *root = js_parse(text, strlen(text), "f", &err);
    struct js top = js_root(root, "f"), a = js_get(&top, "a");
    struct js b = js_get(&a, "b"), x = js_at(&b, 2), one = js_at(&b, 0);
    bool yes = false, none = true, null = false;
    double v;
    int64_t i;

    tap_ok(js_bool_or(&top, "yes", false, &yes, &err) == 0 && yes &&
               js_bool_or(&top, "none", false, &none, &err) == 0 && !none &&
               js_bool_or(&top, "null", true, &null, &err) == 0 && null,
           "js_bool_or: what is not there, or null, is what it is unset");
    tap_ok(js_bool_or(&a, "b", false, &yes, &err) < 0 &&
               err.status == EX_DATAERR,
           "js_bool_or: a list is no answer");
    tap_ok(js_f64(&x, &v, &err) < 0 &&
               !strcmp(err.what, "f: a.b[2] is \"x\" (expected a number)"),
           "a wrong type is told with its path, found and expected");
    tap_ok(js_f64(&one, &v, &err) == 0 && v == 1 &&
               js_i64(&one, -9, 0, &i, &err) < 0 &&
               js_i64(&one, 2, 9, &i, &err) < 0 &&
               !strcmp(err.what, "f: a.b[0] is 1 (expected a whole number "
                                 "from 2 to 9)"),
           "an integer is a number, and has bounds");
    tap_ok(!js_parse("{\"a\":1,\"a\":2}", 13, "f", &err) &&
               err.status == EX_DATAERR,
           "a key twice is refused");
    js_put_str(&s, "\"\n\x01\xff\xc3\xa4", 6);
    tap_ok(!strcmp(s.s, "\"\\\"\\n\\u0001\\ufffd\xc3\xa4\""),
           "js_put_str escapes quotes, controls and bad bytes");
    str_clear(&s);
    /* U+009B is a terminal's CSI, U+202E turns text round, U+E0041 and U+E0FFF
     * are unseen */
    js_put_str(&s, "\xc2\x9b\xe2\x80\xae\xf3\xa0\x81\x81\xf3\xa0\xbf\xbf", 13);
    tap_ok(!strcmp(s.s, "\"\\u009b\\u202e\\udb40\\udc41\\udb43\\udfff\""),
           "js_put_str escapes what drives a terminal or hides");
    str_clear(&s);
    js_put_json(
        &s, "{\"\xc2\x9b\" :\r[\"\\\\\x7f\xf3\xa0\x81\x81\xc3\xa4\\r\"]}", 24);
    tap_ok(
        !strcmp(s.s,
                "{\"\\u009b\" : [\"\\\\\\u007f\\udb40\\udc41\xc3\xa4\\r\"]}"),
        "js_put_json: the same value without what drives a terminal or hides");
    str_clear(&s);
    js_put_f64(&s, 0.1);
    js_put_f64(&s, NAN);
    tap_ok(!strcmp(s.s, "0.1null"), "js_put_f64: 0.1 is short, NaN is null");
    str_clear(&s);
    js_put_f64(&s, 0);
    js_put_f64(&s, -0.0);
    tap_ok(!strcmp(s.s, "0-0.0"), "js_put_f64: -0 keeps its sign (%s)", s.s);
    str_clear(&s);
    js_put_f64(&s, 50);
    str_addc(&s, ' ');
    js_put_f64(&s, -999999999999999);
    str_addc(&s, ' ');
    js_put_f64(&s, 1e15);
    str_addc(&s, ' ');
    js_put_f64(&s, 0.1 + 0.2);
    tap_ok(
        !strcmp(s.s,
                "50 -999999999999999 1000000000000000.0 0.30000000000000004"),
        "js_put_f64: whole numbers have no exponent (%s)", s.s);
    str_free(&s);
    json_decref(root);
}

/* Pieces of 3, 0, 2 and 0 bytes: what is left after each number of them. */
static void
test_iov(void)
{
    static const struct {
        size_t skip;
        int n, piece;
        size_t at, nbytes;
    } want[] = { { 0, 4, 0, 0, 3 }, { 1, 4, 0, 1, 2 }, { 2, 4, 0, 2, 1 },
                 { 3, 2, 2, 0, 2 }, { 4, 2, 2, 1, 1 }, { 5, 0, 4, 0, 0 } };
    char bytes[4][3];

    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct iovec v[4] = {
            { bytes[0], 3 }, { bytes[1], 0 }, { bytes[2], 2 }, { bytes[3], 0 }
        };
        int n = 4;
        struct iovec *left = iov_skip(v, &n, want[i].skip);

        tap_ok(n == want[i].n && left == v + want[i].piece &&
                   (n == 0 ||
                    (left->iov_base == bytes[want[i].piece] + want[i].at &&
                     left->iov_len == want[i].nbytes)),
               "iov_skip: %zu of 5 bytes", want[i].skip);
    }
}

static void
test_clock(void)
{
    double before = clock_s(), after;
    struct timespec t = { .tv_nsec = 2000000 };

    while (nanosleep(&t, &t) < 0)
        ;
    after = clock_s();
    tap_ok(after - before >= 0.002 && after - before < 600,
           "clock_s: 2 ms are 2 ms, or more");
}

int
main(void)
{
    test_err();
    test_mem();
    test_utf8();
    test_esc();
    test_deceives();
    test_f16();
    test_f8();
    test_dtype();
    test_js();
    test_iov();
    test_clock();
    return tap_done();
}
