/* SPDX-License-Identifier: ISC */
/* Python's text % values, of %s, %d, %i, %f and %%. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/template_call.h"

#define MAX_WIDTH 999

struct conversion {
    bool left, zeros, plus;
    int width, precision; /* -1: none */
};

static void
put_padded(struct tmpl_builder *b, const struct tmpl_text *text,
           const struct conversion *c)
{
    size_t pad = c->width > 0 && (size_t)c->width > text->n_chars
                     ? (size_t)c->width - text->n_chars
                     : 0;

    for (size_t i = 0; i < pad && !c->left; i++)
        tmpl_put(b, " ", 1, 0);
    tmpl_put_text(b, text);
    for (size_t i = 0; i < pad && c->left; i++)
        tmpl_put(b, " ", 1, 0);
}

static int
put_number(struct tmpl_run *run, struct tmpl_builder *b, char type,
           const struct conversion *c, const struct tmpl_value *v)
{
    char s[1400]; /* 310 digits, 999 after the point */
    struct tmpl_value text;
    size_t n, sign;
    double f;

    if (v->kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, v);
    if (!tmpl_number(v, &f))
        return tmpl_fail(run, "%%%c format: a real number is required, not %s",
                         type, tmpl_type(v));
    if (type != 'f' && !(fabs(f) < 9.2e18))
        return tmpl_fail(run, "an integer has more than 64 bits, which is not "
                              "supported");
    n = (size_t)(type == 'f'
                     ? snprintf(s, sizeof(s), "%+.*f",
                                c->precision < 0 ? 6 : c->precision, f)
                     : snprintf(s, sizeof(s), "%+.*lld", c->precision,
                                tmpl_is_int(v) ? (long long)tmpl_as_int(v)
                                               : (long long)f));
    sign = s[0] == '-' || c->plus;
    if (c->zeros && !c->left && isfinite(f)) {
        tmpl_put(b, s, sign, 0);
        for (size_t i = n - 1 + sign; i < (size_t)c->width; i++)
            tmpl_put(b, "0", 1, 0);
        tmpl_put(b, s + 1, n - 1, 0);
        return 0;
    }
    text = tmpl_text(&run->heap, s + 1 - sign, n - 1 + sign, 0);
    put_padded(b, text.text, c);
    return 0;
}

/* The number at text->s[*at], if there is one. */
static int
read_number(const struct tmpl_text *text, size_t *at, int unset)
{
    int n = 0;

    if (*at >= text->n || text->s[*at] < '0' || text->s[*at] > '9')
        return unset;
    for (; *at < text->n && text->s[*at] >= '0' && text->s[*at] <= '9'; ++*at)
        n = n > MAX_WIDTH ? n : 10 * n + (text->s[*at] - '0');
    return n;
}

int
tmpl_format(struct tmpl_run *run, const struct tmpl_text *text,
            const struct tmpl_value *values, struct tmpl_value *out)
{
    struct tmpl_builder b = { .heap = &run->heap, .markup = text->markup };
    struct tmpl_value one = *values;
    struct tmpl_list list = { .v = &one, .n = 1 };
    const struct tmpl_text *s;
    size_t at = 0, used = 0;

    if (values->kind == TMPL_TUPLE)
        list = *values->list;
    if (text->markup)
        return tmpl_fail(run, "%% of what is safe is not supported");
    while (at < text->n && tmpl_step(run) == 0) {
        struct conversion c = { .precision = -1 };
        const char *p = memchr(text->s + at, '%', text->n - at);
        size_t from = at;
        char type;

        at = p ? (size_t)(p - text->s) : text->n;
        tmpl_put_cut(&b, text, from, at);
        if (!p)
            break;
        for (at++; at < text->n && strchr("-0+", text->s[at]); at++) {
            c.left |= text->s[at] == '-';
            c.zeros |= text->s[at] == '0';
            c.plus |= text->s[at] == '+';
        }
        c.width = read_number(text, &at, 0);
        if (at < text->n && text->s[at] == '.') {
            at++;
            c.precision = read_number(text, &at, 0);
        }
        type = at < text->n ? text->s[at++] : '\0';
        if (c.width > MAX_WIDTH || c.precision > MAX_WIDTH)
            return tmpl_fail(run,
                             "a width over %d in a format is not "
                             "supported",
                             MAX_WIDTH);
        if (type == '%') {
            tmpl_put(&b, "%", 1, 0);
            continue;
        }
        if (!type || !strchr("sdif", type))
            return tmpl_fail(run, "%%%.*s in a format is not supported",
                             type > ' ' && type < 0x7f, text->s + at - 1);
        if (used == list.n)
            return tmpl_fail(run, "not enough arguments for format string");
        if (type != 's') {
            if (put_number(run, &b, type, &c, &list.v[used++]) < 0)
                return -1;
            continue;
        }
        if (tmpl_str(run, &list.v[used++], &s) < 0)
            return -1;
        if (c.precision >= 0)
            s = tmpl_cut(&run->heap, s, 0, tmpl_byte_at(s, (size_t)c.precision))
                    .text;
        put_padded(&b, s, &c);
    }
    if (used < list.n && values->kind != TMPL_DICT && values->kind != TMPL_LIST)
        return tmpl_fail(run, "not all arguments converted during string "
                              "formatting");
    *out = tmpl_built(&b);
    return 0;
}
