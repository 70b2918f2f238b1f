#include "core/format/st_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/str.h"

int
st_name_shown(const char *name, size_t nbytes)
{
    size_t n = nbytes < 200 ? nbytes : 200;

    while (n > 0 && n < nbytes && ((unsigned char)name[n] & 0xc0) == 0x80)
        n--;
    return (int)n;
}

int
st_json_err(struct st_json *j, const char *fmt, ...)
{
    struct str s = { 0 };
    char what[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    if (j->tensor)
        str_addf(&s, "tensor \"%.*s\": ", st_name_shown(j->tensor, j->tensor_n),
                 j->tensor);
    err_set(j->err, EX_DATAERR, "%s: %s%s", j->file, s.s ? s.s : "", what);
    str_free(&s);
    return -1;
}

int
st_json_bad(struct st_json *j, const char *at, const char *expected)
{
    size_t offset = (size_t)(at - j->text) + 8;
    unsigned char c = (unsigned char)*at;

    if (at >= j->end)
        return st_json_err(j, "the header ends at byte %zu (expected %s)",
                           offset, expected);
    if (c > 0x20 && c < 0x7f)
        return st_json_err(j, "byte %zu is '%c' (expected %s)", offset, c,
                           expected);
    return st_json_err(j, "byte %zu is 0x%02x (expected %s)", offset, c,
                       expected);
}

int
st_json_bad_token(struct st_json *j, const char *what, const char *expected)
{
    size_t n = strcspn(j->p, ",]} \t\r\n");

    if (n == 0)
        return st_json_bad(j, j->p, expected);
    return st_json_err(j, "%s is %.*s%s (expected %s)", what,
                       (int)(n < 40 ? n : 40), j->p, n > 40 ? "..." : "",
                       expected);
}

void
st_json_space(struct st_json *j)
{
    while (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r')
        j->p++;
}

/* Four hex digits at j->p, or -1 without an error. */
static long
hex4(struct st_json *j)
{
    long v = 0;

    for (int i = 0; i < 4; i++, j->p++) {
        char c = *j->p;

        if (c >= '0' && c <= '9')
            v = v << 4 | (c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            v = v << 4 | ((c | 0x20) - 'a' + 10);
        else
            return -1;
    }
    return v;
}

/* \uXXXX, or a pair of them, behind the 'u'. */
static int
read_unicode(struct st_json *j, char **w)
{
    char *at = j->p;
    long c = hex4(j);

    if (c < 0)
        return st_json_bad(j, j->p, "four hex digits after \\u");
    if (c >= 0xd800 && c < 0xe000) {
        long low = -1;

        if (c < 0xdc00 && j->p[0] == '\\' && j->p[1] == 'u') {
            j->p += 2;
            low = hex4(j);
        }
        if (low < 0xdc00 || low >= 0xe000)
            return st_json_bad(j, at, "a pair of surrogates, not a lone one");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    *w += utf8_put(*w, (uint32_t)c);
    return 0;
}

static int
read_escape(struct st_json *j, char **w)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found;

    j->p++;
    if (*j->p == 'u') {
        j->p++;
        return read_unicode(j, w);
    }
    found = *j->p ? strchr(from, *j->p) : NULL;
    if (!found)
        return st_json_bad(j, j->p, "one of \"\\/bfnrtu after a backslash");
    *(*w)++ = to[found - from];
    j->p++;
    return 0;
}

#define EACH(c) (UINT64_C(0x0101010101010101) * (c))

/* Is each of the 8 bytes ASCII, no control, no quote and no backslash? */
static bool
plain8(const char *p)
{
    uint64_t x, quote, slash;

    memcpy(&x, p, sizeof(x));
    quote = x ^ EACH('"');
    slash = x ^ EACH('\\');
    return !((x | ((x - EACH(0x20)) & ~x) | ((quote - EACH(1)) & ~quote) |
              ((slash - EACH(1)) & ~slash)) &
             EACH(0x80));
}

static bool
plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' &&
           c != '\\';
}

/* Moves the plain run at j->p down to *w; in a name without escapes it lies
 * there already. */
static void
copy_run(struct st_json *j, char **w)
{
    char *run = j->p;
    size_t n;

    while (plain8(j->p))
        j->p += 8;
    while (plain(*j->p))
        j->p++;
    n = (size_t)(j->p - run);
    if (*w != run)
        memmove(*w, run, n);
    *w += n;
}

/* A string, unescaped in place and ended by a NUL. */
int
st_json_string(struct st_json *j, const char *expected, char **s,
               size_t *nbytes)
{
    char *w;

    if (*j->p != '"')
        return st_json_bad(j, j->p, expected);
    *s = w = ++j->p;
    for (;;) {
        copy_run(j, &w);
        if (*j->p == '"')
            break;
        if (*j->p == '\\') {
            if (read_escape(j, &w) < 0)
                return -1;
        } else if ((unsigned char)*j->p >= 0x80) {
            uint32_t c;
            int n = utf8_next(j->p, (size_t)(j->end - j->p), &c);

            if (n == 0)
                return st_json_bad(j, j->p, "valid UTF-8");
            memmove(w, j->p, (size_t)n);
            w += n;
            j->p += n;
        } else {
            return st_json_bad(j, j->p,
                               "a string's end, control characters escaped");
        }
    }
    j->p++;
    *w = '\0';
    *nbytes = (size_t)(w - *s);
    return 0;
}

/* Enters the object or array that opens with 'c'. */
int
st_json_enter(struct st_json *j, char c, const char *expected)
{
    if (*j->p != c)
        return st_json_bad(j, j->p, expected);
    if (++j->depth > ST_JSON_NESTING)
        return st_json_bad(j, j->p, "at most 128 levels of nesting");
    j->p++;
    return 0;
}

/* To the next item of an object or array: 1, 0 at its end, or -1. */
int
st_json_next_item(struct st_json *j, bool first, char close)
{
    st_json_space(j);
    if (*j->p == close) {
        j->p++;
        j->depth--;
        return 0;
    }
    if (first)
        return 1;
    if (*j->p != ',')
        return st_json_bad(j, j->p, close == '}' ? "',' or '}'" : "',' or ']'");
    j->p++;
    st_json_space(j);
    return 1;
}

/* To the value of an object's next member: 1, 0 at its end, or -1. */
int
st_json_next_member(struct st_json *j, bool first, char **key, size_t *nbytes)
{
    int rc = st_json_next_item(j, first, '}');

    if (rc <= 0)
        return rc;
    if (st_json_string(j, "a name in quotes", key, nbytes) < 0)
        return -1;
    st_json_space(j);
    if (*j->p != ':')
        return st_json_bad(j, j->p, "':'");
    j->p++;
    st_json_space(j);
    return 1;
}

static bool
digit(char c)
{
    return c >= '0' && c <= '9';
}

static int
skip_digits(struct st_json *j)
{
    if (!digit(*j->p))
        return st_json_bad(j, j->p, "a digit");
    while (digit(*j->p))
        j->p++;
    return 0;
}

/* A number nobody asks for: only its grammar is checked. */
static int
skip_number(struct st_json *j)
{
    if (*j->p == '-')
        j->p++;
    if (*j->p == '0')
        j->p++;
    else if (skip_digits(j) < 0)
        return -1;
    if (*j->p == '.') {
        j->p++;
        if (skip_digits(j) < 0)
            return -1;
    }
    if (*j->p == 'e' || *j->p == 'E') {
        j->p++;
        if (*j->p == '+' || *j->p == '-')
            j->p++;
        if (skip_digits(j) < 0)
            return -1;
    }
    return 0;
}

static int
skip_word(struct st_json *j)
{
    static const char words[3][6] = { "true", "false", "null" };

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);

        if (!strncmp(j->p, words[i], n)) {
            j->p += n;
            return 0;
        }
    }
    return st_json_bad(j, j->p, "a JSON value");
}

