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

/* What a window's end could hide, on both sides of it. */
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
            for (size_t n = REGEX_WINDOW - 4; n < REGEX_WINDOW + 3; n++) {
                struct str quick = { 0 }, counted = { 0 };
                struct regex_work work = { 0 };

                str_clear(&s);
                repeat(&s, "a", n);
                str_adds(&s, ends[k]);
                repeat(&s, "a", 2 * n);
                matches(patterns[i], LONG, s.s, s.n, &work, &quick);
                matches(patterns[i], LONG & ~REGEX_LONG, s.s, s.n, &work,
                        &counted);
                n_cases++;
                n_same += quick.n == counted.n &&
                          (!quick.n || !strcmp(quick.s, counted.s));
                if (quick.n != counted.n)
                    printf("# /%s/ %zu: %s, %s\n", patterns[i], n, quick.s,
                           counted.s);
                regex_work_free(&work);
                str_free(&quick);
                str_free(&counted);
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
    refuses("a(*ACCEPT)b", 11, "r: regex with \"(*\" is not supported");
    refuses("a\\\\\\Q(\\E", 8, "r: regex with \\Q is not supported");
    refuses("\\\\\\X", 4, "r: regex with \\X is not supported");
    refuses("[a\\E-z]", 7, "r: regex with \\E is not supported");
    refuses("(?#\\x{)(*ACCEPT)}", 17, "r: regex with \"(*\" is not supported");
    refuses("(?ix) a # [\n(*ACCEPT)b", 22,
            "r: regex with \"(*\" is not supported");
    compiles("[(*]\\(*[)]", 10, "a bracket that is none");
    refuses("\\C", 2, "r: regex: using \\C is disabled by the application");
    str_free(&s);
}

/* A range of a million characters takes 2.6 ms to compile without their case,
 * and 16 KB have room for 700: wherever it stands, it is counted. */
static void
test_folded(void)
{
#define R "\\x{100}-\\x{10ffff}"
    static const char *const patterns[] = {
        "(?i)[" R R R R "]",
        "[" R R R R "](?-xi)",
        "(?i:[^" R "][^" R "][^" R "][^" R "])",
        "(?i)[" R "-\\x{10FFFF}" R R R "]",
        "(?#\\x{)(?i)[" R R R R "]}",
        "(?x)#[\n(?i)[]" R R R R "]",
        "(?xx)(?^i)[\\x{100} -\t\\x{10ffff}" R R R "]",
        "(?i)[\\o{400}-\xf4\x8f\xbf\xbf\xc4\x80-\xf4\x8f\xbf\xbf" R R "]",
        "(?i)[\\400-\\N{U+10ffff}\\\\-\\x{010ffff}" R R "]",
    };
    static const char more[] = "r: regex ignores the case of ";
    struct regex *re;
    struct err err = { 0 };

    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        refuses(patterns[i], strlen(patterns[i]), more);
    compiles("(?i)[" R R R "\\d]", strlen("(?i)[" R R R "\\d]"),
             "three million characters in ranges");
    compiles("[" R R R R R R "]", strlen("[" R R R R R R "]"),
             "those whose case counts");
    regex_compile(&re, "(?i)[a-z]\\x-z", 13, LONG, "r", &err);
    tap_ok(re && regex_n_folded(re) >= 26 && regex_n_folded(re) < 1000,
           "26 letters are as many: %zu", regex_n_folded(re));
    regex_free(re);
#undef R
}

/* ---- work ---- */

/* A text is refused with the number of steps, which took 0.3 s at most; without
 * the bound the first of these takes ten minutes, the last for ever. */
static void
too_much(const char *pattern, const struct str *s)
{
    struct regex_work work = { 0 };
    struct str all = { 0 }, want = { 0 };
    double start = cpu_s();

    matches(pattern, LONG, s->s, s->n, &work, &all);
    start = cpu_s() - start;
    str_addf(&want,
             "65 r: regex takes more than %zu steps for %zu bytes of text",
             REGEX_STEPS + s->n * REGEX_STEPS_PER_BYTE, s->n);
    if (!tap_ok(all.n && !strcmp(all.s, want.s) && (start < 30 || tap_slow()),
                "/%.40s/ in %zu bytes: refused", pattern, s->n))
        printf("# got: %.200s, after %.3g s\n", all.s, start);
    regex_work_free(&work);
    str_free(&all);
    str_free(&want);
}

