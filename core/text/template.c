/* SPDX-License-Identifier: ISC */
#include "core/text/template.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/template_impl.h"

int
template_open(struct template **t, const char *name, const char *text,
              size_t nbytes, struct err *err)
{
    struct ttoken *tokens;
    struct trun *r;

    *t = NULL;
    if (nbytes > TEMPLATE_MAX_BYTES)
        return err_set(err, EX_DATAERR,
                       "%s: a template of %zu bytes (at most %zu)", name,
                       nbytes, TEMPLATE_MAX_BYTES);
    *t = xcalloc(1, sizeof(**t));
    (*t)->name = xstrdup(name);
    r = &(*t)->memory;
    r->name = (*t)->name;
    r->err = err;
    tokens = t_lex(r, text, nbytes);
    if (!r->failed)
        t_parse(*t, r, tokens);
    if (!r->failed)
        return 0;
    template_close(*t);
    *t = NULL;
    return -1;
}

void
template_close(struct template *t)
{
    if (!t)
        return;
    t_free(&t->memory);
    for (size_t i = 0; i < t->n_names; i++)
        free(t->names[i]);
    free(t->names);
    free(t->name);
    free(t);
}

bool
template_mentions(const struct template *t, const char *variable)
{
    for (size_t i = 1; i < t->n_names; i++)
        if (!strcmp(t->names[i], variable))
            return true;
    return false;
}

int
template_render(const struct template *t, const json_t *vars,
                struct rendered *out, struct err *err)
{
    struct trun r = { .name = t->name,
                      .line = 1,
                      .err = err,
                      .t = t,
                      .vars = vars,
                      .rendered = out };

    *out = (struct rendered){ .has_generation = t->has_generation };
    r.globals = t_alloc(&r, t->n_names * sizeof(*r.globals));
    t_render(&r);
    t_free(&r);
    return r.failed ? -1 : 0;
}

void
rendered_free(struct rendered *r)
{
    str_free(&r->text);
    free(r->runs);
    free(r->said);
    *r = (struct rendered){ 0 };
}
