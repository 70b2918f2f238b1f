/* SPDX-License-Identifier: ISC */
#include "core/text/template_call.h"

#include <string.h>

#include "core/mem.h"

const struct tmpl_callable *
tmpl_lookup(const struct tmpl_callable *table, const struct tmpl_value *name)
{
    for (; table->name; table++)
        if (tmpl_is(name, table->name))
            return table;
    return NULL;
}

/* The next word of a row's parameters: its length, or 0. */
static size_t
next_parameter(const char **at, bool *optional)
{
    size_t n;

    *at += strspn(*at, " ");
    n = strcspn(*at, " ");
    *optional = n > 0 && (*at)[n - 1] == '?';
    return n - *optional;
}

/* Puts arguments in the order of the parameters. */
static int
bind(struct tmpl_run *run, const char *noun, const struct tmpl_callable *row,
     struct tmpl_args *args)
{
    struct tmpl_value *v;
    const char *at = row->params;
    bool optional;
    size_t n = 0, k;

    for (; (k = next_parameter(&at, &optional)) > 0; at += k + optional)
        n++;
    v = tmpl_alloc(&run->heap, (n + 1) * sizeof(*v));
    if (args->n > n)
        return tmpl_fail(run, "%s %s takes at most %zu argument%s, not %zu",
                         noun, row->name, n, n == 1 ? "" : "s", args->n);
    at = row->params;
    for (size_t i = 0; i < n; i++, at += k + optional) {
        k = next_parameter(&at, &optional);
        if (i < args->n)
            v[i] = args->v[i];
        for (size_t j = i < args->n ? SIZE_MAX : 0; j < args->n_named; j++) {
            const struct tmpl_text *name = args->named[j].key.text;

            if (name->n != k || memcmp(name->s, at, k) != 0)
                continue;
            v[i] = args->named[j].value;
            args->named[j] = args->named[--args->n_named];
            break;
        }
        if (v[i].kind == TMPL_ABSENT && !optional)
            return tmpl_fail(run, "%s %s: argument '%.*s' is missing", noun,
                             row->name, (int)k, at);
    }
    if (args->n_named > 0)
        return tmpl_fail(run, "%s %s: argument '%.*s' is not supported", noun,
                         row->name,
                         (int)smaller(args->named[0].key.text->n, 100),
                         args->named[0].key.text->s);
    args->v = v;
    args->n = n;
    return 0;
}

static int
call_row(struct tmpl_run *run, const char *noun,
         const struct tmpl_callable *row, struct tmpl_args *args,
         struct tmpl_value *out)
{
    if (strcmp(row->params, "...") != 0 && bind(run, noun, row, args) < 0)
        return -1;
    return row->call(run, args, out);
}

int
tmpl_call(struct tmpl_run *run, const struct tmpl_value *what,
          struct tmpl_args *args, struct tmpl_value *out)
{
    if (what->kind == TMPL_MACRO)
        return tmpl_call_macro(run, what->macro, args, out);
    if (what->kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, what);
    if (what->kind != TMPL_FUNCTION)
        return tmpl_fail(run, "'%s' object is not callable", tmpl_type(what));
    if (what->function->of.kind == TMPL_ABSENT)
        return call_row(run, "function", what->function->callable, args, out);
    *--args->v = what->function->of;
    args->n++;
    return call_row(run, "method", what->function->callable, args, out);
}

int
tmpl_call_named(struct tmpl_run *run, const char *noun,
                const struct tmpl_value *name, struct tmpl_args *args,
                struct tmpl_value *out)
{
    const struct tmpl_callable *row =
        tmpl_lookup(*noun == 'f' ? tmpl_filters : tmpl_tests, name);

    if (!row)
        return tmpl_fail(run, "%s \"%.*s\" is not supported", noun,
                         (int)smaller(name->text->n, 100), name->text->s);
    return call_row(run, noun, row, args, out);
}

int
tmpl_arg_int(struct tmpl_run *run, const struct tmpl_value *v, int64_t unset,
             int64_t *i)
{
    *i = unset;
    if (v->kind == TMPL_ABSENT || v->kind == TMPL_NONE)
        return 0;
    if (!tmpl_is_int(v))
        return tmpl_fail(run, "'%s' object cannot be interpreted as an integer",
                         tmpl_type(v));
    *i = tmpl_as_int(v);
    return 0;
}

int
tmpl_arg_text(struct tmpl_run *run, const struct tmpl_value *v,
              const struct tmpl_text **text)
{
    *text = NULL;
    if (v->kind == TMPL_ABSENT || v->kind == TMPL_NONE)
        return 0;
    if (v->kind != TMPL_TEXT)
        return tmpl_fail(run, "a str is needed, not %s", tmpl_type(v));
    *text = v->text;
    return 0;
}
