/* SPDX-License-Identifier: ISC */
/*
 * Regular expressions: matches are those of PCRE2's own search over the whole
 * text at once, or worked out by hand; what goes beyond a bound is refused.
 */
#include "core/regex.h"

#include <string.h>
#include <time.h>

#include "core/mem.h"
#include "core/str.h"
#include "test/unit/tap.h"

#define LONG (REGEX_UNICODE | REGEX_LINES | REGEX_LONG)

static double
cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void
repeat(struct str *s, const char *what, size_t n)
{
    while (n-- > 0)
        str_adds(s, what);
}

/* All matches of a pattern in a text, as "A-B A-B ", or what went wrong. */
static void
matches(const char *pattern, int flags, const char *s, size_t n,
        struct regex_work *work, struct str *all)
{
    struct regex *re;
    struct err err = { 0 };
    size_t pos = 0, a, b;
    int rc = regex_compile(&re, pattern, strlen(pattern), flags, "r", &err);

    work->nbytes += n;
    while (rc == 0 && pos <= n &&
           (rc = regex_find(re, work, s, n, pos, &a, &b, &err)) > 0) {
        if (all->n < 4096)
            str_addf(all, "%zu-%zu ", a, b);
        for (pos = b + (a == b); pos < n && ((uint8_t)s[pos] & 0xc0) == 0x80;)
            pos++;
        rc = 0;
    }
    if (rc < 0) {
        str_clear(all);
        str_addf(all, "%d %s", err.status, err.what);
    }
    regex_free(re);
}

static void
finds(const char *pattern, const char *s, size_t n, const char *want)
{
    struct str all = { 0 };
    struct regex_work work = { 0 };

    str_adds(&all, "");
    matches(pattern, LONG, s, n, &work, &all);
    if (!tap_ok(!strcmp(all.s, want), "/%s/ in %zu bytes: %.60s", pattern, n,
                want))
        printf("# got: %s\n", all.s);
    regex_work_free(&work);
    str_free(&all);
}

/* ---- matches ---- */

/* What the end of one of a search's windows could hide, on both sides of it: as
 * one search by PCRE2's interpreter finds it, which \G asks for. */
static void
test_windows(void)
{
    static const char *const patterns[] = {
        "a+b",     "a*(?!a)",     "x|a+$",      "^c?a|b",  "(?<=a)b",
        "a+?c|b$", "\\n^b",       "a(?=\\nb)",  "\\Bb|c",  "a*\\z",
        "(?s).+",  "(?:x|a)\\R+", "a?\\R{1,9}", "a\\R|\\n"
    };
    static const char *const ends[] = { "",      "b",        "\nb",
                                        "c",     "\n\nb",    "\r\n",
                                        "b\n\n", "\xcc\x81", "\r\r\n\n b",
                                        "\r\r" };
    struct str s = { 0 };
    size_t n_same = 0, n_cases = 0;

    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        for (size_t k = 0; k < sizeof(ends) / sizeof(*ends); k++)
            for (size_t n = 124; n < 131; n++) {
                struct str quick = { 0 }, whole = { 0 }, p = { 0 };
                struct regex_work work = { 0 };

                str_clear(&s);
                repeat(&s, "a", n);
                str_adds(&s, ends[k]);
                repeat(&s, "a", 2 * n);
                matches(patterns[i], LONG, s.s, s.n, &work, &quick);
                str_addf(&p, "(?:\\G|)(?:%s)", patterns[i]);
                matches(p.s, LONG & ~REGEX_LONG, s.s, s.n, &work, &whole);
                n_cases++;
                n_same += quick.n == whole.n &&
                          (!quick.n || !strcmp(quick.s, whole.s));
                if (quick.n != whole.n)
                    printf("# /%s/ %zu: %s, %s\n", patterns[i], n, quick.s,
                           whole.s);
                regex_work_free(&work);
                str_free(&quick);
                str_free(&whole);
                str_free(&p);
            }
    tap_ok(n_same == n_cases, "%zu of %zu cases at a window's end are equal",
           n_same, n_cases);
    str_free(&s);
}

