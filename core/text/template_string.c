/* SPDX-License-Identifier: ISC */
/* Methods of strings in templates, and the filters that are them. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/mem.h"
#include "core/text/template_impl.h"

/* An argument as a string: that of None is NULL, and of what was not given. */
static const struct ttext *
text_of(struct trun *r, const struct tvalue *v)
{
    if (v->kind == V_UNDEFINED || (v->kind > V_NONE && v->kind != V_TEXT))
        t_fail(r, "a %s is not supported here (a str is)", t_type(v));
    return v->kind == V_TEXT ? v->text : NULL;
}

/* An argument as a number of things: of None, and of less than 0, all. */
static size_t
count_of(struct trun *r, const struct tvalue *v)
{
    if (v->kind == V_UNDEFINED || (v->kind > V_NONE && v->kind != V_INT))
        t_fail(r, "a %s is not supported here (an int is)", t_type(v));
    return v->kind == V_INT && v->i >= 0 ? (size_t)v->i : SIZE_MAX;
}

enum { LEFT = 1, RIGHT = 2 };

CALL(strip) /* s, chars */
{
    const struct ttext *s = a->v[0].text, *chars = text_of(r, &a->v[1]);
    size_t from = 0, to = s->n, at, k;

    for (int side = LEFT; side <= RIGHT; side++)
        while ((a->how & side) && from < to) {
            for (at = side == LEFT ? from : to - 1;
                 ((unsigned char)s->s[at] & 0xc0) == 0x80;)
                at--;
            k = t_char(s, at);
            if (!(chars ? memmem(chars->s, chars->n, s->s + at, k) != NULL
                        : t_space(s->s + at, k) > 0))
                break;
            from += side == LEFT ? k : 0;
            to -= side == LEFT ? 0 : k;
            r->work += chars ? chars->n : 0;
        }
    return t_cut(r, s, from, to);
}

CALL(split) /* s, sep, maxsplit */
{
    const struct ttext *s = a->v[0].text, *sep = text_of(r, &a->v[1]);
    struct tvalue list = t_list(r, V_LIST);
    size_t max = count_of(r, &a->v[2]), at = 0, to, k = sep ? sep->n : 0;

    if (sep && k == 0)
        return t_fail(r, "empty separator");
    while (!r->failed) {
        for (size_t space; !sep && (space = t_space(s->s + at, s->n - at));)
            at += space;
        if (!sep && at == s->n)
            break;
        to = at;
        if (sep && list.list->n < max) {
            const char *p = memmem(s->s + at, s->n - at, sep->s, k);

            to = p ? (size_t)(p - s->s) : s->n;
        } else if (list.list->n < max) {
            while (to < s->n && !t_space(s->s + to, s->n - to))
                to++;
        } else {
            to = s->n;
        }
        t_push(r, list.list, t_cut(r, s, at, to));
        at = to + k;
        if (sep && to == s->n)
            break;
    }
    return list;
}

CALL(replace) /* s, old, new, count */
{
    struct tbuf b = { .r = r };
    const struct ttext *s = a->v[0].text, *old = text_of(r, &a->v[1]),
                       *new = text_of(r, &a->v[2]);
    size_t max = count_of(r, &a->v[3]), at = 0;

    if (!old || !new || old->n == 0)
        return t_fail(r, "replace of this is not supported");
    for (; max > 0 && !r->failed; max--) {
        const char *p = memmem(s->s + at, s->n - at, old->s, old->n);

        if (!p)
            break;
        t_put_cut(&b, s, at, (size_t)(p - s->s));
        t_put_cut(&b, new, 0, new->n);
        at = (size_t)(p - s->s) + old->n;
    }
    t_put_cut(&b, s, at, s->n);
    return t_built(&b);
}

CALL(begins) /* s, what: or ends */
{
    const struct ttext *s = a->v[0].text, *what = text_of(r, &a->v[1]);

    if (!what)
        return t_fail(r, "startswith and endswith need a str");
    return t_bool(what->n <= s->n &&
                  !memcmp(s->s + (a->how == LEFT ? 0 : s->n - what->n), what->s,
                          what->n));
}

enum { UPPER, LOWER, CAPITALIZE, TITLE };

/* A character in upper or title case, if that is one: some, such as the German
 * sz, have no such form, and become several letters. */
static size_t
put_upper(struct trun *r, char *to, int32_t c, bool title)
{
    int32_t up = title ? utf8proc_totitle(c) : utf8proc_toupper(c);
    utf8proc_category_t category = utf8proc_category(up);

    if (category == UTF8PROC_CATEGORY_LL || c == 0xdf ||
        (category == UTF8PROC_CATEGORY_LT && !title))
        t_fail(r, "a character that may become several letters in upper case "
                  "is not supported");
    return (size_t)utf8_put(to, (uint32_t)up);
}

static struct tvalue
in_case(struct trun *r, const struct ttext *s, int how)
{
    struct tbuf b = { .r = r };
    bool start = true;
    char to[4];

    r->work += 8 * s->n;
    for (size_t at = 0, k, n; at < s->n && !r->failed; at += k) {
        uint32_t c = 0;

        k = (size_t)utf8_next(s->s + at, s->n - at, &c);
        n = 3;
        if (how == UPPER || (start && how != LOWER))
            n = put_upper(r, to, (int32_t)c, how != UPPER);
        else if (c == 0x130) /* the one that becomes two in lower case */
            memcpy(to, "i\xcc\x87", 3);
        else
            n = (size_t)utf8_put(to, (uint32_t)utf8proc_tolower((int32_t)c));
        t_put(&b, to, n, t_of(s, at));
        start = how == TITLE &&
                utf8proc_toupper((int32_t)c) == utf8proc_tolower((int32_t)c);
    }
    return t_built(&b);
}

CALL(change_case) /* s */
{
    return in_case(r, a->v[0].text, a->how);
}

struct tvalue
t_lower(struct trun *r, const struct ttext *s)
{
    return in_case(r, s, LOWER);
}

CALL(string) /* s */
{
    (void)r;
    return a->v[0];
}

const struct tcallable t_strings[] = {
    { "fs", "capitalize", "s", change_case, CAPITALIZE },
    { "fs", "lower", "s", change_case, LOWER },
    { "fs", "replace", "s old new count?", replace, 0 },
    { "f", "safe string", "s", string, 0 },
    { "f", "trim", "s chars?", strip, LEFT | RIGHT },
    { "fs", "upper", "s", change_case, UPPER },
    { "s", "endswith", "s WHAT", begins, RIGHT },
    { "s", "lstrip", "s chars?", strip, LEFT },
    { "s", "rstrip", "s chars?", strip, RIGHT },
    { "s", "split", "s sep? maxsplit?", split, 0 },
    { "s", "startswith", "s WHAT", begins, LEFT },
    { "s", "strip", "s chars?", strip, LEFT | RIGHT },
    { "s", "title", "s", change_case, TITLE },
    { 0 },
};
