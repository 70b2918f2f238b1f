/* SPDX-License-Identifier: ISC */
#include "core/text/template_lex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/tok_norm.h"

struct lexer {
    struct tmpl_heap *heap;
    const char *name;
    const char *s; /* without carriage returns and the last newline */
    size_t n, at;
    unsigned line;
    char open[TEMPLATE_MAX_NESTED]; /* brackets of the tag */
    size_t n_open;
    struct tmpl_token *tokens;
    size_t n_tokens, cap_tokens;
    struct err *err;
};

size_t
tmpl_space(const char *s, size_t n)
{
    uint32_t c;
    int length = n ? utf8_next(s, n, &c) : 0;
    bool space = length > 0 && (is_white_space(c) || (c >= 0x1c && c <= 0x1f));

    return space ? (size_t)length : 0;
}

size_t
tmpl_space_before(const char *s, size_t n)
{
    for (size_t k = 1; k <= n && k <= 3; k++)
        if (tmpl_space(s + n - k, k) == k)
            return k;
    return 0;
}

static int
fail(struct lexer *lx, const char *what)
{
    return err_set(lx->err, EX_DATAERR, "%s: line %u: %s", lx->name, lx->line,
                   what);
}

/* Goes on to a place further on in the text. */
static void
advance(struct lexer *lx, size_t to)
{
    for (; lx->at < to; lx->at++)
        lx->line += lx->s[lx->at] == '\n';
}

static size_t
skip_spaces(const struct lexer *lx, size_t at)
{
    size_t k;

    while ((k = tmpl_space(lx->s + at, lx->n - at)) > 0)
        at += k;
    return at;
}

static bool
looks_at(const struct lexer *lx, size_t at, const char *word)
{
    size_t k = strlen(word);

    return k <= lx->n - at && !memcmp(lx->s + at, word, k);
}

static void
add(struct lexer *lx, int type, struct tmpl_value value)
{
    if (lx->n_tokens == lx->cap_tokens)
        lx->tokens = xgrow(lx->tokens, lx->n_tokens, &lx->cap_tokens,
                           sizeof(*lx->tokens));
    lx->tokens[lx->n_tokens++] =
        (struct tmpl_token){ .type = type, .line = lx->line, .value = value };
}

/* A token of the bytes up to 'end'. */
static void
add_bytes(struct lexer *lx, int type, size_t end)
{
    add(lx, type, tmpl_text(lx->heap, lx->s + lx->at, end - lx->at, 0));
    advance(lx, end);
}

/* Where what ends a tag at 'at' ends: "%}", "-%}", which takes the white space
 * after it, "+%}"; a newline goes with a block; 0: it does not end there. */
static size_t
tag_end(const struct lexer *lx, size_t at, const char *end)
{
    char sign = at < lx->n ? lx->s[at] : '\0';
    bool print = end[0] == '}';
    size_t after;

    if (sign == '-' || (sign == '+' && !print))
        after = at + 1;
    else
        after = at;
    if (!looks_at(lx, after, end))
        return 0;
    after += 2;
    if (after - at == 3)
        return sign == '-' ? skip_spaces(lx, after) : after;
    return after + (!print && after < lx->n && lx->s[after] == '\n');
}

/* Text up to 'end', where a tag begins, without the white space before it that
 * the tag's sign or lstrip_blocks remove. */
static void
add_data(struct lexer *lx, size_t end, char sign, bool print)
{
    size_t stop = end, k;

    if (sign == '-') {
        while ((k = tmpl_space_before(lx->s + lx->at, stop - lx->at)) > 0)
            stop -= k;
    } else if (sign != '+' && !print) {
        while (stop > lx->at && lx->s[stop - 1] != '\n' &&
               (k = tmpl_space_before(lx->s + lx->at, stop - lx->at)) > 0)
            stop -= k;
        if (stop > 0 && lx->s[stop - 1] != '\n')
            stop = end; /* not on a line of its own */
    }
    if (stop > lx->at)
        add_bytes(lx, TMPL_DATA, stop);
    advance(lx, end);
}