static void
test_matches(void)
{
    struct str s = { 0 };

    finds("", "ab", 2, "0-0 1-1 2-2 ");
    finds("b+", "abbab", 5, "1-3 4-5 ");
    finds("(?xi-s) b + (?-xi)", "aBbab", 5, "1-3 4-5 ");
    finds("^a|b$", "ac\nad\neb\nbf", 11, "0-1 3-4 7-8 ");
    finds("\\Ga", "aaba", 4, "0-1 1-2 ");
    finds("(a+)\\1", "aaaaab", 6, "0-4 ");
    repeat(&s, "a", 300);
    str_adds(&s, "b\n");
    repeat(&s, "\n", 300);
    str_adds(&s, "c");
    finds("a+b", s.s, s.n, "0-301 ");
    finds("^c", s.s, s.n, "602-603 ");
    finds("\\n+", s.s, s.n, "301-602 ");
    finds("a{250}", s.s, s.n, "0-250 ");
    finds("(?:a|aa)+b", s.s, s.n, "0-301 ");
    str_clear(&s);
    repeat(&s, "\xe4\xbd\xa0", 100); /* three bytes: no window ends there */
    finds("\\p{Han}+", s.s, s.n, "0-300 ");
    finds("x|(?<=\\p{Han}{99})\\p{L}", s.s, s.n, "297-300 ");
    str_free(&s);
}

/* ---- patterns ---- */

static void
refuses(const char *pattern, size_t n, const char *message)
{
    struct regex *re;
    struct err err = { 0 };
    int rc = regex_compile(&re, pattern, n, LONG, "r", &err);

    if (!tap_ok(rc < 0 && !re && err.status == EX_DATAERR &&
                    !strncmp(err.what, message, strlen(message)),
                "%s", message))
        printf("# got: %s\n", err.what);
    regex_free(re);
}

static void
compiles(const char *pattern, size_t n, const char *what)
{
    struct regex *re;
    struct err err = { 0 };

    tap_ok(regex_compile(&re, pattern, n, LONG, "r", &err) == 0 &&
               regex_nbytes(re) < 3 * REGEX_MAX_CODE + 80 * 8192,
           "%s compile: %s", what, err.what);
    regex_free(re);
}

static void
test_patterns(void)
{
    struct str s = { 0 };

    repeat(&s, "[ab]", REGEX_MAX_PATTERN / 4);
    str_adds(&s, "a");
    s.s[3] = 'a', s.s[4] = ']'; /* "[abaab]": as many bytes, fewer items */
    refuses(s.s, s.n, "r: regex has 16385 bytes (at most 16384)");
    str_clear(&s);
    str_adds(&s, "[");
    repeat(&s, "ab", REGEX_MAX_PATTERN / 2 - 1);
    str_adds(&s, "]");
    compiles(s.s, s.n, "16384 bytes");
    str_clear(&s);
    repeat(&s, "(a)", REGEX_MAX_GROUPS);
    compiles(s.s, s.n, "100 groups that capture");
    repeat(&s, "(a)", 1);
    refuses(s.s, s.n, "r: regex has 101 groups that capture (at most 100)");
    str_clear(&s);
    repeat(&s, "(?:", REGEX_MAX_NEST);
    repeat(&s, ")", REGEX_MAX_NEST);
    compiles(s.s, s.n, "100 groups in each other");
    str_clear(&s);
    repeat(&s, "(?:", REGEX_MAX_NEST + 1);
    repeat(&s, ")", REGEX_MAX_NEST + 1);
    refuses(s.s, s.n, "r: regex: parentheses are too deeply nested");
    compiles("(?<=a{255})b", 12, "255 characters to look back");
    refuses("(?<=a{256})b", 12,
            "r: regex has 256 characters to look back (at most 255)");
    str_clear(&s);
    str_adds(&s, "(?:(?:(?:a{1,1000}b){1000}){1000}){1000}");
    refuses(s.s, s.n, "r: regex: regular expression is too large");
    refuses("\\C", 2, "r: regex: using \\C is disabled by the application");
    str_free(&s);
}

/* ---- work ---- */

/* Each ends within the seconds of its text, and what the last search takes: it
 * is refused, or all is found.  Without the bounds the first takes ten minutes,
 * and so does that of 22 letters. */
static void
ends(const char *pattern, const struct str *s)
{
    struct regex_work work = { 0 };
    struct str all = { 0 }, want = { 0 };
    double start = cpu_s();
    bool found;

    matches(pattern, LONG, s->s, s->n, &work, &all);
    start = cpu_s() - start;
    str_addf(&want,
             "65 r: regex takes more than %zu steps for %zu bytes of text",
             REGEX_MATCHES + s->n * REGEX_MATCHES_PER_BYTE, s->n);
    found = all.n > 4096 && !strncmp(all.s, "0-1 1-2 2-3 ", 12);
    if (!tap_ok((found || (all.n && !strcmp(all.s, want.s))) &&
                    (start < 10 || tap_slow()),
                "/%.40s/ in %zu bytes: %s", pattern, s->n,
                found ? "found" : "refused"))
        printf("# got: %.200s, after %.3g s\n", all.s, start);
    regex_work_free(&work);
    str_free(&all);
    str_free(&want);
}