/* The value of a field nobody asks for; recursion is bounded by
 * st_json_enter(). */
int
st_json_skip(struct st_json *j)
{
    char open = *j->p;
    char *s;
    size_t n;
    int rc;

    if (open == '"')
        return st_json_string(j, "a string", &s, &n);
    if (open == '-' || digit(open))
        return skip_number(j);
    if (open != '{' && open != '[')
        return skip_word(j);
    if (st_json_enter(j, open, "a value") < 0)
        return -1;
    for (bool first = true;; first = false) {
        rc = open == '{' ? st_json_next_member(j, first, &s, &n)
                         : st_json_next_item(j, first, ']');
        if (rc <= 0)
            return rc;
        if (st_json_skip(j) < 0)
            return -1;
    }
}

/* An exact integer: neither 1.0 nor 1e0 nor -0 nor "1" nor 01. */
int
st_json_u64(struct st_json *j, const char *what, uint64_t *v)
{
    static const char expected[] = "an integer from 0 to 2^64 - 1";
    char *p = j->p;
    uint64_t u = 0;

    if (*p == '0') {
        p++;
    } else {
        for (; digit(*p); p++)
            if (__builtin_mul_overflow(u, (uint64_t)10, &u) ||
                __builtin_add_overflow(u, (uint64_t)(*p - '0'), &u))
                return st_json_bad_token(j, what, expected);
    }
    if (p == j->p || digit(*p) || *p == '.' || (*p | 0x20) == 'e')
        return st_json_bad_token(j, what, expected);
    j->p = p;
    *v = u;
    return 0;
}
