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
    for (size_t i = 0; i + 8 <= n; i += 8)
        check_number(le_f64(data + i));
    MUST(!what || *what);
    return 0;
}
