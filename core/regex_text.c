#include "core/regex_text.h"

#include <string.h>

#include "core/mem.h"
#include "core/regex.h"
#include "core/str.h"

/* Of properties, groups, code points: "^Han", "sc:Greek", "U+1F600", "-1". */
#define NAME_CHARS                                                     \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ " \
    "^&:=+-"

struct shape {
    struct regex_text *to;
    const char *p, *end;
    size_t depth;
    /* of each open group; [0] is the pattern: */
    bool bar[REGEX_MAX_NEST + 2];    /* has it alternatives, at any depth? */
    bool atomic[REGEX_MAX_NEST + 2]; /* nothing backtracks into it */
    bool closed; /* a group with alternatives has just ended */
    bool in_class;
    bool extended; /* (?x) is somewhere: comments may look like brackets */
    bool has_verb; /* "(*", or what looks so in brackets if 'extended' */
    bool verb_in_class;
};

/* The character after 'i' others is one of these. */
static bool
next_is(const struct shape *shape, size_t i, const char *set)
{
    size_t left = (size_t)(shape->end - shape->p);

    return i < left && shape->p[i] && strchr(set, shape->p[i]);
}

/* Skips an escape sequence with its braces, which are not an interval's. Braces
 * without a name or number in them do not belong to it: they may stand in a
 * comment. */
static void
skip_escape(struct shape *shape)
{
    size_t i = 3;

    if (next_is(shape, 1, "G"))
        shape->to->has_start = true;
    if (next_is(shape, 1, "g")) /* may call a group */
        shape->to->jit_counts = false;
    if (next_is(shape, 1, "xopPgkN") && next_is(shape, 2, "{")) {
        while (next_is(shape, i, NAME_CHARS))
            i++;
        shape->p += next_is(shape, i, "}") ? i : 1;
    } else {
        shape->p++;
    }
}

/* Is it a group that the JIT is known to count? */
static bool
is_known_group(struct shape *shape)
{
    static const char define[] = "(?(DEFINE)";
    size_t left = (size_t)(shape->end - shape->p), i = 2;
    bool known = true;

    if (!next_is(shape, 1, "?"))
        return true;
    if (left > strlen(define) && !memcmp(shape->p, define, strlen(define)))
        return true;
    for (; next_is(shape, i, "imsxnJU^-"); i++) {
        shape->extended = shape->extended || next_is(shape, i, "x");
        known = known && next_is(shape, i, "i-");
    }
    return known && next_is(shape, i, i > 2 ? ":)" : ":=!<>&");
}

static void
read_char(struct shape *shape)
{
    char c = *shape->p;
    size_t n = 0, i = 1, d;

    if (c == '\\') {
        skip_escape(shape);
    } else if (c == '{') {
        while (next_is(shape, i, " \t")) /* since PCRE2 10.43 */
            i++;
        for (; n < 65536 && next_is(shape, i, "0123456789"); i++)
            n = 10 * n + (size_t)(shape->p[i] - '0');
        shape->to->repeat = larger(shape->to->repeat, n);
    } else if (shape->in_class) {
        shape->in_class = c != ']';
        shape->verb_in_class =
            shape->verb_in_class || (c == '(' && next_is(shape, 1, "*"));
    } else if (c == '[') {
        shape->in_class = true;
        shape->p += next_is(shape, 1, "^");
        shape->p += next_is(shape, 1, "]"); /* first: itself */
    } else if (c == '|') {
        shape->bar[shape->depth] = true;
    } else if (c == '(' && shape->depth <= REGEX_MAX_NEST) {
        shape->has_verb = shape->has_verb || next_is(shape, 1, "*");
        shape->to->jit_counts = is_known_group(shape) && shape->to->jit_counts;
        d = ++shape->depth;
        shape->bar[d] = false;
        shape->atomic[d] =
            next_is(shape, 1, "?") &&
            (next_is(shape, 2, "=!>(") ||
             (next_is(shape, 2, "<") && next_is(shape, 3, "=!")));
    } else if (c == ')' && shape->depth > 0) {
        d = shape->depth--;
        shape->closed = shape->bar[d] && !shape->atomic[d];
        shape->bar[d - 1] = shape->bar[d - 1] || shape->closed;
    }
}

