/* SPDX-License-Identifier: ISC */
#include "core/regex.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/mem.h"

/* PCRE2 asks for no block so large within the other bounds, unless it is built
 * for compiled patterns of more than 64 KiB. */
#define MAX_BLOCK ((size_t)4 << 20)

/* Compiled bytes of a pattern that the JIT translates, to up to 80 times as
 * many: Llama's and GPT's patterns have up to 3000. */
#define JIT_MAX_CODE 8192

/* Bytes that a match may begin in, of a search between two looks at the clock.
 */
#define MAX_WINDOW 128

#define TOO_LONG PCRE2_ERROR_CALLOUT /* which is no other's: there are none */

struct regex {
    char *where;
    pcre2_code *code;
    bool has_jit;
    bool has_start; /* \G, which says where a search begins */
};

struct regex_state {
    pcre2_match_data *match;
    pcre2_match_context *context;
};

/* ---- compiling ---- */

static void *
bounded_malloc(PCRE2_SIZE nbytes, void *too_big)
{
    if (nbytes <= MAX_BLOCK)
        return malloc(nbytes);
    *(bool *)too_big = true;
    return NULL;
}

static void
bounded_free(void *p, void *too_big)
{
    (void)too_big;
    free(p);
}

static int
compile(struct regex *re, const char *pattern, size_t n, uint32_t options,
        struct err *err)
{
    bool too_big = false;
    pcre2_general_context *general =
        pcre2_general_context_create(bounded_malloc, bounded_free, &too_big);
    pcre2_compile_context *context =
        general ? pcre2_compile_context_create(general) : NULL;
    int number = PCRE2_ERROR_HEAP_FAILED;
    PCRE2_UCHAR why[200];
    PCRE2_SIZE at = 0;

    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_parens_nest_limit(context, REGEX_MAX_NEST);
        pcre2_set_max_pattern_length(context, REGEX_MAX_PATTERN);
        re->code = pcre2_compile((PCRE2_SPTR)pattern, n, options, &number, &at,
                                 context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (re->code)
        return 0;
    if (too_big)
        return err_set(err, EX_DATAERR,
                       "%s: regex takes more than %zu bytes to compile",
                       re->where, MAX_BLOCK);
    if (number == PCRE2_ERROR_HEAP_FAILED)
        return err_set(err, EX_SOFTWARE, "%s: out of memory", re->where);
    pcre2_get_error_message(number, why, sizeof(why));
    return err_set(err, EX_DATAERR, "%s: regex: %s (at byte %zu)", re->where,
                   (const char *)why, (size_t)at);
}

static size_t
info(const pcre2_code *code, uint32_t what)
{
    size_t size = 0;
    uint32_t n = 0;

    if (what == PCRE2_INFO_SIZE || what == PCRE2_INFO_JITSIZE) {
        pcre2_pattern_info(code, what, &size);
        return size;
    }
    pcre2_pattern_info(code, what, &n);
    return n;
}

/*
 * The JIT does not count how often it comes back to the alternatives of a
 * group, unless the group is repeated, neither lazily nor by a fixed number.
 * So it is safe where nothing that could fail follows a group, and a group is
 * none that is called or a condition.  Brackets in comments and classes are
 * taken for groups: PCRE2's interpreter is slower, and always safe.
 */
static bool
jit_counts(const char *pattern, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char p[4] = { 0 };

        memcpy(p, pattern + i, smaller(sizeof(p), n - i));
        if ((p[0] == '\\' && p[1] == 'g') || (p[0] == '(' && p[1] == '*'))
            return false;
        if (p[0] == '(' && p[1] == '?' &&
            (!strchr(":=!<>i", p[2]) || (p[2] == 'i' && p[3] != ':')))
            return false;
        if (p[0] == ')' &&
            (!strchr("|)*+?", p[1]) || (strchr("*+?", p[1]) && p[2] == '?')))
            return false;
    }
    return true;
}

int
regex_compile(struct regex **out, const char *pattern, size_t n, int flags,
              const char *where, struct err *err)
{
    /* Not PCRE2's search ahead for a character, which would begin anew in each
     * window. */
    uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C |
                       PCRE2_DOLLAR_ENDONLY | PCRE2_NO_START_OPTIMIZE |
                       PCRE2_USE_OFFSET_LIMIT |
                       (flags & REGEX_UNICODE ? PCRE2_UCP : 0) |
                       (flags & REGEX_LINES ? PCRE2_MULTILINE : 0);
    static const struct {
        uint32_t info;
        size_t max;
        const char *what;
    } bounds[] = {
        { PCRE2_INFO_SIZE, REGEX_MAX_CODE, "compiled bytes" },
        { PCRE2_INFO_CAPTURECOUNT, REGEX_MAX_GROUPS, "groups that capture" },
        { PCRE2_INFO_MAXLOOKBEHIND, REGEX_MAX_BACK, "characters to look back" },
    };
    struct regex *re;
    int rc;

    *out = NULL;
    if (n > REGEX_MAX_PATTERN)
        return err_set(err, EX_DATAERR, "%s: regex has %zu bytes (at most %d)",
                       where, n, REGEX_MAX_PATTERN);
    re = xcalloc(1, sizeof(*re));
    re->where = xstrdup(where);
    re->has_start = memmem(pattern, n, "\\G", 2);
    rc = compile(re, pattern, n, options, err);
    for (size_t i = 0; rc == 0 && i < sizeof(bounds) / sizeof(*bounds); i++) {
        size_t found = info(re->code, bounds[i].info);

        if (found > bounds[i].max)
            rc = err_set(err, EX_DATAERR, "%s: regex has %zu %s (at most %zu)",
                         where, found, bounds[i].what, bounds[i].max);
    }
    if (rc < 0) {
        regex_free(re);
        return -1;
    }
    if (flags & REGEX_LONG && info(re->code, PCRE2_INFO_SIZE) <= JIT_MAX_CODE &&
        jit_counts(pattern, n))
        re->has_jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0 &&
                      info(re->code, PCRE2_INFO_JITSIZE) > 0;
    *out = re;
    return 0;
}

