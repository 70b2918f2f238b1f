/* SPDX-License-Identifier: ISC */
/* core/str and core/js: any bytes, made fit for a terminal, XML and JSON. */
#include "core/str.h"

#include <jansson.h>

#include "core/format/st.h"
#include "core/js.h"
#include "core/le.h"
#include "test/fuzz/files.h"

static void
check_printable(const struct str *s)
{
    uint32_t c;

    for (size_t i = 0; i < s->n; i += (size_t)utf8_put((char[4]){ 0 }, c)) {
        MUST(utf8_next(s->s + i, s->n - i, &c) > 0);
        MUST(c >= 32 && c != 127 && !utf8_deceives(c));
    }
}

/* Valid UTF-8 comes back as it was. */
static void
check_json(const char *text, size_t n)
{
    struct str s = { 0 };
    json_t *v;

    js_put_str(&s, text, n);
    check_printable(&s);
    v = json_loadb(s.s, s.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    MUST(v && json_is_string(v));
    if (utf8_valid(text, n) == n)
        MUST(json_string_length(v) == n &&
             (n == 0 || !memcmp(json_string_value(v), text, n)));
    json_decref(v);
    str_free(&s);
}

/* JSON stays what it is; js_check() has refused a NUL. */
static void
check_value(const char *text, size_t n)
{
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *v = memchr(text, 0, n) ? NULL : json_loadb(text, n, flags, NULL);
    json_t *w;
    struct str s = { 0 };

    if (v) {
        js_put_json(&s, text, n);
        w = json_loadb(s.s, s.n, flags, NULL);
        MUST(w && json_equal(v, w));
        json_decref(w);
        for (size_t i = 0; i < s.n; i++) /* white space that JSON has */
            if (s.s[i] == '\n' || s.s[i] == '\t')
                s.s[i] = ' ';
        check_printable(&s);
        json_decref(v);
        str_free(&s);
    }
}

/* Lines and tabs stay, and what is nothing but invisible. */
static void
check_text(const char *text, size_t n)
{
    struct str s = { 0 };
    uint32_t c;

    str_esc_text(&s, text, n);
    for (size_t i = 0; i < s.n; i += (size_t)utf8_put((char[4]){ 0 }, c)) {
        MUST(utf8_next(s.s + i, s.n - i, &c) > 0);
        MUST(c == '\n' || c == '\t' || (c >= 32 && c < 127) || c >= 0xa0);
        MUST(c < 0x202a || c > 0x2069 || (c > 0x202e && c < 0x2066));
    }
    str_free(&s);
}

static void
check_number(double d)
{
    struct str s = { 0 };

    js_put_f64(&s, d);
    str_addc(&s, '\0');
    MUST(!strcmp(s.s, "null") == !(d - d == 0));
    MUST(!strcmp(s.s, "null") || strtod(s.s, NULL) == d);
    str_free(&s);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data, *what = st_sniff(data, n);
    struct str s = { 0 };

    str_esc(&s, text, n);
    check_printable(&s);
    str_clear(&s);
    str_xml(&s, text, n);
    for (size_t i = 0; i < s.n; i++)
        MUST(s.s[i] != '<' && s.s[i] != '>');
    str_free(&s);
    check_json(text, n);
    check_value(text, n);
    check_text(text, n);
    for (size_t i = 0; i + 8 <= n; i += 8)
        check_number(le_f64(data + i));
    MUST(!what || *what);
    return 0;
}