static void
test_work(void)
{
    size_t n = tap_slow() ? 2000 : 20000;
    struct str s = { 0 }, pattern = { 0 };

    repeat(&s, "a", n);
    ends("(?:(?:a|a){22}b)|[^x]", &s);
    ends("(?:a|aa)*b|x", &s);
    ends("a*b|.", &s);  /* n^2 / 2 */
    ends("a*?b|.", &s); /* likewise, and lazily */
    ends("(?=(a*))a\\1c|.", &s);
    ends("[ab]{9000}c|.", &s);
    /* alternatives that the JIT does not count */
    for (char c = 'd'; c < 'z'; c++)
        str_addf(&pattern, "(?:a|a|%c)", c);
    str_adds(&pattern, "[bc]|.");
    ends(pattern.s, &s);
    /* 30 letters of 800 ranges are tried twenty times */
    str_clear(&pattern);
    str_adds(&pattern, "(?:(?=[");
    for (int c = 0; c < 800; c++)
        str_addf(&pattern, "\\x{%x}", 0x100 + 2 * c);
    str_adds(&pattern, "a]{30}Z)z|.){20}Q|[^x]");
    ends(pattern.s, &s);
    str_free(&pattern);
    str_free(&s);
}

static void
test_calls(void)
{
    struct regex_work work = { 0 };
    struct str all = { 0 };

    matches("a?(?R)", LONG, "b", 1, &work, &all);
    tap_ok(all.n && !strncmp(all.s, "65 r: regex: ", 13),
           "a group that calls itself: %s", all.s);
    regex_work_free(&work);
    str_free(&all);
}

/* Searches of n^2 / 2 steps that no limit of PCRE2's ends, and which have one
 * second together; also those of one call, character by character. */
static void
test_sum(void)
{
    static const char *const patterns[] = { "a*(?=(?:[ab]*+c)?)d|.",
                                            "a*(?=(?:[ab]*+c)?)d" };
    static const char want[] = "r: regex takes more than 1 s for 3000 bytes of "
                               "text";
    struct str s = { 0 };
    size_t a, b;

    repeat(&s, "a", 3000);
    for (int i = 0; i < 2; i++) {
        struct regex_work work = { .nbytes = s.n };
        struct err err = { 0 };
        struct regex *re;
        double start = cpu_s();
        size_t n_done = 0;

        regex_compile(&re, patterns[i], strlen(patterns[i]), 0, "r", &err);
        while (regex_find(re, &work, s.s, s.n, 0, &a, &b, &err) >= 0)
            n_done++;
        start = cpu_s() - start;
        tap_ok(err.status == EX_DATAERR && !strcmp(err.what, want) &&
                   (i || n_done > 3 || tap_slow()) && start > 1 &&
                   (start < 10 || tap_slow()),
               "%zu searches of /%s/, %.2g s: %s", n_done, patterns[i], start,
               err.what);
        regex_free(re);
        regex_work_free(&work);
    }
    str_free(&s);
}

#define QWEN                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?" \
    "[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Long runs of what tokenizers split are far from the bound. */
static void
test_runs(void)
{
    static const char *const runs[] = { " ",  "\n", "a", "=",           "1",
                                        " a", "'S", "+", "\xe4\xbd\xa0" };
    const size_t n = tap_slow() ? 10000 : 300000;

    for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
        struct regex_work work = { 0 };
        struct str s = { 0 }, all = { 0 };

        repeat(&s, runs[i], n / strlen(runs[i]));
        str_adds(&s, "x");
        matches(QWEN, LONG, s.s, s.n, &work, &all);
        tap_ok(all.n && all.s[0] == '0' && work.seconds <= 3,
               "a run of %zu bytes takes %.2g of 7 s: %.40s", n, work.seconds,
               all.s);
        regex_work_free(&work);
        str_free(&all);
        str_free(&s);
    }
}

/* A stack of backtracking: a frame for each turn of a group. */
static void
test_memory(void)
{
    struct regex_work work = { 0 };
    struct str s = { 0 }, all = { 0 };

    matches("((?:|q){20})((?1){20})((?2){20})((?3){20})[xy]", 0, "abc", 3,
            &work, &all);
    tap_ok(all.n && !strcmp(all.s, "65 r: regex takes more than 1050112 bytes "
                                   "of memory for 3 bytes of text"),
           "a stack for three bytes: %s", all.s);
    regex_work_free(&work);
    str_clear(&all);
    repeat(&s, "ab", 20000);
    matches("(?:a|b)+", LONG, s.s, s.n, &work, &all);
    tap_ok(all.n && !strcmp(all.s, "0-40000 "),
           "a stack that a long match needs: %s", all.s);
    regex_work_free(&work);
    str_free(&all);
    str_free(&s);
}

int
main(void)
{
    test_matches();
    test_windows();
    test_patterns();
    test_work();
    test_calls();
    test_sum();
    test_runs();
    test_memory();
    return tap_done();
}
