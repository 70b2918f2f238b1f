/* SPDX-License-Identifier: ISC */
/*
 * JSON as Python's json writes it: what is no JSON in it, and numbers.
 * Expectations are Python's repr() and json.dumps().
 */
#include "core/js.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/unit/tap.h"

static bool
is_text(const json_t *v, const char *text)
{
    return json_is_string(v) && !strcmp(json_string_value(v), text);
}

static void
test_words(void)
{
    static const char text[] =
        "{\"a\": [NaN, -Infinity, Infinity, 1], \"NaN\": \"x\\\" NaN\", \"b\": "
        "{\"c\": NaN}}";
    static const char twice[] = "{\"a\": 1, \"a\": NaN}";
    static const char line[] = "{\"a\": NaN, \"text\": -Infinity}";
    struct err err = { 0 };
    const char *s;
    struct js root;
    json_t *v = js_parse(text, strlen(text), "t", &err);
    json_t *a = json_object_get(v, "a");

    tap_ok(v && is_text(json_array_get(a, 0), "NaN") &&
               is_text(json_array_get(a, 1), "-Infinity") &&
               is_text(json_array_get(a, 2), "Infinity") &&
               json_integer_value(json_array_get(a, 3)) == 1 &&
               is_text(json_object_get(json_object_get(v, "b"), "c"), "NaN") &&
               !strcmp(json_string_value(json_object_get(v, "NaN")), "x\" NaN"),
           "NaN and infinities are strings, and a string is what it was %s",
           err.what);
    json_decref(v);
    tap_ok(!js_parse("[NaN", 4, "t", &err) && err.status == EX_DATAERR &&
               !js_parse("[nan]", 5, "t", &err) &&
               !js_parse(twice, sizeof(twice) - 1, "t", &err),
           "what is wrong otherwise is an error");
    v = js_line(line, strlen(line), "t", 1, &err);
    root = js_root(v, "t");
    root = js_get(&root, "text");
    tap_ok(v && js_str(&root, &s, NULL, &err) < 0 &&
               !strcmp(err.what, "t: text is -Infinity (expected a string)"),
           "in a line they are not strings: %s", err.what);
    json_decref(v);
}

/* Brackets in strings do not count. */
static void
test_depth(void)
{
    struct err err = { 0 };
    char text[300];

    for (int depth = 64; depth <= 65; depth++) {
        int n = 0;
        json_t *v;

        for (int i = 0; i < depth; i++)
            n += sprintf(text + n, "%c", '[');
        n += sprintf(text + n, "\"[[\\\"[[\"");
        for (int i = 0; i < depth; i++)
            n += sprintf(text + n, "%c", ']');
        v = js_parse(text, (size_t)n, "t", &err);
        tap_ok(depth == 64
                   ? v != NULL
                   : !v && err.status == EX_DATAERR &&
                         !strcmp(err.what, "t: line 1, column 65: nested 65 "
                                           "levels deep (expected at most 64)"),
               "js_parse: %d levels %s", depth, err.what);
        json_decref(v);
    }
    tap_ok(js_check("[1,\n1\0]", 8, "t", 3, &err) < 0 &&
               !strcmp(err.what, "t: line 4, column 2: a NUL byte (expected "
                                 "JSON)"),
           "js_check: a NUL ends no text: %s", err.what);
}

static void
test_numbers(void)
{
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        { 0, "0" },
        { -0.0, "-0.0" },
        { 3, "3" },
        { -1e14, "-100000000000000" },
        { 1e16, "1e+16" },
        { 0.1, "0.1" },
        { 0x1p-24, "5.960464477539063e-08" },
        { 0x1p-44, "5.684341886080802e-14" },
        { 9007199254740993.0 / 3, "3002399751580330.5" },
        { 5e-324, "5e-324" },
        { 123456.5, "123456.5" },
        { 1e-5, "1e-05" },
        { 1.0 / 3, "0.3333333333333333" },
        { NAN, "null" },
        { -INFINITY, "null" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct str s = { 0 };

        js_put_f64(&s, cases[i].v);
        tap_ok(!strcmp(s.s, cases[i].text), "js_put_f64: %s %s", cases[i].text,
               s.s);
        str_free(&s);
    }
}

static void
test_format(void)
{
    const char *volatile none = NULL;
    struct str s = { 0 };

    js_addf(&s, "{\"a\": [%s, %s], \"b\": %g, %d %zu %lld %llu%s", "x\"\n",
            none, 0.1, -3, SIZE_MAX, INT64_MIN + 0LL, ~0ULL, "");
    tap_ok(!strcmp(s.s, "{\"a\": [\"x\\\"\\n\", null], \"b\": 0.1, -3 "
                        "18446744073709551615 -9223372036854775808 "
                        "18446744073709551615\"\""),
           "js_addf: %s", s.s);
    str_free(&s);
}

int
main(void)
{
    test_format();
    test_words();
    test_depth();
    test_numbers();
    return tap_done();
}
