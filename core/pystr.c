/* Strings as Python's json.dumps() writes them: that half of pyjson.h. */
#include <string.h>

#include "core/pyjson.h"

/* WTF-8 is well formed here, so the lead byte tells all. */
static size_t
wtf8_next(const char *s, uint32_t *c)
{
    const unsigned char *b = (const unsigned char *)s;
    size_t n = b[0] < 0x80 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;

    *c = n == 1 ? b[0] : b[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        *c = *c << 6 | (b[i] & 0x3f);
    return n;
}

/* DEL is not in ' '..'~', so it is escaped, too. */
void
py_str_put(struct str *out, const char *s, size_t nbytes)
{
    static const char special[] = "\"\\\n\r\t\f\b";
    static const char letter[] = "\"\\nrtfb";
    uint32_t c;

    str_addc(out, '"');
    for (size_t i = 0; i < nbytes; i += wtf8_next(s + i, &c)) {
        const char *p;

        wtf8_next(s + i, &c);
        p = c && c < 0x80 ? strchr(special, (int)c) : NULL;
        if (p) {
            str_addc(out, '\\');
            str_addc(out, letter[p - special]);
        } else if (c >= ' ' && c <= '~') {
            str_addc(out, (char)c);
        } else if (c >= 0x10000) {
            str_addf(out, "\\u%04x\\u%04x",
                     0xd800 + ((unsigned)(c - 0x10000) >> 10),
                     0xdc00 + ((unsigned)(c - 0x10000) & 0x3ff));
        } else {
            str_addf(out, "\\u%04x", (unsigned)c);
        }
    }
    str_addc(out, '"');
}
