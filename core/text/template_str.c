/* SPDX-License-Identifier: ISC */
#include "core/text/template_str.h"

#include <string.h>
#include <utf8proc.h>

#include "core/mem.h"
#include "core/text/template_lex.h"

/* The length of the character at s, which is valid UTF-8. */
static size_t
char_at(const char *s, size_t n, uint32_t *c)
{
    *c = 0;
    return (size_t)utf8_next(s, n, c);
}

/* The length of the character that ends at s + n. */
static size_t
char_before(const char *s, size_t n)
{
    size_t k = 1;

    while (((unsigned char)s[n - k] & 0xc0) == 0x80)
        k++;
    return k;
}

static bool
is_among(const char *c, size_t k, const struct tmpl_text *chars)
{
    return memmem(chars->s, chars->n, c, k) != NULL;
}

struct tmpl_value
tmpl_strip(struct tmpl_heap *heap, const struct tmpl_text *text,
           const struct tmpl_text *chars, bool left, bool right)
{
    size_t from = 0, to = text->n, k;
    uint32_t c;

    while (left && from < to) {
        k = chars ? char_at(text->s + from, to - from, &c)
                  : tmpl_space(text->s + from, to - from);
        if (k == 0 || (chars && !is_among(text->s + from, k, chars)))
            break;
        from += k;
    }
    while (right && from < to) {
        k = chars ? char_before(text->s, to)
                  : tmpl_space_before(text->s + from, to - from);
        if (k == 0 || (chars && !is_among(text->s + to - k, k, chars)))
            break;
        to -= k;
    }
    heap->work += (text->n - (to - from)) * (chars ? 1 + chars->n : 1);
    return tmpl_cut(heap, text, from, to);
}

size_t
tmpl_search(struct tmpl_heap *heap, const struct tmpl_text *text,
            const struct tmpl_text *what, size_t from, bool last)
{
    const char *p = NULL;

    if (what->n > text->n - from)
        return SIZE_MAX;
    heap->work += text->n - from;
    if (!last) {
        p = memmem(text->s + from, text->n - from, what->s, what->n);
        return p ? (size_t)(p - text->s) : SIZE_MAX;
    }
    for (size_t i = text->n - what->n + 1; i-- > from;) {
        if (!memcmp(text->s + i, what->s, what->n))
            return i;
        heap->work += what->n;
    }
    return SIZE_MAX;
}

size_t
tmpl_count(struct tmpl_heap *heap, const struct tmpl_text *text,
           const struct tmpl_text *what)
{
    const char *at = text->s, *end = at + text->n;
    size_t n = 0;

    heap->work += text->n;
    if (what->n == 0)
        return text->n_chars + 1;
    for (; (at = memmem(at, (size_t)(end - at), what->s, what->n)) != NULL; n++)
        at += what->n;
    return n;
}

static void
split_spaces(struct tmpl_heap *heap, const struct tmpl_text *text, size_t max,
             struct tmpl_list *list)
{
    size_t at = 0, from, k;

    for (;;) {
        while ((k = tmpl_space(text->s + at, text->n - at)) > 0)
            at += k;
        if (at == text->n || heap->over)
            return;
        from = at;
        if (list->n == max) {
            at = text->n;
        } else {
            while (at < text->n && !tmpl_space(text->s + at, text->n - at))
                at++;
        }
        tmpl_push(heap, list, tmpl_cut(heap, text, from, at));
    }
}

static void
rsplit_spaces(struct tmpl_heap *heap, const struct tmpl_text *text, size_t max,
              struct tmpl_list *list)
{
    size_t at = text->n, to, k;

    for (;;) {
        while ((k = tmpl_space_before(text->s, at)) > 0)
            at -= k;
        if (at == 0 || heap->over)
            return;
        to = at;
        if (list->n == max) {
            at = 0;
        } else {
            while (at > 0 && !tmpl_space_before(text->s, at))
                at--;
        }
        tmpl_push(heap, list, tmpl_cut(heap, text, at, to));
    }
}

static void
reverse(struct tmpl_list *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        struct tmpl_value v = list->v[i];

        list->v[i] = list->v[list->n - 1 - i];
        list->v[list->n - 1 - i] = v;
    }
}

void
tmpl_split(struct tmpl_heap *heap, const struct tmpl_text *text,
           const struct tmpl_text *separator, size_t max, bool right,
           struct tmpl_list *list)
{
    size_t at = 0, end = text->n;

