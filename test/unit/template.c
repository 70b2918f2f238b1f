/* SPDX-License-Identifier: ISC */
/*
 * Templates: where the text is from, messages, bounds.  What they render is
 * compared with Jinja in test/template.bats, through
 * "template render TEMPLATE VARIABLES.json".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/text/template.h"
#include "test/unit/tap.h"

/* Renders 'text' with variables in JSON: 0, or -1 with 'err' set. */
static int
render(const char *text, const char *vars, struct rendered *out,
       struct err *err)
{
    json_t *json = js_parse(vars, strlen(vars), "vars", err);
    struct template *t = NULL;
    int rc = -1;

    *out = (struct rendered){ 0 };
    *err = (struct err){ 0 };
    if (json && template_open(&t, "t", text, strlen(text), err) == 0)
        rc = template_render(t, json, out, err);
    template_close(t);
    json_decref(json);
    return rc;
}

/* The text, each of its runs as "of:text|". */
static void
runs_of(const struct rendered *r, struct str *to)
{
    size_t at = 0;

    for (size_t i = 0; i < r->n_runs; at = r->runs[i++].end) {
        if (r->runs[i].of == RENDERED_DATA)
            str_adds(to, "D:");
        else
            str_addf(to, "%u:", r->runs[i].of);
        str_addf(to, "%.*s|", (int)(r->runs[i].end - at), r->text.s + at);
    }
}

static void
is_from(const char *name, const char *text, const char *vars, const char *want)
{
    struct rendered r;
    struct str got = { 0 };
    struct err err;

    if (render(text, vars, &r, &err) < 0)
        str_adds(&got, err.what);
    else
        runs_of(&r, &got);
    if (!tap_ok(!strcmp(got.n ? got.s : "", want), "template: %s", name))
        printf("# %s\n", got.n ? got.s : "");
    str_free(&got);
    rendered_free(&r);
}

static void
fails(const char *text, const char *vars, const char *want)
{
    struct rendered r;
    struct err err;
    int rc = render(text, vars, &r, &err);

    if (!tap_ok(rc < 0 && err.status == EX_DATAERR && !strcmp(err.what, want),
                "template: %s", want))
        printf("# %s\n", rc < 0 ? err.what : r.text.s);
    rendered_free(&r);
}

static void
test_origins(void)
{
    const char *vars =
        "{\"messages\":[{\"role\":\"user\",\"content\":\" Hi \"},"
        "{\"role\":\"assistant\",\"content\":\"a\\\"b\"}],"
        "\"bos_token\":\"<s>\",\"date\":\"now\"}";

    is_from("text of the template, of messages, of data, of special tokens",
            "{{ bos_token }}{{ messages[0].content }}.{{ date }}", vars,
            "0:<s>|1: Hi |0:.|D:now|");
    is_from("trim, +, ~, upper keep them",
            "{{ ('<' + messages[0].content|trim ~ date ~ '>')|upper }}", vars,
            "0:<|1:HI|D:NOW|0:>|");
    is_from("a slice, split and join keep them",
            "{% set x = 'a,' ~ date ~ ',b' %}{{ x[1:4] }}-"
            "{{ x.split(',')|join(';') }}",
            vars, "0:,|D:no|0:-a;|D:now|0:;b|");
    is_from("tojson: brackets and quotes are the template's",
            "{{ messages[1]|tojson }}", vars,
            "0:{\"|2:role|0:\": \"|2:assistant|0:\", \"|2:content|0:\": \"|"
            "2:a\\\"b|0:\"}|");
    is_from(
        "macros and set blocks keep them",
        "{% macro m(x) %}[{{ x }}]{% endmacro %}"
        "{% set s %}{{ m(messages[1].role) }}{% endset %}{{ s }}{{ s[1:3] }}",
        vars, "0:[|2:assistant|0:]|2:as|");
    is_from("replace: what is put in has its own",
            "{{ messages[0].content.replace('i', date) }}", vars,
            "1: H|D:now|1: |");
}

