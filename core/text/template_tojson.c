/* SPDX-License-Identifier: ISC */
/* Values as JSON, as Python's json.dumps() writes them. */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/pyjson.h"
#include "core/text/template_call.h"

struct json {
    struct tmpl_run *run;
    struct tmpl_builder b;
    bool ascii, sort;
    bool lines;                     /* each item has a line, */
    const struct tmpl_text *indent; /* that begins with this, for each level */
    const struct tmpl_text *comma, *colon;
};

static void
put(struct json *j, const char *s)
{
    tmpl_put(&j->b, s, strlen(s), 0);
}

static void
put_text(struct json *j, const struct tmpl_text *text)
{
    static const char special[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    size_t from = 0, k;

    put(j, "\"");
    for (size_t at = 0; at < text->n; at += k) {
        unsigned char c = (unsigned char)text->s[at];
        const char *p = c ? strchr(special, (char)c) : NULL;
        struct str s = { 0 };
        uint32_t wide = 0;

        k = 1;
        if (c >= 0x20 && !p && !(c >= 0x80 && j->ascii))
            continue;
        if (p) {
            str_addf(&s, "\\%c", letters[p - special]);
        } else {
            k = (size_t)utf8_next(text->s + at, text->n - at, &wide);
            if (wide < 0x10000)
                str_addf(&s, "\\u%04x", wide);
            else
                str_addf(&s, "\\u%04x\\u%04x",
                         0xd800 + ((wide - 0x10000) >> 10),
                         0xdc00 + ((wide - 0x10000) & 0x3ff));
        }
        tmpl_put_cut(&j->b, text, from, at);
        tmpl_put(&j->b, s.s, s.n, tmpl_origin_at(text, at));
        str_free(&s);
        from = at + k;
    }
    tmpl_put_cut(&j->b, text, from, text->n);
    put(j, "\"");
}

static void
put_line(struct json *j, int depth)
{
    if (!j->lines)
        return;
    put(j, "\n");
    for (int i = 0; i < depth && !j->b.heap->over; i++)
        tmpl_put_text(&j->b, j->indent);
}

/* A value that is no list or dict; also as a key, which is in quotes. */
static int
put_scalar(struct json *j, const struct tmpl_value *v, bool key)
{
    struct str s = { 0 };

    if (v->kind == TMPL_TEXT) {
        put_text(j, v->text);
        return 0;
    }
    if (v->kind == TMPL_NONE)
        str_adds(&s, "null");
    else if (v->kind == TMPL_BOOL)
        str_adds(&s, v->b ? "true" : "false");
    else if (v->kind == TMPL_INT)
        str_addf(&s, "%lld", (long long)v->i);
    else if (v->kind == TMPL_FLOAT)
        py_float_repr(&s, v->f);
    else
        return key ? tmpl_fail(j->run,
                               "keys must be str, int, float, bool or None, "
                               "not %s",
                               tmpl_type(v))
                   : tmpl_fail(j->run,
                               "Object of type %s is not JSON serializable",
                               tmpl_type(v));
    put(j, key ? "\"" : "");
    put(j, s.s);
    put(j, key ? "\"" : "");
    str_free(&s);
    return 0;
}

static int
put_value(struct json *j, const struct tmpl_value *v, int depth)
{
    bool is_dict = v->kind == TMPL_DICT;
    struct tmpl_value pairs = *v;
    size_t n;

    if (tmpl_step(j->run) < 0)
        return -1;
    if (depth > TEMPLATE_MAX_NESTED)
        return tmpl_fail(j->run, TMPL_OVER_VALUE);
    if (!is_dict && v->kind != TMPL_LIST && v->kind != TMPL_TUPLE)
        return put_scalar(j, v, false);
    if (is_dict && j->sort) {
        struct tmpl_args a = { .v = (struct tmpl_value[]){
                                   *v,
                                   tmpl_bool(true),
                                   { .kind = TMPL_ABSENT },
                                   { .kind = TMPL_ABSENT } } };

        if (tmpl_lookup(
                tmpl_filters,
                &(struct tmpl_value){
                    .kind = TMPL_TEXT,
                    .text = &(struct tmpl_text){ .s = "dictsort", .n = 8 } })
                ->call(j->run, &a, &pairs) < 0)
            return -1;
    }
    n = is_dict ? v->dict->n : v->list->n;
    put(j, is_dict ? "{" : "[");
    for (size_t i = 0; i < n; i++) {
        const struct tmpl_value *key = NULL, *value = NULL;

        if (!is_dict) {
            value = &v->list->v[i];
        } else if (pairs.kind == TMPL_DICT) {
            key = &v->dict->pairs[i].key;
            value = &v->dict->pairs[i].value;
        } else {
            key = &pairs.list->v[i].list->v[0];
            value = &pairs.list->v[i].list->v[1];
        }
        if (i > 0)
            tmpl_put_text(&j->b, j->comma);
        put_line(j, depth + 1);
        if (key && put_scalar(j, key, true) < 0)
            return -1;
        if (key)
            tmpl_put_text(&j->b, j->colon);
        if (put_value(j, value, depth + 1) < 0)
            return -1;
    }
    if (n > 0)
        put_line(j, depth);
    put(j, is_dict ? "}" : "]");
    return 0;
}

int
tmpl_tojson(TMPL_CALL)
{
    struct tmpl_heap *heap = &run->heap;
    struct json j = { .run = run, .b = { .heap = heap } };
    const struct tmpl_value *indent = &a->v[2], *separators = &a->v[3];
    int64_t width;

    j.ascii = tmpl_true(&a->v[1]);
    j.sort = tmpl_true(&a->v[4]);
    j.lines = indent->kind != TMPL_ABSENT && indent->kind != TMPL_NONE;
    if (indent->kind == TMPL_TEXT) {
        j.indent = indent->text;
    } else if (j.lines) {
        struct tmpl_builder b = { .heap = heap };

        if (tmpl_arg_int(run, indent, 0, &width) < 0)
            return -1;
        for (; width > 0 && !heap->over; width--)
            tmpl_put(&b, " ", 1, 0);
        j.indent = tmpl_built(&b).text;
    }
    j.comma = tmpl_text(heap, j.lines ? "," : ", ", j.lines ? 1 : 2, 0).text;
    j.colon = tmpl_text(heap, ": ", 2, 0).text;
    if (separators->kind != TMPL_ABSENT && separators->kind != TMPL_NONE) {
        struct tmpl_list list;

        if (tmpl_iterate(run, separators, &list) < 0)
            return -1;
        if (list.n != 2 || list.v[0].kind != TMPL_TEXT ||
            list.v[1].kind != TMPL_TEXT)
            return tmpl_fail(run, "separators are not two texts");
        j.comma = list.v[0].text;
        j.colon = list.v[1].text;
    }
    if (put_value(&j, &a->v[0], 0) < 0)
        return -1;
    *out = tmpl_built(&j.b);
    return 0;
}