/* Where {% raw %} ends if it begins at 'at', else 0. */
static size_t
raw_begin(const struct lexer *lx, size_t at)
{
    at += at < lx->n && (lx->s[at] == '-' || lx->s[at] == '+');
    at = skip_spaces(lx, at);
    if (!looks_at(lx, at, "raw"))
        return 0;
    at = skip_spaces(lx, at + 3);
    if (looks_at(lx, at, "%}"))
        return at + 2;
    return looks_at(lx, at, "-%}") ? tag_end(lx, at, "%}") : 0;
}

/* The text up to {% endraw %}. */
static int
raw(struct lexer *lx)
{
    unsigned line = lx->line;

    for (size_t at = lx->at; at < lx->n; at++) {
        char sign;
        size_t end;

        if (!looks_at(lx, at, "{%"))
            continue;
        sign = at + 2 < lx->n ? lx->s[at + 2] : '\0';
        end = skip_spaces(lx, at + 2 + (sign == '-' || sign == '+'));
        if (!looks_at(lx, end, "endraw"))
            continue;
        end = tag_end(lx, skip_spaces(lx, end + 6), "%}");
        if (end == 0)
            continue;
        add_data(lx, at, sign, false);
        advance(lx, end);
        return 0;
    }
    lx->line = line;
    return fail(lx, "{% raw %} has no {% endraw %}");
}

static int
comment(struct lexer *lx)
{
    for (size_t at = lx->at; at < lx->n; at++) {
        size_t end = tag_end(lx, at, "#}");

        if (end) {
            advance(lx, end);
            return 0;
        }
    }
    return fail(lx, "{# has no #}");
}

/* What a backslash and the characters after it mean in a string; *at is after
 * the backslash. */
