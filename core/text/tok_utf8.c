/* SPDX-License-Identifier: ISC */
#include "core/text/tok_utf8.h"

#include "core/str.h"

size_t
utf8_bad(const char *s, size_t n, bool *cut)
{
    uint8_t b = (uint8_t)s[0], low = 0x80, high = 0xbf;
    size_t need = b < 0xc2 ? 0 : b < 0xe0 ? 1 : b < 0xf0 ? 2 : b < 0xf5 ? 3 : 0;
    size_t i = 1;

    low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : low;
    high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : high;
    while (i <= need && i < n && (uint8_t)s[i] >= low &&
           (uint8_t)s[i] <= high) {
        low = 0x80;
        high = 0xbf;
        i++;
    }
    *cut = i <= need && i == n;
    return i;
}

/* Printable Latin-1 stands for itself, the rest for U+0100 and on. */
static bool
is_own_character(unsigned c)
{
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) ||
           (c >= 0xae && c <= 0xff);
}

size_t
alphabet_put(char *s, uint8_t byte)
{
    uint32_t c = byte;

    if (!is_own_character(c)) /* 0 .. 0x20, 0x7f .. 0xa0, 0xad */
        c = c <= 0x20 ? 0x100 + c : c <= 0xa0 ? 0x121 + c - 0x7f : 0x143;
    return (size_t)utf8_put(s, c);
}

int
alphabet_byte(uint32_t c)
{
    if (c < 0x100)
        return is_own_character(c) ? (int)c : -1;
    if (c <= 0x120)
        return (int)(c - 0x100);
    if (c <= 0x142)
        return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}
