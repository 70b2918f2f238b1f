/* SPDX-License-Identifier: ISC */
#include "core/text/tok_norm.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/mem.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_parts.h"

/* Code points that are being put into a normal form. */
struct points {
    int32_t *c;
    size_t n, cap;
};

bool
is_white_space(uint32_t c)
{
    utf8proc_category_t category;

    if (c < 0x80)
        return c == ' ' || (c >= '\t' && c <= '\r');
    category = utf8proc_category((utf8proc_int32_t)c);
    return c == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

/*
 * A plain character is the same in any normal form that 'step' may ask for,
 * and the text before it does not influence the text after it: text can be cut
 * before it.  What composes with a character before it is a mark or
 * a jamo (Kirat Rai has vowels of that kind, too); Hangul syllables fall apart
 * without a decomposition in the tables.
 */
static bool
is_plain(uint32_t c, const struct norm_step *step)
{
    const utf8proc_property_t *p;

    if (c < (step->compose && !step->compat ? 0x300 : 0x80))
        return true;
    if ((c >= 0x1100 && c < 0x1200) || (c >= 0x16d63 && c < 0x16d6b) ||
        (c >= 0xac00 && c < 0xd7a4 && !step->compose))
        return false;
    p = utf8proc_get_property((utf8proc_int32_t)c);
    return p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX &&
           p->category != UTF8PROC_CATEGORY_MN &&
           p->category != UTF8PROC_CATEGORY_MC &&
           p->category != UTF8PROC_CATEGORY_ME;
}

static int
combining_class(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/*
 * Canonical ordering: marks between starters, stably by combining class.  A
 * counting sort, because a text may be a megabyte of marks.
 */
static void
order(struct points *points)
{
    int32_t *c = points->c;

    for (size_t i = 0, begin; i < points->n; i++) {
        bool sorted = true;

        if (combining_class(c[i]) == 0)
            continue;
        for (begin = i; ++i < points->n && combining_class(c[i]) != 0;)
            sorted &= combining_class(c[i - 1]) <= combining_class(c[i]);
        if (sorted)
            continue;

        size_t start[257] = { 0 };
        int32_t *old = xmalloc((i - begin) * sizeof(*old));

        memcpy(old, c + begin, (i - begin) * sizeof(*old));
        for (size_t k = begin; k < i; k++)
            start[combining_class(c[k]) + 1]++;
        for (size_t k = 1; k < 257; k++)
            start[k] += start[k - 1];
        for (size_t k = 0; k < i - begin; k++)
            c[begin + start[combining_class(old[k])]++] = old[k];
        free(old);
    }
}

/* Copies plain text; the rest goes through utf8proc, from cut to cut.  It ends
 * where 'out' is longer than 'max'. */
static void
normalize(const struct norm_step *step, const char *s, size_t n, size_t max,
          struct str *out)
{
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                      (step->compat ? UTF8PROC_COMPAT : 0);
    struct points points = { 0 };
    utf8proc_ssize_t n_points;
    size_t copied = 0, last = 0, i = 0;
    char utf8[4];
    uint32_t c;

    while (i < n && out->n <= max) {
        size_t at = i;

        i += (size_t)utf8_next(s + i, n - i, &c);
        if (is_plain(c, step)) {
            last = at;
            continue;
        }
        str_add(out, s + copied, last - copied);
        for (i = last; i < n;) {
            size_t length = (size_t)utf8_next(s + i, n - i, &c);

            if (i > at && is_plain(c, step))
                break;
            if (points.cap - points.n < 32) /* the longest of all has 18 */
                points.c =
                    xgrow(points.c, points.n, &points.cap, sizeof(*points.c));
            n_points = utf8proc_decompose_char(
                (utf8proc_int32_t)c, points.c + points.n, 32, options, NULL);
            if (n_points > 0 && n_points <= 32)
                points.n += (size_t)n_points;
            else
                points.c[points.n++] = (int32_t)c;
            i += length;
        }
        order(&points);
        n_points = (utf8proc_ssize_t)points.n;
        if (step->compose)
            n_points = utf8proc_normalize_utf32(
                points.c, n_points, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        for (utf8proc_ssize_t k = 0; k < n_points && out->n <= max; k++)
            str_add(out, utf8, (size_t)utf8_put(utf8, (uint32_t)points.c[k]));
        points.n = 0;
        copied = last = i;
    }
    str_add(out, s + copied, n - copied);
    free(points.c);
}

int
norm_run(const struct norm_step *steps, size_t n_steps, const char *s, size_t n,
         struct growth *growth, struct regex_work *work, struct str *out,
         bool *at_start, struct err *err)
{
    struct str in = { 0 };
    struct tok_regex_iter it;
    size_t done, a, b;
    uint32_t c;
    int rc = 0;

    str_clear(out);
    str_add(out, s, n);
    for (size_t i = 0; i < n_steps && rc == 0; i++) {
        const struct norm_step *step = &steps[i];
        size_t max = growth_room(growth, i);
        struct str t = in;

        in = *out;
        *out = t;
        str_clear(out);
        str_reserve(out, in.n + 1);
        switch (step->type) {
        case NORM_UNICODE:
            normalize(step, in.s, in.n, max, out);
            break;
        case NORM_PREPEND:
            if (in.n)
                str_add(out, step->content.s, step->content.n);
            str_add(out, in.s, in.n);
            break;
        case NORM_REPLACE:
            it = tok_regex_start(&step->regex, work, in.s, in.n);
            done = 0;
            while (in.n && out->n <= max &&
                   (rc = tok_regex_next(&it, &a, &b, err)) > 0) {
                /* the reference counts a replacement as being where the
                 * match's last character was: is that not the start? */
                if (a == 0 && b > 0 &&
                    (step->content.n == 0 ||
                     b > (size_t)utf8_next(in.s, in.n, &c)))
                    *at_start = false;
                str_add(out, in.s + done, a - done);
                str_add(out, step->content.s, step->content.n);
                done = b;
            }
            str_add(out, in.s + done, in.n - done);
            rc = rc < 0 ? -1 : 0;
            break;
        }
        if (rc == 0)
            rc = growth_add(growth, i, out->n, err);
    }
    str_free(&in);
    return rc;
}

int
norm_parse(struct tok *tok, const struct js *js, struct err *err)
{
    struct js pattern = js_get(js, "pattern");
    struct norm_step *step;
    const char *type, *form;
    int rc =
        part_step(tok, js, "normalizers", norm_parse, &tok->n_norm, &type, err);

    if (rc <= 0)
        return rc;
    step = &tok->norm[tok->n_norm - 1];
    if (strncmp(type, "NF", 2) == 0) {
        form = type + 2 + (type[2] == 'K');
        step->type = NORM_UNICODE;
        step->compat = type[2] == 'K';
        step->compose = *form == 'C';
        if ((*form == 'C' || *form == 'D') && !form[1])
            return 0;
    } else if (strcmp(type, "Prepend") == 0) {
        step->type = NORM_PREPEND;
        return part_str(js, "prepend", &step->content, err);
    } else if (strcmp(type, "Replace") == 0) {
        step->type = NORM_REPLACE;
        if (part_str(js, "content", &step->content, err) < 0)
            return -1;
        return tok_regex_parse(&step->regex, &pattern, err);
    }
    return part_unknown(js, "NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence",
                        err);
}

void
norm_free(struct norm_step *step)
{
    str_free(&step->content);
    tok_regex_free(&step->regex);
}
