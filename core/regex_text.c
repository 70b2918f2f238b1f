#include "core/regex_text.h"

#include <string.h>

#include "core/mem.h"
#include "core/regex.h"

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

/* An escape sequence with its braces, which are no interval's. */
static void
skip_escape(struct shape *shape)
{
    const char *close;

    if (next_is(shape, 1, "G"))
        shape->to->has_start = true;
    if (next_is(shape, 1, "g")) /* may call a group */
        shape->to->jit_counts = false;
    if (next_is(shape, 1, "xopPgkN") && next_is(shape, 2, "{")) {
        close = memchr(shape->p, '}', (size_t)(shape->end - shape->p));
        shape->p = close ? close : shape->p + 1;
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
open_group(struct shape *shape)
{
    shape->has_verb = shape->has_verb || next_is(shape, 1, "*");
    shape->to->jit_counts = is_known_group(shape) && shape->to->jit_counts;
    shape->depth++;
    shape->bar[shape->depth] = false;
    shape->atomic[shape->depth] =
        next_is(shape, 1, "?") &&
        (next_is(shape, 2, "=!>(") ||
         (next_is(shape, 2, "<") && next_is(shape, 3, "=!")));
}

static void
close_group(struct shape *shape)
{
    bool bar = shape->bar[shape->depth] && !shape->atomic[shape->depth];

    if (shape->depth == 0)
        return;
    shape->depth--;
    shape->bar[shape->depth] = shape->bar[shape->depth] || bar;
    shape->closed = bar;
}

/*
 * What follows a group with alternatives makes the JIT come back to them, which
 * it counts if the group is repeated, but not by a fixed number or lazily.
 */
static bool
is_counted_after_group(const struct shape *shape)
{
    return next_is(shape, 0, "|)") ||
           (next_is(shape, 0, "*+?") && !next_is(shape, 1, "?"));
}

static void
read_interval(const struct shape *shape)
{
    size_t n = 0, i = 1;

    while (next_is(shape, i, " \t")) /* since PCRE2 10.43 */
        i++;
    for (; n < 65536 && next_is(shape, i, "0123456789"); i++)
        n = 10 * n + (size_t)(shape->p[i] - '0');
    shape->to->repeat = larger(shape->to->repeat, n);
}

static void
read_char(struct shape *shape)
{
    char c = *shape->p;

    if (c == '\\') {
        skip_escape(shape);
    } else if (c == '{') {
        read_interval(shape);
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
        open_group(shape);
    } else if (c == ')') {
        close_group(shape);
    }
}

void
regex_text_read(struct regex_text *text, const char *pattern, size_t n)
{
    struct shape shape = { .to = text, .p = pattern, .end = pattern + n };

    *text = (struct regex_text){ .jit_counts = true };
    for (; shape.p < shape.end; shape.p++) {
        if (shape.closed && !is_counted_after_group(&shape))
            text->jit_counts = false;
        shape.closed = false;
        if (next_is(&shape, 0, "\\") && next_is(&shape, 1, "Q"))
            text->refused = "\\Q";
        read_char(&shape);
    }
    if (shape.has_verb || (shape.extended && shape.verb_in_class))
        text->refused = "\"(*\"";
}
