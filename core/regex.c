#include "core/regex.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/mem.h"
#include "core/regex_text.h"

/* PCRE2 asks for no block so large within the other bounds, unless it is built
 * for compiled patterns of more than 64 KiB. */
#define MAX_BLOCK ((size_t)4 << 20)

/* Bytes that one try of a quick search may go over: Llama's and GPT's patterns
 * have up to 3000. */
#define QUICK_MAX_COST 8192

/* Of PCRE2's own counts, which are left as a second net: it makes at most so
 * many calls from item to item, and no frame of its stack is smaller. */
#define MATCHES_PER_STEP 4
#define MIN_FRAME        128

/* Callouts before each item; and no searching ahead for a character, which
 * each call would begin anew. */
#define COUNTED \
    (PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE | PCRE2_USE_OFFSET_LIMIT)

struct regex {
    char *where;
    pcre2_code *quick;    /* without counting; or NULL */
    uint64_t quick_steps; /* that a search by it counts as */
    pcre2_code *counted;  /* with a callout before each item */
    struct regex_text text;
    bool has_jit;
    bool has_references; /* \1 and the like */
    bool too_big;        /* compiling asked for more than MAX_BLOCK */
};

struct regex_state {
    pcre2_match_data *match;
    pcre2_match_context *quick, *counted;
    const struct regex *re;
    uint64_t steps, max_steps;
    size_t at;     /* where the item before began */
    uint32_t item; /* the bytes of its text */
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
compile(struct regex *re, pcre2_code **code, const char *pattern, size_t n,
        uint32_t options, struct err *err)
{
    pcre2_general_context *general = pcre2_general_context_create(
        bounded_malloc, bounded_free, &re->too_big);
    pcre2_compile_context *context =
        general ? pcre2_compile_context_create(general) : NULL;
    int number = PCRE2_ERROR_HEAP_FAILED;
    PCRE2_UCHAR why[200];
    PCRE2_SIZE at = 0;

    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_parens_nest_limit(context, REGEX_MAX_NEST);
        pcre2_set_max_pattern_length(context, REGEX_MAX_PATTERN);
        *code = pcre2_compile((PCRE2_SPTR)pattern, n, options, &number, &at,
                              context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (*code)
        return 0;
    if (re->too_big)
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

/* The copy for long texts, unless a try by it may take long.  Without a JIT the
 * interpreter gives the same. */
static int
compile_quick(struct regex *re, const char *pattern, size_t n, uint32_t options,
              struct err *err)
{
    uint64_t cost;

    if (compile(re, &re->quick, pattern, n, options, err) < 0)
        return -1;
    cost = (1 + re->text.repeat) * info(re->quick, PCRE2_INFO_SIZE);
    if (cost > QUICK_MAX_COST) {
        pcre2_code_free(re->quick);
        re->quick = NULL;
        return 0;
    }
    re->quick_steps = 1 + (cost * cost >> 20);
    if (re->text.jit_counts)
        re->has_jit =
            pcre2_jit_compile(re->quick, PCRE2_JIT_COMPLETE |
                                             PCRE2_JIT_PARTIAL_HARD) == 0 &&
            info(re->quick, PCRE2_INFO_JITSIZE) > 0;
    return 0;
}

int
regex_compile(struct regex **out, const char *pattern, size_t n, int flags,
              const char *where, struct err *err)
{
    uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C |
                       PCRE2_DOLLAR_ENDONLY |
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
    regex_text_read(&re->text, pattern, n);
    if (re->text.refused)
        rc = err_set(err, EX_DATAERR, "%s: regex with %s is not supported",
                     where, re->text.refused);
    else if (re->text.n_folded > REGEX_MAX_FOLDED)
        rc = err_set(err, EX_DATAERR,
                     "%s: regex ignores the case of %zu characters in ranges "
                     "(at most %d)",
                     where, re->text.n_folded, REGEX_MAX_FOLDED);
    else
        rc = compile(re, &re->counted, pattern, n, options | COUNTED, err);
    for (size_t i = 0; rc == 0 && i < sizeof(bounds) / sizeof(*bounds); i++) {
        size_t found = info(re->counted, bounds[i].info);

        if (found > bounds[i].max)
            rc = err_set(err, EX_DATAERR, "%s: regex has %zu %s (at most %zu)",
                         where, found, bounds[i].what, bounds[i].max);
    }
    if (rc == 0 && flags & REGEX_LONG && !re->text.has_start)
        rc = compile_quick(re, pattern, n, options, err);
    if (rc < 0) {
        regex_free(re);
        return -1;
    }
    re->has_references = info(re->counted, PCRE2_INFO_BACKREFMAX) > 0;
    *out = re;
    return 0;
}

size_t
regex_nbytes(const struct regex *re)
{
    size_t n = sizeof(*re) + strlen(re->where) + 1;

    n += info(re->counted, PCRE2_INFO_SIZE);
    if (re->quick)
        n += info(re->quick, PCRE2_INFO_SIZE) +
             info(re->quick, PCRE2_INFO_JITSIZE);
    return n;
}

size_t
regex_n_folded(const struct regex *re)
{
    return re->text.n_folded;
}

void
regex_free(struct regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->quick);
    pcre2_code_free(re->counted);
    free(re->where);
    free(re);
}

/* ---- searching ---- */

/* Before each item: what the one before it took.  A failed item has gone
 * over no more characters than it has to match. */
static int
count(pcre2_callout_block *block, void *data)
{
    struct regex_state *state = data;
    uint64_t n = 1 + state->re->text.repeat, longest = 0;

    if (block->current_position > state->at)
        n += block->current_position - state->at;
    /* a back reference may compare what a group has captured */
    for (uint32_t i = 1; state->re->has_references && i < block->capture_top;
         i++) {
        const PCRE2_SIZE *ends = block->offset_vector + 2 * i;

        if (ends[1] != PCRE2_UNSET && ends[1] > ends[0])
            longest = larger(longest, ends[1] - ends[0]);
    }
    n += longest;
    state->steps += n * (1 + state->item / 32);
    state->at = block->current_position;
    state->item = (uint32_t)block->next_item_length;
    return state->steps > state->max_steps ? PCRE2_ERROR_CALLOUT : 0;
}

void
regex_work_free(struct regex_work *work)
{
    struct regex_state *state = work->state;

    if (state) {
        pcre2_match_data_free(state->match);
        pcre2_match_context_free(state->quick);
        pcre2_match_context_free(state->counted);
        free(state);
    }
    *work = (struct regex_work){ 0 };
}

/* The end of the window that begins at 'pos', between characters. */
static size_t
window_end(const char *s, size_t n, size_t pos)
{
    size_t end = pos + REGEX_WINDOW;

    if (n - pos <= REGEX_WINDOW)
        return n;
    while (((uint8_t)s[end] & 0xc0) == 0x80)
        end--;
    return end;
}

static uint64_t
max_steps(const struct regex_work *work)
{
    return REGEX_STEPS + REGEX_STEPS_PER_BYTE * work->nbytes;
}

/*
 * A search by the copy that does not count, from window to window.  A match
 * that might be another one if the window were longer is reported as partial,
 * by PCRE2_PARTIAL_HARD, but for a '^' after a newline that ends the window,
 * and for '\R+' whose last '\r' does: no window ends with either. Returns what
 * PCRE2 does; if that is neither a match nor PCRE2_ERROR_NOMATCH, no match
 * begins before *pos.
 */
static int
find_quick(const struct regex *re, struct regex_work *work, const char *s,
           size_t n, size_t *pos)
{
    struct regex_state *state = work->state;
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(state->match);
    int rc;

    for (;;) {
        size_t end = window_end(s, n, *pos);

        while (end < n && end > *pos &&
               (s[end - 1] == '\n' || s[end - 1] == '\r'))
            end--;
        if (end == *pos && end < n)
            return PCRE2_ERROR_PARTIAL;
        work->steps += re->quick_steps;
        if (work->steps > max_steps(work))
            return PCRE2_ERROR_CALLOUT;
        rc = (re->has_jit ? pcre2_jit_match : pcre2_match)(
            re->quick, (PCRE2_SPTR)s, end, *pos,
            PCRE2_NO_UTF_CHECK | (end < n ? PCRE2_PARTIAL_HARD : 0),
            state->match, state->quick);
        if (rc == PCRE2_ERROR_NOMATCH && end < n)
            *pos = end;
        else if (rc == PCRE2_ERROR_PARTIAL && ends[0] > *pos && ends[0] <= end)
            *pos = ends[0];
        else
            return rc;
    }
}

static size_t
max_heap(const struct regex_work *work)
{
    return smaller(REGEX_HEAP + REGEX_HEAP_PER_BYTE * work->nbytes,
                   REGEX_MAX_HEAP);
}

/* A match that begins in s[pos..last], by the copy that counts. */
static int
find_counted(const struct regex *re, struct regex_work *work, const char *s,
             size_t n, size_t pos, size_t last)
{
    struct regex_state *state = work->state;
    size_t heap = max_heap(work);
    int rc;

    state->re = re;
    state->at = pos;
    state->item = 0;
    state->steps = work->steps;
    state->max_steps = max_steps(work);
    pcre2_set_offset_limit(state->counted, last);
    pcre2_set_heap_limit(state->counted, (uint32_t)(heap / 1024));
    pcre2_set_depth_limit(state->counted, (uint32_t)(heap / MIN_FRAME));
    pcre2_set_match_limit(
        state->counted,
        (uint32_t)smaller(MATCHES_PER_STEP * state->max_steps, UINT32_MAX));
    rc = pcre2_match(re->counted, (PCRE2_SPTR)s, n, pos, PCRE2_NO_UTF_CHECK,
                     state->match, state->counted);
    work->steps = state->steps;
    return rc;
}

static int
find(const struct regex *re, struct regex_work *work, const char *s, size_t n,
     size_t pos)
{
    int rc = PCRE2_ERROR_NOMATCH;

    if (!re->quick)
        return find_counted(re, work, s, n, pos, n);
    for (size_t end = pos; rc == PCRE2_ERROR_NOMATCH && end <= n; pos = end) {
        rc = find_quick(re, work, s, n, &pos);
        if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH || rc == PCRE2_ERROR_CALLOUT)
            return rc;
        end = window_end(s, n, pos) + (n - pos <= REGEX_WINDOW);
        rc = find_counted(re, work, s, n, pos, end - 1);
    }
    return rc;
}

static int
cannot_match(const struct regex *re, const struct regex_work *work, int rc,
             struct err *err)
{
    unsigned long long nbytes = work->nbytes;
    PCRE2_UCHAR why[200];

