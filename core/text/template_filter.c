/* SPDX-License-Identifier: ISC */
/* The filters of templates, those of sequences in template_sequence.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/template_call.h"
#include "core/text/template_sequence.h"
#include "core/text/template_str.h"

static int
f_default(TMPL_CALL)
{
    *out = a->v[0];
    if (a->v[0].kind == TMPL_UNDEFINED ||
        (tmpl_true(&a->v[2]) && !tmpl_true(&a->v[0])))
        *out = a->v[1].kind == TMPL_ABSENT ? tmpl_text(&run->heap, "", 0, 0)
                                           : a->v[1];
    return 0;
}

static int
f_length(TMPL_CALL)
{
    size_t n;

    if (tmpl_length(run, &a->v[0], &n) < 0)
        return -1;
    *out = tmpl_int((int64_t)n);
    return 0;
}

/* A value as the text that it prints as. */
static int
f_string(TMPL_CALL)
{
    *out = a->v[0];
    out->kind = TMPL_TEXT;
    return tmpl_str(run, &a->v[0], &out->text);
}

static int
f_safe(TMPL_CALL)
{
    struct tmpl_text *markup = tmpl_alloc(&run->heap, sizeof(*markup));
    const struct tmpl_text *text;

    if (tmpl_str(run, &a->v[0], &text) < 0)
        return -1;
    *markup = *text;
    markup->markup = true;
    *out = (struct tmpl_value){ .kind = TMPL_TEXT, .text = markup };
    return 0;
}

static int
f_escape(TMPL_CALL)
{
    const struct tmpl_text *text;

    if (tmpl_str(run, &a->v[0], &text) < 0)
        return -1;
    *out = tmpl_escape(&run->heap, text);
    return 0;
}

static int
f_trim(TMPL_CALL)
{
    const struct tmpl_text *text, *chars;

    if (tmpl_str(run, &a->v[0], &text) < 0 ||
        tmpl_arg_text(run, &a->v[1], &chars) < 0)
        return -1;
    *out = tmpl_strip(&run->heap, text, chars, true, true);
    return 0;
}

static int
in_case(TMPL_CALL, enum tmpl_case how)
{
    const struct tmpl_text *text;

    if (tmpl_str(run, &a->v[0], &text) < 0)
        return -1;
    *out = tmpl_in_case(&run->heap, text, how);
    return 0;
}

static int
f_upper(TMPL_CALL)
{
    return in_case(run, a, out, TMPL_UPPER);
}

static int
f_lower(TMPL_CALL)
{
    return in_case(run, a, out, TMPL_LOWER);
}

static int
f_capitalize(TMPL_CALL)
{
    return in_case(run, a, out, TMPL_CAPITALIZE);
}

static int
f_title(TMPL_CALL)
{
    return in_case(run, a, out, TMPL_TITLE_WORDS);
}

static int
f_replace(TMPL_CALL)
{
    struct tmpl_text *plain = tmpl_alloc(&run->heap, sizeof(*plain));
    const struct tmpl_text *text[3];
    int64_t max;

    for (int i = 0; i < 3; i++)
        if (tmpl_str(run, &a->v[i], &text[i]) < 0)
            return -1;
    if (tmpl_arg_int(run, &a->v[3], -1, &max) < 0)
        return -1;
    *plain = *text[0]; /* str(s) of a Markup */
    plain->markup = false;
    *out = tmpl_replace(&run->heap, plain, text[1], text[2], (size_t)max);
    return 0;
}