static void
test_work(void)
{
    size_t n = tap_slow() ? 2000 : 50000;
    struct str s = { 0 }, pattern = { 0 };

    repeat(&s, "a", n);
    too_much("(?:(?:a|a){22}b)|[^x]", &s);
    too_much("(?:a|aa)*b|x", &s);
    too_much("a*b|.", &s);  /* n^2 / 2 */
    too_much("a*?b|.", &s); /* likewise, and lazily */
    too_much("(?=(a*))a\\1c|.", &s);
    too_much("[ab]{9000}c|.", &s);
    too_much("(?:(a)|b)*?(?:a+b|c)|.", &s);
    too_much("a*(?=(?:[ab]*+c)?)d|.", &s);
    /* alternatives that the JIT does not count */
    for (char c = 'd'; c < 'z'; c++)
        str_addf(&pattern, "(?:a|a|%c)", c);
    str_adds(&pattern, "[bc]|.");
    too_much(pattern.s, &s);
    /* a quick search would try 30 letters of 800 ranges twenty times */
    str_clear(&pattern);
    str_adds(&pattern, "(?:(?=[");
    for (int c = 0; c < 800; c++)
        str_addf(&pattern, "\\x{%x}", 0x100 + 2 * c);
    str_adds(&pattern, "a]{30}Z)z|.){20}Q|[^x]");
    too_much(pattern.s, &s);
    str_free(&pattern);
    str_free(&s);
}

/* All quick searches are steps, too: of these each character costs as many. */
static void
test_quick(void)
{
    const size_t n = 20000;
    struct regex_work work = { 0 };
    struct str s = { 0 }, all = { 0 };
    uint64_t cheap;

    repeat(&s, "a", n);
    matches("[ab]", LONG, s.s, s.n, &work, &all);
    cheap = work.steps;
    tap_ok(cheap >= n && cheap < 2 * n, "a search is a step: %llu",
           (unsigned long long)cheap);
    str_clear(&all);
    matches("[ab]|b{50}(?:[cde]f){50}", LONG, s.s, s.n, &work, &all);
    tap_ok(work.steps - cheap > 10 * n || !strncmp(all.s, "65 ", 3),
           "of a long pattern it is more: %llu",
           (unsigned long long)(work.steps - cheap));
    regex_work_free(&work);
    str_free(&all);
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

/* Texts that share a bound. */
static void
test_sum(void)
{
    struct regex_work work = { .nbytes = 26 };
    struct regex *re;
    struct err err = { 0 };
    size_t n_done = 0, a, b;
    uint64_t once;

    regex_compile(&re, "(?:a|a)+b", 9, 0, "r", &err);
    regex_find(re, &work, "aaaaaaaaaaaaa", 13, 0, &a, &b, &err);
    once = work.steps;
    while (regex_find(re, &work, "aaaaaaaaaaaaa", 13, 0, &a, &b, &err) == 0)
        n_done++;
    tap_ok(err.status == EX_DATAERR && once > 16384 && n_done > 3 &&
               n_done + 1 == (REGEX_STEPS + 26 * REGEX_STEPS_PER_BYTE) / once &&
               work.steps > REGEX_STEPS + 26 * REGEX_STEPS_PER_BYTE,
           "%zu searches of %llu steps come to the bound together: %s", n_done,
           (unsigned long long)once, err.what);
    regex_free(re);
    regex_work_free(&work);
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
        tap_ok(all.n && all.s[0] == '0' && work.steps < 32 * s.n,
               "a run of %zu bytes takes %.2g of 256 steps a byte: %.40s", n,
               (double)work.steps / (double)s.n, all.s);
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
    test_folded();
    test_work();
    test_calls();
    test_quick();
    test_sum();
    test_runs();
    test_memory();
    return tap_done();
}