    switch (rc) {
    case PCRE2_ERROR_NOMEMORY:
        return err_set(err, EX_SOFTWARE, "%s: out of memory", re->where);
    case PCRE2_ERROR_CALLOUT:
    case PCRE2_ERROR_MATCHLIMIT:
        return err_set(err, EX_DATAERR,
                       "%s: regex takes more than %llu steps for %llu bytes of "
                       "text",
                       re->where, (unsigned long long)max_steps(work), nbytes);
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
        return err_set(err, EX_DATAERR,
                       "%s: regex takes more than %zu bytes of memory for %llu "
                       "bytes of text",
                       re->where, max_heap(work), nbytes);
    default:
        pcre2_get_error_message(rc, why, sizeof(why));
        return err_set(err, EX_DATAERR, "%s: regex: %s", re->where,
                       (const char *)why);
    }
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
        state->quick = pcre2_match_context_create(NULL);
        state->counted = pcre2_match_context_create(NULL);
        if (state->quick) {
            pcre2_set_match_limit(state->quick, REGEX_TRIES);
            pcre2_set_heap_limit(state->quick, REGEX_HEAP / 1024);
        }
        if (state->counted)
            pcre2_set_callout(state->counted, count, state);
    }
    if (state->match && state->quick && state->counted)
        rc = find(re, work, s, n, pos);
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
