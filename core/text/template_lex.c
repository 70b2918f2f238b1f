/* SPDX-License-Identifier: ISC */
/* A template's text as tokens: Jinja's lexer, with trim_blocks and
 * lstrip_blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/template_impl.h"

struct lexer {
    struct trun *r; /* r->line is that of 'at' */
    const char *s;  /* without carriage returns and the last newline */
    size_t n, at;
    char open[TEMPLATE_MAX_NESTED]; /* brackets of the tag */
    size_t n_open;
    struct ttoken *tokens;
    size_t n_tokens, cap;
};

/* Notes an error, and ends the text there. */
static void
fail(struct lexer *lx, const char *what)
{
    t_fail(lx->r, "%s", what);
    lx->at = lx->n;
}

/* The length of the white space character that ends at s + n, or 0. */
static size_t
space_before(const char *s, size_t n)
{
    for (size_t k = 1; k <= n && k <= 3; k++)
        if (t_space(s + n - k, k) == k)
            return k;
    return 0;
}

/* Goes on to a place further on in the text. */
static void
advance(struct lexer *lx, size_t to)
{
    for (; lx->at < to; lx->at++)
        lx->r->line += lx->s[lx->at] == '\n';
}

static size_t
skip_spaces(const struct lexer *lx, size_t at)
{
    size_t k;

    while ((k = t_space(lx->s + at, lx->n - at)) > 0)
        at += k;
    return at;
}

/* The text ends with NULs, which no word has. */
static bool
looks_at(const struct lexer *lx, size_t at, const char *word)
{
    return !strncmp(lx->s + at, word, strlen(word));
}

static bool
is_sign(char c)
{
    return c == '-' || c == '+';
}

/* A token, which ends at 'end'. */
static void
add(struct lexer *lx, int type, struct tvalue value, size_t end)
{
    struct ttoken *p =
        t_grow(lx->r, lx->tokens, lx->n_tokens, 1, &lx->cap, sizeof(*p));

    if (p) {
        lx->tokens = p;
        p[lx->n_tokens++] = (struct ttoken){ type, lx->r->line, value };
    }
    advance(lx, end);
}

static void
add_bytes(struct lexer *lx, int type, size_t n, size_t end)
{
    add(lx, type, t_text(lx->r, lx->s + lx->at, n, 0), end);
}

/* Where the end of a tag at 'at' ends: "%}", "-%}", which takes the white space
 * after it, "+%}"; a newline goes with a block; 0: it does not end there. */
static size_t
tag_end(const struct lexer *lx, size_t at, const char *end)
{
    bool print = end[0] == '}', minus = lx->s[at] == '-',
         sign = minus || (lx->s[at] == '+' && !print);

    if (!looks_at(lx, at + sign, end))
        return 0;
    at += 2U + sign;
    return minus ? skip_spaces(lx, at)
                 : at + (!print && !sign && lx->s[at] == '\n');
}

/* Text up to 'end', where a tag begins, without the white space before it that
 * the tag's sign or lstrip_blocks remove. */
static void
add_data(struct lexer *lx, size_t end, char sign, bool print)
{
    size_t stop = end, k;

    while ((sign == '-' || (sign != '+' && !print)) && stop > lx->at &&
           (sign == '-' || lx->s[stop - 1] != '\n') &&
           (k = space_before(lx->s + lx->at, stop - lx->at)) > 0)
        stop -= k;
    if (sign != '-' && stop > 0 && lx->s[stop - 1] != '\n')
        stop = end; /* the tag does not begin its line */
    if (stop > lx->at)
        add_bytes(lx, T_DATA, stop - lx->at, end);
    advance(lx, end);
}

static void
comment(struct lexer *lx)
{
    for (size_t at = lx->at, end; at < lx->n; at++)
        if ((end = tag_end(lx, at, "#}")) > 0) {
            advance(lx, end);
            return;
        }
    fail(lx, "{# has no #}");
}

/* What a backslash before 'at' and the characters from there on mean in a
 * string: where they end. */
static size_t
escape(struct lexer *lx, struct tbuf *b, size_t at)
{
    static const char letters[] = "\\'\"abfnrtv\n",
                      meant[] = "\\'\"\a\b\f\n\r\t\v";
    char c = lx->s[at++], utf8[4], hex[9] = "";
    const char *p = c ? strchr(letters, c) : NULL;
    size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code;

    memcpy(hex, lx->s + at, smaller(n, lx->n - at));
    code = (uint32_t)strtoul(hex, NULL, 16);
    if (p) /* of a backslash before a newline nothing is left */
        t_put(b, &meant[p - letters], c != '\n', 0);
    else if (c == 'N' || (unsigned char)c >= 0x80 || (c >= '0' && c <= '7') ||
             strspn(hex, "0123456789abcdefABCDEF") < n || code > 0x10ffff ||
             (code >= 0xd800 && code < 0xe000))
        fail(lx, "an escape in a string is not supported");
    else if (n)
        t_put(b, utf8, (size_t)utf8_put(utf8, code), 0);
    else
        t_put(b, lx->s + at - 2, 2, 0);
    return at + n;
}

