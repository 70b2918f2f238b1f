/* SPDX-License-Identifier: ISC */
#include "core/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

void
str_reserve(struct str *str, size_t nbytes)
{
    size_t need = SIZE_MAX;

    if (size_add(str->n, nbytes, &need) && need < str->cap)
        return;
    if (need < SIZE_MAX / 2)
        need = need < 32 ? 64 : need * 2;
    str->s = xrealloc(str->s, need, 1);
    str->cap = need;
}

void
str_add(struct str *str, const void *bytes, size_t nbytes)
{
    str_reserve(str, nbytes + 1);
    if (nbytes)
        memcpy(str->s + str->n, bytes, nbytes);
    str->n += nbytes;
    str->s[str->n] = '\0';
}

void
str_adds(struct str *str, const char *s)
{
    str_add(str, s, strlen(s));
}

void
str_addc(struct str *str, char c)
{
    str_add(str, &c, 1);
}

void
str_addv(struct str *str, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    if (n > 0) {
        str_reserve(str, (size_t)n + 1);
        vsnprintf(str->s + str->n, (size_t)n + 1, fmt, again);
        str->n += (size_t)n;
    }
    va_end(again);
}

void
str_addf(struct str *str, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    str_addv(str, fmt, ap);
    va_end(ap);
}

void
str_clear(struct str *str)
{
    str->n = 0;
    if (str->s)
        str->s[0] = '\0';
}

void
str_free(struct str *str)
{
    free(str->s);
    *str = (struct str){ 0 };
}

const char *
str_ends(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);

    return n >= k && !memcmp(s + n - k, end, k) ? s + n - k : NULL;
}

bool
utf8_deceives(uint32_t c)
{
    return (c >= 0x80 && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
           c == 0x2800 || (c >= 0xfff9 && c <= 0xfffb) || c == 0xfffe ||
           c == 0xffff || invisible(c);
}

void
str_esc(struct str *str, const char *s, size_t nbytes)
{
    static const char special[] = "\n\t\r\\", letters[] = "ntr\\";
    uint32_t c;
    int n;

    for (size_t i = 0; i < nbytes; i += (size_t)n) {
        const char *p;
        size_t start = i;

        /* names are mostly that, and many */
        while (i < nbytes && s[i] >= ' ' && s[i] < 0x7f && s[i] != '\\')
            i++;
        str_add(str, s + start, i - start);
        if (i == nbytes)
            break;
        n = utf8_next(s + i, nbytes - i, &c);
        p = s[i] ? strchr(special, s[i]) : NULL;
        if (p)
            str_addf(str, "\\%c", letters[p - special]);
        else if (n <= 1)
            str_addf(str, "\\x%02x", (unsigned char)s[i]);
        else if (utf8_deceives(c))
            str_addf(str, "\\u{%04x}", (unsigned)c);
        else
            str_add(str, s + i, (size_t)n);
        n = n ? n : 1;
    }
}

/* Of the character that begins there; 0: none does. */
static size_t
columns_at(const char *s)
{
    unsigned char a = (unsigned char)s[0], b;

    if ((a & 0xc0) == 0x80)
        return 0;
    if (a < 0xe1 || a > 0xe2)
        return a < 0xe1 ? 1 : 2; /* from U+3000 on */
    b = (unsigned char)s[1];     /* U+1100 to U+117F, and from U+2E80 on */
    return a == 0xe1 ? 1 + (b == 0x84 || b == 0x85) : 1 + (b >= 0xba);
}

size_t
str_columns(const char *s, size_t nbytes)
{
    size_t n = 0;

    for (size_t i = 0; i < nbytes; i++)
        n += columns_at(s + i);
    return n;
}

void
str_esc_end(struct str *str, const char *s, size_t nbytes, size_t max)
{
    struct str all = { 0 };
    size_t from = 0, left;

    str_esc(&all, s, nbytes);
    for (left = str_columns(all.s, all.n); left > max;) {
        left -= columns_at(all.s + from++);
        while (((unsigned char)all.s[from] & 0xc0) == 0x80)
            from++;
    }
    str_adds(str, from ? "..." : "");
    str_add(str, all.s ? all.s + from : "", all.n - from);
    str_free(&all);
}

void
str_esc_text(struct str *str, const char *s, size_t nbytes)
{
    uint32_t c;
    int n;

    for (size_t i = 0; i < nbytes; i += (size_t)n) {
        n = utf8_next(s + i, nbytes - i, &c);
        /* what drives a terminal, or has it show a line in another order */
        if (n == 0 || (c < 0x20 && c != '\n' && c != '\t') ||
            (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
            (c >= 0x2066 && c <= 0x2069))
            str_esc(str, s + i, (size_t)(n = n ? n : 1));
        else
            str_add(str, s + i, (size_t)n);
    }
}

void
str_xml(struct str *str, const char *s, size_t nbytes)
{
    static const char special[] = "&<>\"'";
    static const char *const names[] = { "&amp;", "&lt;", "&gt;", "&quot;",
                                         "&#39;" };

    for (size_t i = 0; i < nbytes; i++) {
        const char *p = s[i] ? strchr(special, s[i]) : NULL;

        str_add(str, p ? names[p - special] : s + i,
                p ? strlen(names[p - special]) : 1);
    }
}

int
utf8_next(const char *s, size_t nbytes, uint32_t *code_point)
{
    static const uint32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char b = (unsigned char)s[0];
    int n = b < 0x80   ? 1
            : b < 0xc2 ? 0
            : b < 0xe0 ? 2
            : b < 0xf0 ? 3
            : b < 0xf5 ? 4
                       : 0;
    uint32_t c = n == 1 ? b : b & (0xffu >> (n + 1));

    if (n == 0 || (size_t)n > nbytes)
        return 0;
    for (int i = 1; i < n; i++) {
        unsigned char t = (unsigned char)s[i];

        if ((t & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (t & 0x3f);
    }
    if (c < smallest[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *code_point = c;
    return n;
}

int
utf8_put(char *s, uint32_t c)
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = { 0, 0, 0xc0, 0xe0, 0xf0 };

    for (int i = n - 1; i > 0; i--, c >>= 6)
        s[i] = (char)(0x80 | (c & 0x3f));
    s[0] = (char)(lead[n] | c);
    return n;
}

size_t
utf8_valid(const char *s, size_t nbytes)
{
    size_t i = 0;
    uint32_t c;

    while (i < nbytes) {
        int n = utf8_next(s + i, nbytes - i, &c);

        if (n == 0)
            break;
        i += (size_t)n;
    }
    return i;
}