static int
f_indent(TMPL_CALL)
{
    struct tmpl_builder b = { .heap = &run->heap };
    struct tmpl_value lines = tmpl_list(&run->heap, TMPL_LIST);
    const struct tmpl_text *text, *by = NULL;
    int64_t width = 4;
    bool first = tmpl_true(&a->v[2]), blank = tmpl_true(&a->v[3]);

    if (a->v[0].kind != TMPL_TEXT)
        return tmpl_fail(run, "a str is needed, not %s", tmpl_type(&a->v[0]));
    text = a->v[0].text;
    if (a->v[1].kind == TMPL_TEXT)
        by = a->v[1].text;
    else if (tmpl_arg_int(run, &a->v[1], 4, &width) < 0)
        return -1;
    b.markup = text->markup;
    tmpl_splitlines(&run->heap, text, false, lines.list);
    for (size_t i = 0; i < lines.list->n && !run->heap.over; i++) {
        const struct tmpl_text *line = lines.list->v[i].text;

        if (i > 0)
            tmpl_put(&b, "\n", 1, 0);
        if (i == 0 ? first : blank || line->n > 0) {
            if (by)
                tmpl_put_text(&b, by);
            for (int64_t k = 0; !by && k < width && !run->heap.over; k++)
                tmpl_put(&b, " ", 1, 0);
        }
        tmpl_put_text(&b, line);
    }
    if (first && lines.list->n == 0)
        for (int64_t k = 0; !by && k < width && !run->heap.over; k++)
            tmpl_put(&b, " ", 1, 0);
    *out = tmpl_built(&b);
    return 0;
}

static int
f_truncate(TMPL_CALL)
{
    struct tmpl_builder b = { .heap = &run->heap };
    const struct tmpl_text *text, *end;
    size_t keep, at;
    int64_t n, leeway;

    if (tmpl_str(run, &a->v[0], &text) < 0 ||
        tmpl_arg_int(run, &a->v[1], 255, &n) < 0 ||
        tmpl_arg_text(run, &a->v[3], &end) < 0 ||
        tmpl_arg_int(run, &a->v[4], 5, &leeway) < 0)
        return -1;
    if (!end)
        end = tmpl_text(&run->heap, "...", 3, 0).text;
    if (n < (int64_t)end->n_chars || leeway < 0)
        return tmpl_fail(run, "truncate to fewer characters than its end has");
    *out = tmpl_cut(&run->heap, text, 0, text->n);
    if ((int64_t)text->n_chars <= n || (int64_t)text->n_chars - n <= leeway)
        return 0;
    keep = tmpl_byte_at(text, (size_t)n - end->n_chars);
    for (at = keep; at > 0 && text->s[at - 1] != ' ';)
        at--;
    if (at > 0 && !tmpl_true(&a->v[2])) /* not within a word */
        keep = at - 1;
    tmpl_put_cut(&b, text, 0, keep);
    tmpl_put_text(&b, end);
    *out = tmpl_built(&b);
    return 0;
}

static int
f_wordcount(TMPL_CALL)
{
    const struct tmpl_text *text;
    size_t n = 0;
    bool in_word = false;

    if (tmpl_str(run, &a->v[0], &text) < 0)
        return -1;
    for (size_t at = 0, to; at < text->n; at = to) {
        struct tmpl_text c = { .s = text->s + at, .n_chars = 1 };
        bool is;

        for (to = at + 1;
             to < text->n && ((unsigned char)text->s[to] & 0xc0) == 0x80;)
            to++;
        c.n = to - at;
        is = text->s[at] == '_' || tmpl_all_are(&c, 'n');
        n += is && !in_word;
        in_word = is;
    }
    *out = tmpl_int((int64_t)n);
    return 0;
}

/* Python's float(text): false if it is none. */
static bool
text_float(const struct tmpl_text *text, struct tmpl_heap *heap, double *f)
{
    const struct tmpl_text *t = tmpl_strip(heap, text, NULL, true, true).text;
    char *s = xstrndup(t->s, t->n), *end = s;
    size_t n = 0;
    bool good = t->n > 0 && strlen(s) == t->n && !strpbrk(s, "xXpP(");

    for (size_t i = 0; i < t->n; i++) { /* underscores between digits */
        bool inner = i > 0 && s[i - 1] >= '0' && s[i - 1] <= '9' &&
                     s[i + 1] >= '0' && s[i + 1] <= '9';

        if (s[i] == '_' && inner)
            continue;
        good &= s[i] != '_';
        s[n++] = s[i];
    }
    s[n] = '\0';
    *f = good ? strtod(s, &end) : 0;
    good = good && end == s + n;
    free(s);
    return good;
}

