/* SPDX-License-Identifier: ISC */
/* Values as JSON, as Python's json.dumps() writes them. */
#include <stdio.h>
#include <string.h>

#include "core/pyjson.h"
#include "core/text/template_impl.h"

#define MAX_INDENT 1000

struct json {
    struct tbuf b;
    int64_t indent; /* spaces of a line, for each level; -1: no lines */
    struct tvalue comma, colon;
    bool ascii;
};

static void
put(struct json *j, const char *s)
{
    t_put(&j->b, s, strlen(s), 0);
}

static void
put_text(struct json *j, const struct ttext *s)
{
    static const char special[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    size_t from = 0, k;

    put(j, "\"");
    for (size_t at = 0; at < s->n && !j->b.r->failed; at += k) {
        const char *p = s->s[at] ? strchr(special, s->s[at]) : NULL;
        char to[16] = { '\\', p ? letters[p - special] : '\0' };
        uint32_t c = 0;

        k = (size_t)utf8_next(s->s + at, s->n - at, &c);
        if (!p && c >= 0x20 && (c < 0x80 || !j->ascii))
            continue;
        if (!p && c < 0x10000)
            snprintf(to, sizeof(to), "\\u%04x", c);
        else if (!p)
            snprintf(to, sizeof(to), "\\u%04x\\u%04x", 0xd7c0 + (c >> 10),
                     0xdc00 + (c & 0x3ff));
        t_put_cut(&j->b, s, from, at);
        t_put(&j->b, to, strlen(to), t_of(s, at));
        from = at + k;
    }
    t_put_cut(&j->b, s, from, s->n);
    put(j, "\"");
}

/* A value that is no list or dict; or a key, which has quotes. */
static void
put_scalar(struct json *j, const struct tvalue *v, const char *quote)
{
    struct str s = { 0 };

    if (v->kind == V_TEXT) {
        put_text(j, v->text);
        return;
    }
    if (v->kind == V_FLOAT)
        py_float_repr(&s, v->f);
    else if (v->kind == V_INT)
        str_addf(&s, "%lld", (long long)v->i);
    else if (v->kind == V_BOOL || v->kind == V_NONE)
        str_adds(&s, v->kind == V_NONE ? "null" : v->b ? "true" : "false");
    else
        t_fail(j->b.r, "tojson of a %s is not supported", t_type(v));
    put(j, quote);
    t_put(&j->b, s.n ? s.s : "", s.n, 0);
    put(j, quote);
    str_free(&s);
}

static void
put_line(struct json *j, int depth)
{
    if (j->indent >= 0)
        put(j, "\n");
    for (int64_t i = 0; i < depth * j->indent && !j->b.r->failed; i++)
        put(j, " ");
}

static void
put_value(struct json *j, const struct tvalue *v, int depth)
{
    bool is_dict = v->kind == V_DICT;
    struct trun *r = j->b.r;
    struct tlist list;

    if (depth > TEMPLATE_MAX_NESTED)
        t_fail(r, "a value is nested more than %d levels deep",
               TEMPLATE_MAX_NESTED);
    if (!t_step(r))
        return;
    if (!is_dict && v->kind != V_LIST && v->kind != V_TUPLE) {
        put_scalar(j, v, "");
        return;
    }
    list = *v->list;
    put(j, is_dict ? "{" : "[");
    for (size_t i = 0; i < list.n && !r->failed; i++) {
        if (i > 0)
            t_put_value(&j->b, &j->comma);
        put_line(j, depth + 1);
        if (is_dict) {
            put_scalar(j, &list.v[i++], "\"");
            t_put_value(&j->b, &j->colon);
        }
        put_value(j, &list.v[i], depth + 1);
    }
    if (list.n > 0)
        put_line(j, depth);
    put(j, is_dict ? "}" : "]");
}

struct tvalue
t_tojson(struct trun *r, struct targs *a)
{
    struct json j = { .b = { .r = r },
                      .ascii = t_true(&a->v[1]),
                      .indent = -1 };
    const struct tvalue *indent = &a->v[2];
    struct tlist list;

    if (indent->kind > V_NONE &&
        (indent->kind != V_INT || indent->i < 0 || indent->i > MAX_INDENT))
        return t_fail(r, "an indent is not an integer from 0 to %d",
                      MAX_INDENT);
    if (indent->kind == V_INT)
        j.indent = indent->i;
    j.comma = t_text(r, ", ", j.indent < 0 ? 2 : 1, 0);
    j.colon = t_text(r, ": ", 2, 0);
    if (a->v[3].kind > V_NONE) {
        list = t_iterate(r, &a->v[3]);
        if (list.n != 2 || list.v[0].kind != V_TEXT || list.v[1].kind != V_TEXT)
            return t_fail(r, "separators are not two texts");
        j.comma = list.v[0];
        j.colon = list.v[1];
    }
    put_value(&j, &a->v[0], 0);
    return t_built(&j.b);
}