static int
escape(struct lexer *lx, struct tmpl_builder *b, size_t *at)
{
    static const char letters[] = "\\'\"abfnrtv",
                      meant[] = "\\'\"\a\b\f\n\r\t\v";
    char c = lx->s[(*at)++], utf8[4], hex[9] = "", *end;
    const char *p = c ? strchr(letters, c) : NULL;
    size_t n_hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    unsigned long code;
    uint32_t wide;

    if (c == '\n')
        return 0;
    if (p) {
        tmpl_put(b, &meant[p - letters], 1, 0);
        return 0;
    }
    if (c >= '0' && c <= '7') {
        code = (unsigned long)(c - '0');
        for (int i = 0; i < 2 && lx->s[*at] >= '0' && lx->s[*at] <= '7'; i++)
            code = 8 * code + (unsigned long)(lx->s[(*at)++] - '0');
    } else if (n_hex) {
        memcpy(hex, lx->s + *at, smaller(n_hex, lx->n - *at));
        if (strspn(hex, "0123456789abcdefABCDEF") < n_hex)
            return fail(lx, "a string has an escape without its digits");
        code = strtoul(hex, &end, 16);
        *at += n_hex;
    } else if (c == 'N') {
        return fail(lx, "\\N in strings is not supported");
    } else {
        tmpl_put(b, "\\", 1, 0);
        if ((unsigned char)c < 0x80) {
            tmpl_put(b, &c, 1, 0);
            return 0;
        }
        /* Python's decoder takes the character, as \xe9, for what follows */
        *at += (size_t)utf8_next(lx->s + *at - 1, lx->n - *at + 1, &wide) - 1;
        char name[12];
        int n = wide < 0x100     ? snprintf(name, sizeof(name), "x%02x", wide)
                : wide < 0x10000 ? snprintf(name, sizeof(name), "u%04x", wide)
                                 : snprintf(name, sizeof(name), "U%08x", wide);

        tmpl_put(b, name, (size_t)n, 0);
        return 0;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return fail(lx, "a string has an escape that is no character");
    tmpl_put(b, utf8, (size_t)utf8_put(utf8, (uint32_t)code), 0);
    return 0;
}

static int
string(struct lexer *lx)
{
    struct tmpl_builder b = { .heap = lx->heap };
    char quote = lx->s[lx->at];
    size_t end = lx->at + 1, at = end;

    while (end < lx->n && lx->s[end] != quote)
        end += lx->s[end] == '\\' ? 2 : 1;
    if (end >= lx->n)
        return fail(lx, "a string has no end");
    while (at < end) {
        const char *p = memchr(lx->s + at, '\\', end - at);
        size_t to = p ? (size_t)(p - lx->s) : end;

        tmpl_put(&b, lx->s + at, to - at, 0);
        at = to + 1;
        if (p && escape(lx, &b, &at) < 0)
            return -1;
    }
    add(lx, TMPL_STRING, tmpl_built(&b));
    advance(lx, end + 1);
    return 0;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits of a base with single underscores between them, from 'at' on; copies
 * them without. */
static size_t
digits(const struct lexer *lx, size_t at, const char *of, struct str *to)
{
    for (;; at++) {
        bool under = at + 1 < lx->n && lx->s[at] == '_';

        if (at + under >= lx->n || !lx->s[at + under] ||
            !strchr(of, lx->s[at + under]))
            return at;
        at += under;
        str_addc(to, lx->s[at]);
    }
}

static int
number(struct lexer *lx)
{
    static const char decimal[] = "0123456789";
    struct str s = { 0 };
    size_t at = lx->at, end = digits(lx, at, decimal, &s), more;
    char x = end < lx->n ? lx->s[end] | ' ' : '\0';
    int base = 10;
    bool real = false;

    if (end == at + 1 && lx->s[at] == '0' && (x == 'b' || x == 'o' || x == 'x'))
        base = x == 'b' ? 2 : x == 'o' ? 8 : 16;
    if (base != 10) {
        str_clear(&s);
        more = digits(lx, end + 1,
                      base == 2   ? "01"
                      : base == 8 ? "01234567"
                                  : "0123456789abcdefABCDEF",
                      &s);
        end = more > end + 1 ? more : end;
    } else if (at == 0 || lx->s[at - 1] != '.') {
        if (looks_at(lx, end, ".") && end + 1 < lx->n &&
            is_digit(lx->s[end + 1])) {
            str_addc(&s, '.');
            end = digits(lx, end + 1, decimal, &s);
            real = true;
        }
        more = end + 1;
        if (end < lx->n && (lx->s[end] | ' ') == 'e') {
            more += more < lx->n && (lx->s[more] == '+' || lx->s[more] == '-');
            if (more < lx->n && is_digit(lx->s[more])) {
                str_add(&s, lx->s + end, more - end);
                end = digits(lx, more, decimal, &s);
                real = true;
            }
        }
    }
    if (!real && base == 10 && s.s[0] == '0' && strspn(s.s, "0") < s.n) {
        str_free(&s);
        return fail(lx, "a number begins with 0");
    }
    errno = 0;
    if (real)
        add(lx, TMPL_NUMBER, tmpl_float(strtod(s.s, NULL)));
    else
        add(lx, TMPL_NUMBER, tmpl_int(strtoll(s.n ? s.s : "0", NULL, base)));
    str_free(&s);
    if (!real && errno)
        return fail(lx, "an integer has more than 64 bits");
    advance(lx, end);
    return 0;
}

static int
operator(struct lexer *lx)
{
    static const struct {
        const char *s;
        int type;
    } pairs[] = { { "//", TMPL_FLOORDIV }, { "**", TMPL_POW },
                  { "==", TMPL_EQ },       { "!=", TMPL_NE },
                  { ">=", TMPL_GE },       { "<=", TMPL_LE } };
    static const char single[] = "+-/*%~[](){}><=.:|,;";
    char c = lx->s[lx->at], what[40];
    const char *p;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
        if (looks_at(lx, lx->at, pairs[i].s)) {
            add_bytes(lx, pairs[i].type, lx->at + 2);
            return 0;
        }
    if (!c || !strchr(single, c)) {
        uint32_t wide;
        int k = utf8_next(lx->s + lx->at, lx->n - lx->at, &wide);

        snprintf(what, sizeof(what), "unexpected character '%.*s'", k,
                 lx->s + lx->at);
        return fail(lx, what);
    }
    if ((p = strchr("([{", c)) != NULL) {
        if (lx->n_open == sizeof(lx->open))
            return fail(lx, "brackets are nested more than 200 levels deep");
        lx->open[lx->n_open++] = ")]}"[p - strchr("([{", '(')];
    } else if (strchr(")]}", c)) {
        if (lx->n_open == 0 || lx->open[lx->n_open - 1] != c) {
            snprintf(what, sizeof(what), "unexpected '%c'", c);
            return fail(lx, what);
        }
        lx->n_open--;
    }
    add_bytes(lx, c, lx->at + 1);
    return 0;
}

static bool
in_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80 || (!first && is_digit(c));
}

/* The tokens of {{ }} or {% %}, up to its end. */
static int
tag(struct lexer *lx, bool print)
{
    lx->n_open = 0;
    while (lx->at < lx->n) {
        size_t end = lx->n_open ? 0 : tag_end(lx, lx->at, print ? "}}" : "%}");
        char c = lx->s[lx->at];
        int rc = 0;

        if (end) {
            add_bytes(lx, print ? TMPL_PRINT_END : TMPL_BLOCK_END, end);
            return 0;
        }
        end = skip_spaces(lx, lx->at);
        if (end > lx->at) {
            advance(lx, end);
        } else if (is_digit(c)) {
            rc = number(lx);
        } else if (in_name(c, true)) {
            while (end < lx->n && in_name(lx->s[end], false) &&
                   !tmpl_space(lx->s + end, lx->n - end))
                end++;
            add_bytes(lx, TMPL_NAME, end);
        } else if (c == '\'' || c == '"') {
            rc = string(lx);
        } else {
            rc = operator(lx);
        }
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* Text with tags. */
static int
root(struct lexer *lx)
{
    while (lx->at < lx->n) {
        size_t at = lx->at, end;
        char sign;

        while (at < lx->n && !looks_at(lx, at, "{{") &&
               !looks_at(lx, at, "{%") && !looks_at(lx, at, "{#"))
            at++;
        if (at == lx->n) {
            add_bytes(lx, TMPL_DATA, lx->n);
            return 0;
        }
        sign = at + 2 < lx->n ? lx->s[at + 2] : '\0';
        add_data(lx, at, sign, lx->s[at + 1] == '{');
        end = at + 2 + (sign == '-' || sign == '+');
        if (lx->s[at + 1] == '#') {
            advance(lx, end);
            if (comment(lx) < 0)
                return -1;
        } else if (lx->s[at + 1] == '%' && raw_begin(lx, at + 2)) {
            advance(lx, raw_begin(lx, at + 2));
            if (raw(lx) < 0)
                return -1;
        } else {
            bool print = lx->s[at + 1] == '{';

            add_bytes(lx, print ? TMPL_PRINT : TMPL_BLOCK, end);
            if (tag(lx, print) < 0)
                return -1;
        }
    }
    return 0;
}

int
tmpl_lex(struct tmpl_heap *heap, const char *name, const char *text,
         size_t nbytes, struct tmpl_token **tokens, struct err *err)
{
    struct lexer lx = { .heap = heap, .name = name, .line = 1, .err = err };
    char *s = tmpl_alloc(heap, nbytes + 1);
    size_t valid = utf8_valid(text, nbytes);
    int rc;

    for (size_t i = 0; i < valid; i++) {
        if (text[i] == '\r' && i + 1 < valid && text[i + 1] == '\n')
            continue;
        s[lx.n++] = text[i] == '\r' ? '\n' : text[i];
    }
    lx.s = s;
    if (valid < nbytes) {
        advance(&lx, lx.n);
        return fail(&lx, "is not valid UTF-8");
    }
    lx.n -= lx.n > 0 && s[lx.n - 1] == '\n';
    s[lx.n] = '\0';
    rc = root(&lx);
    add(&lx, TMPL_END, tmpl_text(heap, "", 0, 0));
    *tokens = tmpl_alloc(heap, lx.n_tokens * sizeof(*lx.tokens));
    memcpy(*tokens, lx.tokens, lx.n_tokens * sizeof(*lx.tokens));
    free(lx.tokens);
    return rc;
}