/* Python's int(text, base): false if it is none, or leaves 64 bits. */
static bool
text_int(const struct tmpl_text *text, struct tmpl_heap *heap, int base,
         int64_t *i)
{
    const struct tmpl_text *t = tmpl_strip(heap, text, NULL, true, true).text;
    char *s = xstrndup(t->s, t->n), *end = s;
    bool good = t->n > 0 && strlen(s) == t->n && !strchr(s, '_');

    if ((base == 2 || base == 8) && good) { /* 0b, 0o: strtoll() has 0x */
        char *p = s + (*s == '-' || *s == '+');

        if (p[0] == '0' && (p[1] | ' ') == (base == 2 ? 'b' : 'o'))
            memmove(p, p + 2, strlen(p + 2) + 1);
    }
    errno = 0;
    *i = good ? strtoll(s, &end, base) : 0;
    good = good && *end == '\0' && end > s && errno == 0;
    free(s);
    return good;
}

static int
f_int(TMPL_CALL)
{
    int64_t base, i;
    double f = 0;
    bool good;

    *out = a->v[1].kind == TMPL_ABSENT ? tmpl_int(0) : a->v[1];
    if (tmpl_arg_int(run, &a->v[2], 10, &base) < 0)
        return -1;
    if (base != 0 && (base < 2 || base > 36))
        return tmpl_fail(run, "int() base must be >= 2 and <= 36, or 0");
    if (a->v[0].kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, &a->v[0]);
    if (a->v[0].kind == TMPL_TEXT) {
        if (text_int(a->v[0].text, &run->heap, (int)base, &i)) {
            *out = tmpl_int(i);
            return 0;
        }
        good = text_float(a->v[0].text, &run->heap, &f);
    } else if (tmpl_is_int(&a->v[0])) {
        *out = tmpl_int(tmpl_as_int(&a->v[0]));
        return 0;
    } else {
        good = tmpl_number(&a->v[0], &f);
    }
    if (!good || isnan(f))
        return 0;
    if (!(fabs(f) < 9.2e18))
        return tmpl_fail(run, "an integer has more than 64 bits, which is not "
                              "supported");
    *out = tmpl_int((int64_t)f);
    return 0;
}

static int
f_float(TMPL_CALL)
{
    double f;

    *out = a->v[1].kind == TMPL_ABSENT ? tmpl_float(0) : a->v[1];
    if (a->v[0].kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, &a->v[0]);
    if (a->v[0].kind == TMPL_TEXT ? text_float(a->v[0].text, &run->heap, &f)
                                  : tmpl_number(&a->v[0], &f))
        *out = tmpl_float(f);
    return 0;
}

static int
f_abs(TMPL_CALL)
{
    double f;

    if (tmpl_is_int(&a->v[0]) && tmpl_as_int(&a->v[0]) < 0)
        return tmpl_unary(run, TMPL_OP_NEG, &a->v[0], out);
    if (!tmpl_number(&a->v[0], &f))
        return a->v[0].kind == TMPL_UNDEFINED
                   ? tmpl_fail_undefined(run, &a->v[0])
                   : tmpl_fail(run, "bad operand type for abs(): '%s'",
                               tmpl_type(&a->v[0]));
    *out = tmpl_is_int(&a->v[0]) ? tmpl_int(tmpl_as_int(&a->v[0]))
                                 : tmpl_float(fabs(f));
    return 0;
}

static int
f_round(TMPL_CALL)
{
    const struct tmpl_value *how = &a->v[2];
    char buf[400];
    int64_t digits;
    double f, scale;

    if (tmpl_arg_int(run, &a->v[1], 0, &digits) < 0)
        return -1;
    if (!tmpl_number(&a->v[0], &f))
        return a->v[0].kind == TMPL_UNDEFINED
                   ? tmpl_fail_undefined(run, &a->v[0])
                   : tmpl_fail(run, "type %s doesn't define __round__ method",
                               tmpl_type(&a->v[0]));
    if (digits < 0 || digits > 20)
        return tmpl_fail(run, "round to %lld digits is not supported",
                         (long long)digits);
    if (how->kind == TMPL_ABSENT || tmpl_is(how, "common")) {
        *out = tmpl_int(tmpl_is_int(&a->v[0]) ? tmpl_as_int(&a->v[0]) : 0);
        if (!tmpl_is_int(&a->v[0])) {
            snprintf(buf, sizeof(buf), "%.*f", (int)digits, f);
            *out = tmpl_float(strtod(buf, NULL));
        }
        return 0;
    }
    if (!tmpl_is(how, "ceil") && !tmpl_is(how, "floor"))
        return tmpl_fail(run, "method must be common, ceil or floor");
    scale = pow(10, (double)digits);
    f *= scale;
    *out = tmpl_float((tmpl_is(how, "ceil") ? ceil(f) : floor(f)) / scale);
    return 0;
}