/* ---- ranges ---- */

/* (?i), and what looks like it after a backslash or in brackets. */
static bool
ignores_case(const char *p, const char *end)
{
    while ((p = memmem(p, (size_t)(end - p), "(?", 2))) {
        p += 2;
        for (; p < end && (*p == '^' || *p == '-' ||
                           ((*p | 32) >= 'a' && (*p | 32) <= 'z'));
             p++)
            if (*p == 'i')
                return true;
    }
    return false;
}

/* \x{10ffff}, \o{7}, \N{U+ff}; 0: it is none of them. */
static size_t
read_braces(const char *p, const char *end, uint32_t *c)
{
    uint32_t base = p[1] == 'o' ? 8 : 16;
    const char *at = p + (p[1] == 'N' ? 5 : 3);

    if (end - p < 4 || !strchr("xoN", p[1]) || p[2] != '{' ||
        (p[1] == 'N' && memcmp(p + 3, "U+", 2) != 0))
        return 0;
    for (*c = 0; at < end; at++) {
        const char *digits = "0123456789abcdef";
        const char *digit = *at ? strchr(digits, *at | 32) : NULL;

        if (*at == '}')
            return (size_t)(at + 1 - p);
        if (*at != ' ' && (!digit || (uint32_t)(digit - digits) >= base))
            return 0;
        if (digit)
            *c = (uint32_t)smaller(*c * base + (uint32_t)(digit - digits),
                                   0x10ffff);
    }
    return 0;
}

/* A character as it may stand in brackets.  Of an escape without braces that is
 * less than 512, and 'guess' is as good as any. */
static size_t
read_member(const char *p, const char *end, uint32_t guess, uint32_t *c)
{
    size_t n = (size_t)(end - p), k;

    *c = guess;
    if (*p != '\\')
        return larger((size_t)utf8_next(p, n, c), 1);
    if (n == 1)
        return 1;
    k = read_braces(p, end, c);
    if (k == 0 && strchr("01234567x", p[1])) /* digits follow */
        for (k = 2; k < 4 && k < n && strchr("0123456789abcdef", p[k] | 32);)
            k++;
    return k ? k : 2;
}

/* (?xx) allows them in brackets. */
static const char *
skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

/*
 * Characters in all ranges A-Z, also in comments or outside of brackets, if it
 * looks like one.
 */
static size_t
count_ranges(const char *p, const char *end)
{
    size_t n = 0;
    uint32_t a, z;

    while (p < end) {
        const char *at;

        p += read_member(p, end, 0, &a);
        at = skip_blanks(p, end);
        if (at == end || *at != '-')
            continue;
        at = skip_blanks(at + 1, end);
        if (at == end)
            break;
        read_member(at, end, 512, &z);
        n += z >= a ? z - a + 1 : 0;
    }
    return n;
}

void
regex_text_read(struct regex_text *text, const char *pattern, size_t n)
{
    struct shape shape = { .to = text, .p = pattern, .end = pattern + n };

    *text = (struct regex_text){ .jit_counts = true };
    for (; shape.p < shape.end; shape.p++) {
        /* What follows a group with alternatives makes the JIT come back to
         * them, which it counts if the group is repeated, but not by a fixed
         * number or lazily. */
        if (shape.closed && !next_is(&shape, 0, "|)") &&
            (!next_is(&shape, 0, "*+?") || next_is(&shape, 1, "?")))
            text->jit_counts = false;
        shape.closed = false;
        if (next_is(&shape, 0, "\\") && next_is(&shape, 1, "EQX"))
            text->refused = text->refused       ? text->refused
                            : shape.p[1] == 'E' ? "\\E"
                            : shape.p[1] == 'Q' ? "\\Q"
                                                : "\\X";
        read_char(&shape);
    }
    if (shape.has_verb || (shape.extended && shape.verb_in_class))
        text->refused = "\"(*\"";
    if (ignores_case(pattern, shape.end))
        text->n_folded = count_ranges(pattern, shape.end);
}