static void
string(struct lexer *lx)
{
    struct tbuf b = { .r = lx->r };
    char quote = lx->s[lx->at];
    size_t at = lx->at + 1, k;

    while (at < lx->n && lx->s[at] != quote && !lx->r->failed) {
        k = strcspn(lx->s + at, quote == '"' ? "\"\\" : "'\\");
        t_put(&b, lx->s + at, k, 0);
        at += k;
        if (lx->s[at] == '\\')
            at = escape(lx, &b, at + 1);
        else if (!lx->s[at])
            break;
    }
    if (at >= lx->n || lx->s[at] != quote)
        fail(lx, "a string has no end");
    else
        add(lx, T_LITERAL, t_built(&b), at + 1);
}

static size_t
digits(const struct lexer *lx, size_t at)
{
    return at + strspn(lx->s + at, "0123456789");
}

static void
number(struct lexer *lx)
{
    size_t at = lx->at, whole = digits(lx, at), end = whole;
    struct tvalue v = { .kind = V_INT };

    if ((at == 0 || lx->s[at - 1] != '.') && /* not the 1.0 of a.1.0 */
        lx->s[end] == '.' && digits(lx, end + 1) > end + 1)
        end = digits(lx, end + 1);
    errno = 0;
    v.i = strtoll(lx->s + at, NULL, 10);
    if (errno || (end == whole && lx->s[at] == '0' && end > at + 1) ||
        (lx->s[end] && strchr("_bBeEoOxX", lx->s[end])))
        fail(lx, "a number of this form is not supported");
    if (end > whole)
        v = (struct tvalue){ V_FLOAT, { .f = strtod(lx->s + at, NULL) } };
    add(lx, T_LITERAL, v, end);
}

static void
punctuation(struct lexer *lx)
{
    static const char pairs[][3] = { "//", "==", "!=", ">=", "<=" };
    static const char opening[] = "([{", closing[] = ")]}",
                      other[] = "+-/*%~><=.:|,";
    char c = lx->s[lx->at];
    const char *p = c ? strchr(opening, c) : NULL;

    for (int i = 0; i < 5; i++)
        if (looks_at(lx, lx->at, pairs[i])) {
            add_bytes(lx, T_FLOORDIV + i, 2, lx->at + 2);
            return;
        }
    if (p && lx->n_open < sizeof(lx->open))
        lx->open[lx->n_open++] = closing[p - opening];
    else if (lx->n_open > 0 && lx->open[lx->n_open - 1] == c)
        lx->n_open--;
    else if (p)
        fail(lx, "is nested more than 200 levels deep");
    else if (!c || !strchr(other, c))
        fail(lx, "an unexpected character or bracket");
    if (!lx->r->failed)
        add_bytes(lx, c, 1, lx->at + 1);
}

static bool
in_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80 || (!first && c >= '0' && c <= '9');
}

/* The tokens of {{ }} or {% %}, up to its end. */
static void
tag(struct lexer *lx, bool print)
{
    for (lx->n_open = 0; lx->at < lx->n && !lx->r->failed;) {
        size_t end = tag_end(lx, lx->at, print ? "}}" : "%}");
        char c = lx->s[lx->at];

        if (end && !lx->n_open) {
            add_bytes(lx, print ? T_PRINT_END : T_BLOCK_END, 2, end);
            return;
        }
        end = skip_spaces(lx, lx->at);
        if (end > lx->at) {
            advance(lx, end);
        } else if (c >= '0' && c <= '9') {
            number(lx);
        } else if (in_name(c, true)) {
            while (in_name(lx->s[end], false) &&
                   !t_space(lx->s + end, lx->n - end))
                end++;
            add_bytes(lx, T_NAME, end - lx->at, end);
        } else if (c == '\'' || c == '"') {
            string(lx);
        } else {
            punctuation(lx);
        }
    }
}

/* Text with tags. */
static void
root(struct lexer *lx)
{
    while (lx->at < lx->n && !lx->r->failed) {
        size_t at = lx->at;
        char kind, sign;

        while (at < lx->n && (lx->s[at] != '{' || !lx->s[at + 1] ||
                              !strchr("{%#", lx->s[at + 1])))
            at++;
        kind = lx->s[at] ? lx->s[at + 1] : '\0';
        sign = kind ? lx->s[at + 2] : '+';
        add_data(lx, at, sign, kind == '{');
        if (kind == '#') {
            advance(lx, at + 2 + is_sign(sign));
            comment(lx);
        } else if (kind) {
            add_bytes(lx, kind == '{' ? T_PRINT : T_BLOCK, 2,
                      at + 2 + is_sign(sign));
            tag(lx, kind == '{');
        }
    }
}

struct ttoken *
t_lex(struct trun *r, const char *text, size_t nbytes)
{
    struct lexer lx = { .r = r };
    char *s = t_alloc(r, nbytes + 4); /* read beyond its end */
    size_t valid = utf8_valid(text, nbytes);

    for (size_t i = 0; i < valid && text[i]; i++)
        if (text[i] != '\r' || i + 1 == valid || text[i + 1] != '\n')
            s[lx.n++] = text[i] == '\r' ? '\n' : text[i];
    lx.s = s;
    r->line = 1;
    if (valid < nbytes || memchr(text, '\0', nbytes)) {
        advance(&lx, lx.n);
        fail(&lx, "is not text in UTF-8");
    }
    if (lx.n > 0 && s[lx.n - 1] == '\n')
        s[--lx.n] = '\0';
    root(&lx);
    add(&lx, T_END, t_text(r, "the end", 7, 0), lx.n);
    return lx.tokens;
}