    heap->work += text->n;
    if (!separator) {
        (right ? rsplit_spaces : split_spaces)(heap, text, max, list);
    } else if (right) {
        for (size_t i = end; i >= separator->n && list->n < max;) {
            if (memcmp(text->s + i - separator->n, separator->s,
                       separator->n) != 0) {
                i--;
                continue;
            }
            tmpl_push(heap, list, tmpl_cut(heap, text, i, end));
            if (heap->over)
                return;
            end = i -= separator->n;
        }
        tmpl_push(heap, list, tmpl_cut(heap, text, 0, end));
    } else {
        while (list->n < max && !heap->over) {
            const char *p =
                memmem(text->s + at, text->n - at, separator->s, separator->n);

            if (!p)
                break;
            end = (size_t)(p - text->s);
            tmpl_push(heap, list, tmpl_cut(heap, text, at, end));
            at = end + separator->n;
        }
        tmpl_push(heap, list, tmpl_cut(heap, text, at, text->n));
    }
    if (right)
        reverse(list);
}

/* The length of the line's end at s: those of str.splitlines(). */
static size_t
line_end(const char *s, size_t n)
{
    uint32_t c;
    size_t k = char_at(s, n, &c);

    if (c == '\r' && n > 1 && s[1] == '\n')
        return 2;
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                   c == 0x2028 || c == 0x2029
               ? k
               : 0;
}

void
tmpl_splitlines(struct tmpl_heap *heap, const struct tmpl_text *text,
                bool keep_ends, struct tmpl_list *list)
{
    size_t from = 0, k;

    heap->work += text->n;
    for (size_t at = 0; at < text->n && !heap->over; at += k) {
        k = line_end(text->s + at, text->n - at);
        if (k == 0) {
            k = 1;
            while (((unsigned char)text->s[at + k] & 0xc0) == 0x80 &&
                   at + k < text->n)
                k++;
            continue;
        }
        tmpl_push(heap, list,
                  tmpl_cut(heap, text, from, keep_ends ? at + k : at));
        from = at + k;
    }
    if (from < text->n)
        tmpl_push(heap, list, tmpl_cut(heap, text, from, text->n));
}

struct tmpl_value
tmpl_replace(struct tmpl_heap *heap, const struct tmpl_text *text,
             const struct tmpl_text *old, const struct tmpl_text *new,
             size_t max)
{
    struct tmpl_builder b = { .heap = heap, .markup = text->markup };
    size_t at = 0;

    heap->work += text->n;
    for (uint32_t c; max > 0 && !heap->over; max--) {
        const char *p = memmem(text->s + at, text->n - at, old->s, old->n);
        size_t to = p ? (size_t)(p - text->s) : text->n;

        if (!p)
            break;
        tmpl_put_cut(&b, text, at, to);
        tmpl_put_text(&b, new);
        at = to + old->n;
        if (old->n == 0) { /* between all characters */
            if (at == text->n)
                break;
            to = at + char_at(text->s + at, text->n - at, &c);
            tmpl_put_cut(&b, text, at, to);
            at = to;
        }
    }
    if (at == 0 && b.n == 0)
        return tmpl_cut(heap, text, 0, text->n);
    tmpl_put_cut(&b, text, at, text->n);
    return tmpl_built(&b);
}

static bool
is_cased(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);

    return category == UTF8PROC_CATEGORY_LU ||
           category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

static bool
is_case_ignorable(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);

    return category == UTF8PROC_CATEGORY_MN ||
           category == UTF8PROC_CATEGORY_ME ||
           category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_LM ||
           category == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
           c == ':' || c == 0xb7 || c == 0x2018 || c == 0x2019;
}

/* Is a capital sigma at s + at the last letter of a word, after another? */
static bool
ends_word(const char *s, size_t n, size_t at)
{
    uint32_t c = 0;
    size_t i = at;

    while (i > 0) {
        i -= char_before(s, i);
        char_at(s + i, n - i, &c);
        if (!is_case_ignorable(c))
            break;
        c = 0;
    }
    if (!is_cased(c))
        return false;
    c = 0;
    for (i = at + 2; i < n; c = 0) {
        i += char_at(s + i, n - i, &c);
        if (!is_case_ignorable(c))
            break;
    }
    return !is_cased(c);
}