size_t
regex_nbytes(const struct regex *re)
{
    return sizeof(*re) + strlen(re->where) + 1 +
           info(re->code, PCRE2_INFO_SIZE) + info(re->code, PCRE2_INFO_JITSIZE);
}

void
regex_free(struct regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    free(re->where);
    free(re);
}

/* ---- searching ---- */

void
regex_work_free(struct regex_work *work)
{
    struct regex_state *state = work->state;

    if (state) {
        pcre2_match_data_free(state->match);
        pcre2_match_context_free(state->context);
        free(state);
    }
    *work = (struct regex_work){ 0 };
}

static size_t
max_matches(const struct regex_work *work)
{
    return smaller(REGEX_MATCHES + REGEX_MATCHES_PER_BYTE * work->nbytes,
                   UINT32_MAX);
}

static size_t
max_heap(const struct regex_work *work)
{
    return smaller(REGEX_HEAP + REGEX_HEAP_PER_BYTE * work->nbytes,
                   REGEX_MAX_HEAP);
}

static size_t
max_seconds(const struct regex_work *work)
{
    return REGEX_SECONDS + work->nbytes / REGEX_BYTES_PER_SECOND;
}

/* The seconds that this thread has run. */
static double
ran_s(void)
{
    struct timespec t = { 0 };

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Adds to the work's seconds those that began since 'start', and is the time
 * now.  A search that takes a microsecond adds one once in a million times,
 * which is right on average, and cheaper than a finer clock.  Seconds in which
 * this thread did not run, as others had the CPU, do not count.
 */
static time_t
take_time(struct regex_work *work, time_t start)
{
    time_t now = time(NULL);

    if (now > start) {
        double ran = ran_s();

        work->seconds += fmin((double)(now - start), fabs(ran - work->ran));
        work->ran = ran;
    }
    return now;
}

/*
 * PCRE2's search, of which each call looks for matches that begin in one
 * window, at first a byte.  What the JIT has no stack for is interpreted.
 */
static int
find(const struct regex *re, struct regex_work *work, const char *s, size_t n,
     size_t pos)
{
    struct regex_state *state = work->state;
    size_t window = re->has_start ? SIZE_MAX : 1, last;
    time_t now = time(NULL);
    int rc;

    for (;; pos = last + 1) {
        last = n - pos <= window ? n : pos + window - 1;
        while (last + 1 < n && ((uint8_t)s[last + 1] & 0xc0) == 0x80)
            last++;
        pcre2_set_offset_limit(state->context, last);
        rc = (re->has_jit ? pcre2_jit_match : pcre2_match)(
            re->code, (PCRE2_SPTR)s, n, pos, PCRE2_NO_UTF_CHECK, state->match,
            state->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(re->code, (PCRE2_SPTR)s, n, pos,
                             PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state->match,
                             state->context);
        now = take_time(work, now);
        if (work->seconds > (double)max_seconds(work))
            return TOO_LONG;
        if (rc != PCRE2_ERROR_NOMATCH || last == n)
            return rc;
        window = smaller(2 * window, MAX_WINDOW);
    }
}

static int
cannot_match(const struct regex *re, const struct regex_work *work, int rc,
             struct err *err)
{
    struct {
        int rc;
        size_t most;
        const char *what;
    } bounds[] = {
        { TOO_LONG, max_seconds(work), "s" },
        { PCRE2_ERROR_MATCHLIMIT, max_matches(work), "steps" },
        { PCRE2_ERROR_HEAPLIMIT, max_heap(work), "bytes of memory" },
    };
    PCRE2_UCHAR why[200];

    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_set(err, EX_SOFTWARE, "%s: out of memory", re->where);
    for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
        if (rc == bounds[i].rc)
            return err_set(
                err, EX_DATAERR,
                "%s: regex takes more than %zu %s for %llu bytes of text",
                re->where, bounds[i].most, bounds[i].what,
                (unsigned long long)work->nbytes);
    pcre2_get_error_message(rc, why, sizeof(why));
    return err_set(err, EX_DATAERR, "%s: regex: %s", re->where,
                   (const char *)why);
}

int
regex_find(const struct regex *re, struct regex_work *work, const char *s,
           size_t n, size_t pos, size_t *a, size_t *b, struct err *err)
{
    struct regex_state *state = work->state;
    const PCRE2_SIZE *ends;
    int rc = PCRE2_ERROR_NOMEMORY;

    if (!state) {
        work->state = state = xcalloc(1, sizeof(*state));
        state->match = pcre2_match_data_create(1, NULL);
        state->context = pcre2_match_context_create(NULL);
        work->ran = ran_s();
    }
    if (state->match && state->context) {
        pcre2_set_match_limit(state->context, (uint32_t)max_matches(work));
        pcre2_set_heap_limit(state->context, (uint32_t)(max_heap(work) / 1024));
        rc = find(re, work, s, n, pos);
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0)
        return cannot_match(re, work, rc, err);
    ends = pcre2_get_ovector_pointer(state->match);
    *a = ends[0];
    *b = ends[1];
    if (*a <= *b && *a >= pos)
        return 1;
    return err_set(err, EX_DATAERR,
                   "%s: regex: a match that ends before it begins", re->where);
}
