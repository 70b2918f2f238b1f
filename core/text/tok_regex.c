/* SPDX-License-Identifier: ISC */
#include "core/text/tok_regex.h"
#include "core/compat.h"

#include <stdlib.h>
#include <string.h>

/* Unicode's White_Space: PCRE2's \s also takes U+180E. */
#define NO_SPACE_SET                                        \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-"    \
    "\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-" \
    "\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"       \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define SPACE_SET "\\t-\\r\\x{85}\\p{Z}"

/* Oniguruma's pattern, half read. */
struct onig {
    const char *begin, *p, *end;
    bool in_class;
    bool interval; /* what was read last is {n,m} */
    bool count;    /* or {n} */
    struct str pcre;
};

static int
unsupported(const struct js *js, const char *what, struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: %s: regex with %s is not supported",
                   js->file, js->path, what);
}

/*
 * \p{L} and the like, as a whole: its brace does not begin an interval.  A
 * script in Oniguruma contains only characters of that script; in PCRE2 since
 * 10.40 also those shared with other scripts, unless it is written sc:Han.
 */
static int
put_property(struct onig *o, const struct js *js, struct err *err)
{
    const char *close = memchr(o->p, '}', (size_t)(o->end - o->p));
    bool has_brace = close && close - o->p > 3 && o->p[2] == '{';
    const char *name = o->p + 3;
    struct str script = { 0 };
    struct regex *re;
    struct err none;

    if (!has_brace)
        return unsupported(js, "\\p without {NAME}", err);
    str_add(&o->pcre, o->p, 3);
    if (*name == '^')
        str_addc(&o->pcre, *name++);
    str_adds(&script, "\\p{sc:");
    str_add(&script, name, (size_t)(close + 1 - name));
    if (regex_compile(&re, script.s, script.n, 0, "", &none) == 0)
        str_adds(&o->pcre, "sc:");
    str_add(&o->pcre, name, (size_t)(close + 1 - name));
    regex_free(re);
    str_free(&script);
    o->p = close + 1;
    return 0;
}

/* A backslash and what follows it. */
static int
put_escape(struct onig *o, const struct js *js, struct err *err)
{
    const char *p = o->p;
    char c = p[1]; /* or the NUL after the text */
    const char name[] = { '\\', c, '\0' };
    bool high = o->end - p > 3 && c == 'x' &&
                memchr("89abcdefABCDEF", p[2], 14) &&
                memchr("0123456789abcdefABCDEF", p[3], 22);
    size_t n;

    if (o->end - o->p == 1)
        return unsupported(js, "a backslash at the end", err);
    /* what means something else to PCRE2, or matches only with it */
    if (high)
        return unsupported(js, "a byte of \\x80 and more", err);
    if (c && strchr("BCEHKNQVWXbchovw", c) && (c != 'b' || !o->in_class))
        return unsupported(js, name, err);
    if (c == 'p' || c == 'P')
        return put_property(o, js, err);
    if (c == 's' || c == 'S') {
        if (!o->in_class)
            str_adds(&o->pcre,
                     c == 's' ? "[" SPACE_SET "]" : "[^" SPACE_SET "]");
        else
            str_adds(&o->pcre, c == 's' ? SPACE_SET : NO_SPACE_SET);
        o->p += 2;
        return 0;
    }
    /* \x{85} as a whole: this brace is no interval's. */
    n = o->end - o->p > 2 && o->p[2] == '{' && c == 'x' ? 3 : 2;
    while (n > 2 && o->p + n < o->end && o->p[n - 1] != '}')
        n++;
    if (n > (size_t)(o->end - o->p))
        n = (size_t)(o->end - o->p);
    str_add(&o->pcre, o->p, n);
    o->p += n;
    return 0;
}

/* "(?m" in Oniguruma is "(?s" in PCRE2; (?i) in the middle opens a group in
 * Oniguruma, up to the end of the one it is in, with all its alternatives. */
static int
check_group(struct onig *o, const struct js *js, struct err *err)
{
    const char *letters = o->p + 2;
    bool special = o->end - o->p > 2 && o->p[0] == '(' && o->p[1] == '?';
    size_t n = special ? strspn(letters, "imsxUnJ-^a") : 0;

    if (o->end - o->p > 1 && o->p[0] == '(' && o->p[1] == '*')
        return unsupported(js, "\"(*\"", err);
    if (special && strchr("|P&RC0123456789+", *letters))
        return unsupported(js, "a group that only PCRE2 knows", err);
    if (!n || letters + n >= o->end || !strchr("):", letters[n]))
        return 0; /* not a group of options */
    if (strspn(letters, "ix-") < n)
        return unsupported(js, "an option other than i and x", err);
    if (letters[n] == ')' && o->p > o->begin &&
        memchr(letters, '|', (size_t)(o->end - letters)))
        return unsupported(js, "(?i) before alternatives", err);
    return 0;
}