static int
f_attr(TMPL_CALL)
{
    if (a->v[1].kind != TMPL_TEXT)
        return tmpl_fail(run, "attribute name must be string, not '%s'",
                         tmpl_type(&a->v[1]));
    if (a->v[0].kind == TMPL_DICT) { /* the items of a dict are none */
        struct tmpl_value empty = tmpl_dict(&run->heap);

        if (tmpl_attribute(run, &empty, &a->v[1], out) < 0)
            return -1;
        if (out->kind == TMPL_UNDEFINED)
            return 0;
    }
    return tmpl_attribute(run, &a->v[0], &a->v[1], out);
}

static int
f_format(TMPL_CALL)
{
    struct tmpl_value values = tmpl_list(&run->heap, TMPL_TUPLE);
    const struct tmpl_text *text;

    if (a->n_named > 0)
        return tmpl_fail(run, "names in format are not supported");
    if (a->n == 0 || tmpl_str(run, &a->v[0], &text) < 0)
        return -1;
    for (size_t i = 1; i < a->n; i++)
        tmpl_push(&run->heap, values.list, a->v[i]);
    return tmpl_format(run, text, &values, out);
}

const struct tmpl_callable tmpl_filters[] = {
    { "abs", "value", f_abs },
    { "attr", "value name", f_attr },
    { "batch", "value linecount fill_with?", tmpl_f_batch },
    { "capitalize", "value", f_capitalize },
    { "count", "value", f_length },
    { "d", "value default_value? boolean?", f_default },
    { "default", "value default_value? boolean?", f_default },
    { "dictsort", "value case_sensitive? by? reverse?", tmpl_f_dictsort },
    { "e", "value", f_escape },
    { "escape", "value", f_escape },
    { "first", "value", tmpl_f_first },
    { "float", "value default?", f_float },
    { "format", "...", f_format },
    { "indent", "s width? first? blank?", f_indent },
    { "int", "value default? base?", f_int },
    { "items", "value", tmpl_f_items },
    { "join", "value d? attribute?", tmpl_f_join },
    { "last", "value", tmpl_f_last },
    { "length", "value", f_length },
    { "list", "value", tmpl_f_list },
    { "lower", "value", f_lower },
    { "map", "...", tmpl_f_map },
    { "max", "value case_sensitive? attribute?", tmpl_f_max },
    { "min", "value case_sensitive? attribute?", tmpl_f_min },
    { "reject", "...", tmpl_f_reject },
    { "rejectattr", "...", tmpl_f_rejectattr },
    { "replace", "s old new count?", f_replace },
    { "reverse", "value", tmpl_f_reverse },
    { "round", "value precision? method?", f_round },
    { "safe", "value", f_safe },
    { "select", "...", tmpl_f_select },
    { "selectattr", "...", tmpl_f_selectattr },
    { "sort", "value reverse? case_sensitive? attribute?", tmpl_f_sort },
    { "string", "value", f_string },
    { "sum", "value attribute? start?", tmpl_f_sum },
    { "title", "value", f_title },
    { "tojson", "value ensure_ascii? indent? separators? sort_keys?",
      tmpl_tojson },
    { "trim", "value chars?", f_trim },
    { "truncate", "s length? killwords? end? leeway?", f_truncate },
    { "unique", "value case_sensitive? attribute?", tmpl_f_unique },
    { "upper", "value", f_upper },
    { "wordcount", "s", f_wordcount },
    { NULL, NULL, NULL },
};