static void
test_messages(void)
{
    fails("a\n{% include 'x' %}", "{}",
          "t: line 2: {% include %} is not supported");
    fails("\n\n{{ 1|groupby('a') }}", "{}",
          "t: line 3: filter \"groupby\" is not supported");
    fails("{{ raise_exception('No ' + 'way') }}", "{}",
          "t: line 1: raise_exception: No way");
    fails("{% if true %}\n{% for x in y %}\n{% endif %}", "{}",
          "t: line 3: {% endif %} is not supported here");
    fails("{{ 'a'\n'b' c }}", "{}", "t: line 2: expected '}}', found c");
    fails("{% macro f(x) %}\n{{ x.y.z }}{% endmacro %}{{ f({}) }}", "{}",
          "t: line 2: 'y' is undefined");
    fails("{{ messages[0] }}", "{\"messages\":[{}]}",
          "t: line 1: a dict as text has Python's spelling, which is not "
          "supported (tojson and join are)");
    fails("a\xff", "{}", "t: line 1: is not text in UTF-8");
    fails("{{ 'Stra\303\237e'|upper }}", "{}",
          "t: line 1: a character that may become several letters in upper "
          "case is not supported");
    fails("{{ 1 / 2 }}", "{}",
          "t: line 1: / of a int and a int is not supported");
    fails("{% for x in y %}{% else %}{% endfor %}", "{}",
          "t: line 1: {% else %} is not supported here");
    fails("{{ 9223372036854775807 + 1 }}", "{}",
          "t: line 1: an integer has more than 64 bits, which is not "
          "supported");
    fails("{{ n }}", "{\"n\":12345678901234567890123}",
          "t: line 1: a variable has a number of more than 64 bits, which is "
          "not supported");
    fails("{{ n.x[0]|tojson }}",
          "{\"n\":{\"x\":[-1234567890123456789, 10000000000000000000]}}",
          "t: line 1: a variable has a number of more than 64 bits, which is "
          "not supported");
    fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}",
          "t: line 1: runs more than 2000 levels deep");
}

/* What a step reads counts, if it writes nothing, too. */
static void
test_steps(void)
{
    static const char want[] = "t: line 1: runs for more than 10000000 steps";
    struct str text = { 0 };

    fails("{% set w = 'w' * 1000000 %}{% for i in range(1000) %}"
          "{% if w.startswith(w) and (w | trim) %}{% endif %}{% endfor %}",
          "{}", want);
    for (int i = 0; i < 4000; i++)
        str_addf(&text, "{%% set a%d = 1 %%}", i);
    str_adds(&text, "{% for i in range(2000) %}{% for k in range(100) %}"
                    "{% if a0 %}{% endif %}{% endfor %}{% endfor %}");
    fails(text.s, "{}", want);
    str_free(&text);
}

/* What the model says, and which variables a template uses. */
static void
test_said(void)
{
    static const char text[] =
        "a{% for m in messages %}{{ m.role }}:"
        "{% generation %}{{ m.content }}!{% endgeneration %};{% endfor %}";
    const char *vars = "{\"messages\":[{\"role\":\"r\",\"content\":\"xy\"},"
                       "{\"role\":\"r\",\"content\":\"\"}]}";
    struct template *t;
    struct rendered r;
    struct err err;
    int rc = render(text, vars, &r, &err);

    tap_ok(rc == 0 && !strcmp(r.text.s, "ar:xy!;r:!;") && r.has_generation &&
               r.n_said == 2 && r.said[0].begin == 3 && r.said[0].end == 6 &&
               r.said[1].begin == 9 && r.said[1].end == 10,
           "template: {%% generation %%} says where the model's text is");
    rendered_free(&r);
    rc = template_open(&t, "t", text, strlen(text), &err);
    tap_ok(rc == 0 && template_mentions(t, "messages") &&
               !template_mentions(t, "content") &&
               !template_mentions(t, "tools"),
           "template: it mentions its variables, not attributes");
    template_close(t);
}

/* "render TEMPLATE VARIABLES.json": prints the text, exits as a tool would. */
static int
render_files(const char *path, const char *vars_path)
{
    struct str text = { 0 };
    struct template *t = NULL;
    struct rendered r = { 0 };
    struct err err = { 0 };
    json_t *vars = js_load(vars_path, &err);
    int rc = -1;

    if (vars && file_read_all(path, (size_t)64 << 20, &text, &err) == 0 &&
        template_open(&t, path, text.n ? text.s : "", text.n, &err) == 0)
        rc = template_render(t, vars, &r, &err);
    if (rc == 0)
        fwrite(r.text.s, 1, r.text.n, stdout);
    else
        fprintf(stderr, "%s\n", err.what);
    template_close(t);
    rendered_free(&r);
    str_free(&text);
    json_decref(vars);
    return rc == 0 ? 0 : err.status;
}

int
main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "render"))
        return render_files(argv[2], argv[3]);
    test_origins();
    test_messages();
    test_steps();
    test_said();
    return tap_done();
}