/* The next element of the pattern. */
static int
put_one(struct onig *o, const struct js *js, struct err *err)
{
    bool after_interval = o->interval;
    size_t left = (size_t)(o->end - o->p) - 1, n; /* bytes after it */
    const char *p = o->p + 1;
    char c = *o->p;

    o->interval = false;
    if (c == '\\')
        return put_escape(o, js, err);
    if (o->in_class) { /* Oniguruma's nest and intersect, PCRE2's do not */
        if (c == '[')
            return unsupported(
                js, left && *p == ':' ? "[:name:]" : "brackets in brackets",
                err);
        if (left && c == '&' && *p == '&')
            return unsupported(js, "&& in brackets", err);
        o->in_class = c != ']';
        str_addc(&o->pcre, *o->p++);
        return 0;
    }
    if (c == '+' && after_interval)
        return unsupported(js, "\"}+\"", err);
    if (c == '?' && after_interval && o->count)
        return unsupported(js, "\"{n}?\"", err);
    if (check_group(o, js, err) < 0)
        return -1;
    o->interval = c == '}';
    str_addc(&o->pcre, c);
    o->p++;
    if (c == '{') {
        n = strspn(p, "0123456789");
        o->count = n > 0 && n < left && p[n] == '}';
        /* PCRE2 before 10.43 does not read "{,n}" as an interval */
        if (left && *p == ',')
            return unsupported(js, "\"{,\"", err);
    }
    if (c != '[')
        return 0;
    o->in_class = true;
    if (o->p < o->end && *o->p == '^')
        str_addc(&o->pcre, *o->p++);
    if (o->p < o->end && *o->p == ']') /* first in brackets: itself */
        str_addc(&o->pcre, *o->p++);
    return 0;
}

int
tok_regex_parse(struct tok_regex *regex, const struct js *pattern,
                struct err *err)
{
    struct js js = js_get(pattern, "Regex");
    struct onig o = { 0 };
    struct str where = { 0 };
    const char *s;
    size_t n;
    int rc = 0;

    regex->is_literal = js_absent(&js);
    if (regex->is_literal)
        js = js_get(pattern, "String");
    if (js_str(&js, &s, &n, err) < 0)
        return -1;
    str_addf(&where, "%s: %s", js.file, js.path);
    regex->where = where.s;
    if (regex->is_literal) {
        str_add(&regex->literal, s, n);
        return 0;
    }
    o.begin = o.p = s;
    o.end = s + n;
    while (rc == 0 && o.p < o.end && o.pcre.n <= REGEX_MAX_PATTERN)
        rc = put_one(&o, &js, err);
    if (rc == 0 && o.p < o.end)
        rc = err_set(err, EX_DATAERR,
                     "%s: %s: regex of %zu bytes becomes more than %d as "
                     "PCRE2's",
                     js.file, js.path, n, REGEX_MAX_PATTERN);
    if (rc == 0) /* Oniguruma's ^ and $ are those of lines */
        rc = regex_compile(&regex->re, o.pcre.s ? o.pcre.s : "", o.pcre.n,
                           REGEX_UNICODE | REGEX_LINES | REGEX_LONG,
                           regex->where, err);
    str_free(&o.pcre);
    return rc;
}

void
tok_regex_free(struct tok_regex *regex)
{
    regex_free(regex->re);
    str_free(&regex->literal);
    free(regex->where);
    *regex = (struct tok_regex){ 0 };
}

int
tok_regex_next(struct tok_regex_iter *it, size_t *a, size_t *b, struct err *err)
{
    const struct str *literal = &it->regex->literal;
    const char *at;
    uint32_t c;

    while (it->pos <= it->n) {
        if (it->regex->is_literal) {
            at = memmem(it->s + it->pos, it->n - it->pos, literal->s,
                        literal->n);
            if (!at)
                return 0;
            *a = (size_t)(at - it->s);
            *b = *a + literal->n;
        } else {
            int rc = regex_find(it->regex->re, it->work, it->s, it->n, it->pos,
                                a, b, err);

            if (rc <= 0)
                return rc;
        }
        /* No empty match where the last match ended. */
        if (*a != *b || *b != it->last_end) {
            it->pos = it->last_end = *b;
            return 1;
        }
        if (it->pos == it->n)
            break;
        it->pos += (size_t)utf8_next(it->s + it->pos, it->n - it->pos, &c);
    }
    return 0;
}
