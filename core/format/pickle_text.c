/* Opcodes whose argument is a line of text: Python 2 wrote them, and some tools
 * that rewrite pickles. */
#include "core/format/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "core/str.h"

#define MAX_NUMBER 400 /* characters; a double's repr has 24 */

/* All of 's' as a decimal; false if it is not an int64_t. */
static bool
decimal(const char *s, size_t n, int64_t *v)
{
    bool minus = n > 0 && *s == '-';
    int64_t i = 0;

    if (n == minus)
        return false;
    for (size_t k = minus; k < n; k++) {
        int digit = s[k] - '0';

        if (digit < 0 || digit > 9 ||
            __builtin_mul_overflow(i, (int64_t)10, &i) ||
            __builtin_sub_overflow(i, (int64_t)digit, &i))
            return false;
    }
    return minus ? (*v = i, true) : !__builtin_sub_overflow(0, i, v);
}

const char *
pickle_line(struct pickle *p, size_t *n)
{
    const char *s = (const char *)p->data + p->pos;
    const char *end = memchr(s, '\n', p->end - p->pos);

    if (!end)
        return pickle_fail(p, "a line without an end");
    *n = (size_t)(end - s);
    p->pos += *n + 1;
    return s;
}

/* INT, of which 00 and 01 are False and True, or LONG, which may end with L.
 * Integers beyond 64 bits become opaque. */
int
pickle_op_int(struct pickle *p)
{
    bool is_long = p->opcode->kind == PTH_LONG;
    enum pth_kind kind = PTH_INT;
    size_t n = 0;
    const char *s = pickle_line(p, &n);
    int64_t i = 0;
    struct pth_value *v;

    if (!s)
        return -1;
    if (is_long)
        n -= n > 0 && s[n - 1] == 'L';
    else if (n == 2 && s[0] == '0' && (s[1] == '0' || s[1] == '1'))
        kind = PTH_BOOL;
    if (!decimal(s, n, &i)) {
        if (n == 0 || strspn(s + (*s == '-'), "0123456789") < n - (*s == '-'))
            return pickle_bad(p,
                              "an integer with characters that are not digits");
        kind = PTH_OPAQUE;
    }
    v = pickle_value(p, kind);
    if (v && kind != PTH_OPAQUE)
        v->u.i = i;
    return pickle_push(p, v);
}

int
pickle_op_float(struct pickle *p)
{
    char number[MAX_NUMBER + 1] = "", *end;
    size_t n = 0;
    const char *s = pickle_line(p, &n);
    struct pth_value *v;

    if (!s)
        return -1;
    if (n > MAX_NUMBER)
        return pickle_bad(p, "FLOAT of %zu characters", n);
    memcpy(number, s, n);
    v = pickle_value(p, PTH_FLOAT);
    if (!v)
        return -1;
    v->u.f = strtod(number, &end);
    if (n == 0 || end != number + n)
        return pickle_bad(p, "FLOAT is not a number");
    return pickle_push(p, v);
}

static int
hex_digits(const char *s, const char *end, int n, uint32_t *v)
{
    *v = 0;
    if (end - s < n)
        return -1;
    for (int i = 0; i < n; i++) {
        const char *digits = "0123456789abcdef";
        const char *d = s[i] ? strchr(digits, s[i] | 0x20) : NULL;

        if (!d)
            return -1;
        *v = *v << 4 | (uint32_t)(d - digits);
    }
    return 0;
}

/* Decodes the escape of a STRING at 's'; returns its size, or 0. */
static int
unescape(const char *s, const char *end, char *c)
{
    static const char from[] = "\\'\"nrtabfv0", to[] = "\\'\"\n\r\t\a\b\f\v";
    const char *f;
    uint32_t v;

    if (end - s < 2)
        return 0;
    if (s[1] == 'x' && hex_digits(s + 2, end, 2, &v) == 0) {
        *c = (char)v;
        return 4;
    }
    f = s[1] ? strchr(from, s[1]) : NULL;
    if (!f)
        return 0;
    *c = to[f - from];
    return 2;
}

static struct pth_value *
new_str(struct pickle *p, size_t most, char **to)
{
    struct pth_value *v = pickle_value(p, PTH_STR);

    *to = v ? pickle_alloc(p, most ? most : 1, 1) : NULL;
    if (!*to)
        return NULL;
    v->u.s = *to;
    return v;
}

int
pickle_op_string(struct pickle *p)
{
    size_t n = 0;
    const char *s = pickle_line(p, &n);
    const char *end;
    struct pth_value *v;
    char *to;

    if (!s)
        return -1;
    end = s + n;
    if (n < 2 || (*s != '\'' && *s != '"') || end[-1] != *s)
        return pickle_bad(p, "STRING without quotes");
    v = new_str(p, n, &to);
    if (!v)
        return -1;
    for (s++, end--; s < end; v->n++) {
        int n_read = 1;

        to[v->n] = *s;
        if (*s == '\\')
            n_read = unescape(s, end, &to[v->n]);
        if (n_read == 0)
            return pickle_bad(p, "STRING with an unknown escape");
        s += n_read;
    }
    return pickle_push(p, v);
}

/* UNICODE is Latin-1, and \uXXXX for other characters. */
int
pickle_op_unicode(struct pickle *p)
{
    size_t n = 0;
    const char *s = pickle_line(p, &n);
    const char *end;
    struct pth_value *v;
    char *to;

    if (!s || !(v = new_str(p, 2 * n, &to)))
        return -1;
    end = s + n;
    while (s < end) {
        uint32_t code = (uint8_t)*s;
        int digits = s[0] != '\\' || end - s < 2 ? 0
                     : s[1] == 'u'               ? 4
                     : s[1] == 'U'               ? 8
                                                 : 0;

        if (digits > 0 && (hex_digits(s + 2, end, digits, &code) < 0 ||
                           code > 0x10ffff || code >> 11 == 0xd800 >> 11))
            return pickle_bad(p, "UNICODE with a bad escape");
        v->n += (uint32_t)utf8_put(to + v->n, code);
        s += digits ? digits + 2 : 1;
    }
    return pickle_push(p, v);
}

int
pickle_text_id(struct pickle *p, uint32_t *id)
{
    size_t n = 0;
    const char *s = pickle_line(p, &n);
    int64_t i;

    if (!s)
        return -1;
    if (!decimal(s, n, &i) || i < 0 || i > UINT32_MAX)
        return pickle_bad(p, "a memo's number is not 0 to %u", UINT32_MAX);
    *id = (uint32_t)i;
    return 0;
}