/* A character in upper case, or 'title' case, as UTF-8.  Some, such as the
 * German sz, have several: those of the letters that it folds to. */
static size_t
put_upper(char *to, uint32_t c, bool title)
{
    utf8proc_int32_t folded[4], one = (utf8proc_int32_t)c;
    utf8proc_ssize_t n = 0;
    size_t k = 0;
    int boundary = 0;

    if (c >= 0x80 && utf8proc_category(one) != UTF8PROC_CATEGORY_LU &&
        !(title && c != 0xdf && utf8proc_totitle(one) != one))
        n = utf8proc_decompose_char(one, folded, 4, UTF8PROC_CASEFOLD,
                                    &boundary);
    if (n < 2 || n > 4) {
        one = title ? utf8proc_totitle(one) : utf8proc_toupper(one);
        return (size_t)utf8_put(to, (uint32_t)one);
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        one = title && i > 0 ? folded[i]
              : title        ? utf8proc_totitle(folded[i])
                             : utf8proc_toupper(folded[i]);
        k += (size_t)utf8_put(to + k, (uint32_t)one);
    }
    return k;
}

static bool
separates_words(const char *s, size_t n)
{
    return tmpl_space(s, n) > 0 || memchr("-({[<", s[0], 5);
}

struct tmpl_value
tmpl_in_case(struct tmpl_heap *heap, const struct tmpl_text *text,
             enum tmpl_case how)
{
    struct tmpl_builder b = { .heap = heap, .markup = text->markup };
    bool start = true;
    uint32_t c;
    char to[16];

    heap->work += 8 * text->n;
    for (size_t i = 0, k, n; i < text->n && !heap->over; i += k) {
        k = char_at(text->s + i, text->n - i, &c);
        if (how == TMPL_UPPER || (start && how != TMPL_LOWER)) {
            n = put_upper(to, c, how == TMPL_CAPITALIZE || how == TMPL_TITLE);
        } else if (c == 0x130) {
            n = 3;
            memcpy(to, "i\xcc\x87", 3);
        } else if (c == 0x3a3) {
            n = (size_t)utf8_put(to, ends_word(text->s, text->n, i) ? 0x3c2
                                                                    : 0x3c3);
        } else {
            n = (size_t)utf8_put(
                to, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
        }
        tmpl_put(&b, to, n, tmpl_origin_at(text, i));
        start = how == TMPL_TITLE         ? !is_cased(c)
                : how == TMPL_TITLE_WORDS ? separates_words(text->s + i, k)
                                          : false;
    }
    return tmpl_built(&b);
}

bool
tmpl_all_are(const struct tmpl_text *text, char kind)
{
    bool some = false;
    uint32_t c;

    for (size_t i = 0, k; i < text->n; i += k) {
        utf8proc_category_t category;
        bool letter, digit;

        k = char_at(text->s + i, text->n - i, &c);
        category = utf8proc_category((utf8proc_int32_t)c);
        letter = category >= UTF8PROC_CATEGORY_LU &&
                 category <= UTF8PROC_CATEGORY_LO;
        digit = category == UTF8PROC_CATEGORY_ND;
        if (kind == 'u' || kind == 'l') {
            if (is_cased(c) && category != (kind == 'u' ? UTF8PROC_CATEGORY_LU
                                                        : UTF8PROC_CATEGORY_LL))
                return false;
            some |= is_cased(c);
            continue;
        }
        some = true;
        if (!(kind == 'a'   ? letter
              : kind == 'd' ? digit
              : kind == 'n' ? letter || digit
                            : tmpl_space(text->s + i, k) > 0))
            return false;
    }
    return some;
}

struct tmpl_value
tmpl_escape(struct tmpl_heap *heap, const struct tmpl_text *text)
{
    static const char special[] = "&<>\"'";
    static const char *const names[] = { "&amp;", "&lt;", "&gt;", "&#34;",
                                         "&#39;" };
    struct tmpl_builder b = { .heap = heap, .markup = true };

    if (text->markup)
        return tmpl_cut(heap, text, 0, text->n);
    for (size_t i = 0; i < text->n && !heap->over; i++) {
        const char *p = text->s[i] ? strchr(special, text->s[i]) : NULL;

        if (p)
            tmpl_put(&b, names[p - special], strlen(names[p - special]),
                     tmpl_origin_at(text, i));
        else
            tmpl_put_cut(&b, text, i, i + 1);
    }
    return tmpl_built(&b);
}
