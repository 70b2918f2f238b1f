/* SPDX-License-Identifier: ISC */
#include "core/jpull.h"

#include <string.h>

static const char escaped[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";

struct jpull
jpull_start(const char *text, size_t nbytes, int max_depth)
{
    return (struct jpull){
        .text = text, .end = text + nbytes, .p = text, .max_depth = max_depth
    };
}

bool
jpull_fail(struct jpull *j, const char *at, const char *expected)
{
    if (!j->expected) {
        j->expected = expected;
        j->at = at;
    }
    return false;
}

size_t
jpull_line(const struct jpull *j, size_t *column)
{
    const char *start = j->text;
    size_t line = 1;

    for (const char *p = start; p < j->at; p++)
        if (*p == '\n') {
            line++;
            start = p + 1;
        }
    *column = (size_t)(j->at - start) + 1;
    return line;
}

static inline char
peek(struct jpull *j)
{
    while (j->p < j->end &&
           (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r'))
        j->p++;
    return j->p < j->end ? *j->p : '\0';
}

char
jpull_peek(struct jpull *j)
{
    return peek(j);
}

bool
jpull_word(struct jpull *j, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(j->end - j->p) < n || memcmp(j->p, word, n) != 0)
        return false;
    j->p += n;
    return true;
}

static bool
read_hex4(struct jpull *j, uint32_t *v)
{
    *v = 0;
    for (int i = 0; i < 4; i++, j->p++) {
        char c = j->p < j->end ? *j->p : '\0';
        char lower = (char)(c | 0x20);

        if (c >= '0' && c <= '9')
            *v = *v << 4 | (uint32_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            *v = *v << 4 | (uint32_t)(lower - 'a' + 10);
        else
            return jpull_fail(j, j->p, "four hex digits after \\u");
    }
    return true;
}

/* The escape whose backslash is at j->p. */
static bool
read_escape(struct jpull *j, uint32_t *c)
{
    const char *at = j->p + 2, *letter;
    uint32_t low = 0;

    j->p++;
    if (!jpull_word(j, "u")) {
        letter =
            j->p < j->end && *j->p ? strchr(escaped, (unsigned char)*j->p) : 0;
        if (!letter)
            return jpull_fail(j, j->p, "one of \"\\/bfnrtu after a backslash");
        *c = (unsigned char)meant[letter - escaped];
        j->p++;
        return true;
    }
    if (!read_hex4(j, c))
        return false;
    if (*c < 0xd800 || *c >= 0xe000)
        return true;
    if (*c < 0xdc00 && jpull_word(j, "\\u")) {
        if (!read_hex4(j, &low))
            return false;
        if (low >= 0xdc00 && low < 0xe000) {
            *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
            return true;
        }
        j->p -= 6;
    }
    return j->python ||
           jpull_fail(j, at, "a pair of surrogates, not a lone one");
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

bool
jpull_string(struct jpull *j, const char *expected, struct jspan *s)
{
    const char *p = j->p, *end = j->end;
    uint32_t c;

    if (p == end || *p != '"')
        return jpull_fail(j, p, expected);
    s->s = ++p;
    s->escaped = false;
    for (;;) {
        while (end - p >= 8 && plain8(p))
            p += 8;
        while (p < end && (unsigned char)*p >= 0x20 &&
               (unsigned char)*p < 0x80 && *p != '"' && *p != '\\')
            p++;
        if (p == end || (unsigned char)*p < 0x20)
            return jpull_fail(j, p,
                              "a string's end, control characters escaped");
        if (*p == '"')
            break;
        if (*p == '\\') {
            s->escaped = true;
            j->p = p;
            if (!read_escape(j, &c))
                return false;
            p = j->p;
        } else {
            int n = utf8_next(p, (size_t)(end - p), &c);

            if (n == 0)
                return jpull_fail(j, p, "valid UTF-8");
            p += n;
        }
    }
    s->n = (size_t)(p - s->s);
    j->p = p + 1;
    return true;
}

static bool
is_digit(const struct jpull *j)
{
    return j->p < j->end && *j->p >= '0' && *j->p <= '9';
}

static bool
skip_digits(struct jpull *j)
{
    if (!is_digit(j))
        return jpull_fail(j, j->p, "a digit");
    while (is_digit(j))
        j->p++;
    return true;
}

bool
jpull_number(struct jpull *j, bool *is_float)
{
    *is_float = false;
    jpull_word(j, "-");
    if (!jpull_word(j, "0") && !skip_digits(j))
        return false;
    if (jpull_word(j, ".")) {
        *is_float = true;
        if (!skip_digits(j))
            return false;
    }
    if (jpull_word(j, "e") || jpull_word(j, "E")) {
        *is_float = true;
        if (!jpull_word(j, "+"))
            jpull_word(j, "-");
        return skip_digits(j);
    }
    return true;
}

bool
jpull_u64(struct jpull *j, uint64_t *v)
{
    static const char expected[] = "an integer from 0 to 2^64 - 1";
    const char *start = j->p, *p = start;
    uint64_t u = 0;

    for (; p < j->end && *p >= '0' && *p <= '9'; p++)
        if ((p > start && *start == '0') ||
            __builtin_mul_overflow(u, (uint64_t)10, &u) ||
            __builtin_add_overflow(u, (uint64_t)(*p - '0'), &u))
            return jpull_fail(j, start, expected);
    if (p == start || (p < j->end && (*p == '.' || (*p | 0x20) == 'e')))
        return jpull_fail(j, start, expected);
    j->p = p;
    *v = u;
    return true;
}

bool
jpull_enter(struct jpull *j, char open, const char *expected)
{
    if (j->p == j->end || *j->p != open)
        return jpull_fail(j, j->p, expected);
    if (j->depth == j->max_depth) {
        j->too_deep = !j->expected;
        return jpull_fail(j, j->p, "fewer levels of nesting");
    }
    j->depth++;
    j->p++;
    j->first = true;
    return true;
}

bool
jpull_item(struct jpull *j, char close)
{
    char c = peek(j);

    if (j->expected)
        return false;
    if (c == close) {
        j->p++;
        j->depth--;
    } else if (!j->first) {
        if (c != ',')
            return jpull_fail(j, j->p,
                              close == '}' ? "',' or '}'" : "',' or ']'");
        j->p++;
        peek(j);
    }
    j->first = false;
    return c != close;
}

bool
jpull_member(struct jpull *j, struct jspan *key)
{
    if (!jpull_item(j, '}') || !jpull_string(j, "a name in quotes", key))
        return false;
    if (peek(j) != ':')
        return jpull_fail(j, j->p, "':'");
    j->p++;
    peek(j);
    return true;
}

/* The recursion is bounded by jpull_enter(). */
bool
jpull_skip(struct jpull *j)
{
    char open = j->p < j->end ? *j->p : '\0';
    struct jspan s;
    bool is_float;

    if (open == '"')
        return jpull_string(j, "a string", &s);
    if (open == '{' || open == '[') {
        if (!jpull_enter(j, open, "a value"))
            return false;
        while (open == '{' ? jpull_member(j, &s) : jpull_item(j, ']'))
            if (!jpull_skip(j))
                return false;
        return !j->expected;
    }
    if (j->python && (jpull_word(j, "NaN") || jpull_word(j, "Infinity") ||
                      jpull_word(j, "-Infinity")))
        return true;
    if (open == '-' || is_digit(j))
        return jpull_number(j, &is_float);
    return jpull_word(j, "true") || jpull_word(j, "false") ||
           jpull_word(j, "null") || jpull_fail(j, j->p, "a JSON value");
}

bool
jpull_done(struct jpull *j)
{
    peek(j);
    return !j->expected &&
           (j->p == j->end ||
            jpull_fail(j, j->p, "nothing but spaces after the JSON value"));
}

size_t
jspan_decode(const struct jspan *s, char *to)
{
    struct jpull j = jpull_start(s->s, s->n, 0);
    size_t n = 0;

    j.python = true;
    while (j.p < j.end) {
        size_t left = (size_t)(j.end - j.p);
        const char *slash = s->escaped ? memchr(j.p, '\\', left) : NULL;
        size_t plain = slash ? (size_t)(slash - j.p) : left;
        uint32_t c;

        if (to + n != j.p)
            memmove(to + n, j.p, plain);
        n += plain;
        j.p += plain;
        if (slash && read_escape(&j, &c))
            n += (size_t)utf8_put(to + n, c);
    }
    return n;
}

void
jspan_add(const struct jspan *s, struct str *to)
{
    str_reserve(to, s->n + 1);
    to->n += jspan_decode(s, to->s + to->n);
    to->s[to->n] = '\0';
}

bool
jspan_means(const struct jspan *s, const char *word, size_t nbytes)
{
    char means[6 * 16];

    return s->n <= sizeof(means) && jspan_decode(s, means) == nbytes &&
           memcmp(means, word, nbytes) == 0;
}

void
jput_escape(struct str *out, uint32_t c)
{
    const char *p = c && c < 0x80 && c != '/' ? strchr(meant, (int)c) : NULL;

    if (p) {
        str_addc(out, '\\');
        str_addc(out, escaped[p - meant]);
        return;
    }
    if (c > 0xffff) {
        str_addf(out, "\\u%04x", 0xd800 + ((c - 0x10000) >> 10));
        c = 0xdc00 + ((c - 0x10000) & 0x3ff);
    }
    str_addf(out, "\\u%04x", c);
}
