/* SPDX-License-Identifier: ISC */
#include "core/text/template.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/template_run.h"

struct template
{
    char *name;
    struct tmpl_heap heap;
    struct tmpl_tree tree;
};

int
template_open(struct template **t, const char *name, const char *text,
              size_t nbytes, struct err *err)
{
    *t = NULL;
    if (nbytes > TEMPLATE_MAX_BYTES)
        return err_set(err, EX_DATAERR,
                       "%s: a template of %zu bytes (at most %zu)", name,
                       nbytes, TEMPLATE_MAX_BYTES);
    *t = xcalloc(1, sizeof(**t));
    (*t)->name = xstrdup(name);
    if (tmpl_parse(&(*t)->heap, (*t)->name, text, nbytes, &(*t)->tree, err) ==
        0)
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
    tmpl_heap_free(&t->heap);
    free(t->tree.names.v);
    free(t->name);
    free(t);
}

bool
template_mentions(const struct template *t, const char *variable)
{
    const struct tmpl_names *names = &t->tree.names;

    for (size_t i = t->tree.caller + 1; i < names->n; i++)
        if (names->v[i]->n == strlen(variable) &&
            !memcmp(names->v[i]->s, variable, names->v[i]->n))
            return true;
    return false;
}

int
template_render(const struct template *t, const json_t *vars,
                struct rendered *out, struct err *err)
{
    struct tmpl_run run = { .name = t->name,
                            .tree = &t->tree,
                            .vars = vars,
                            .line = 1,
                            .rendered = out,
                            .err = err };
    int rc;

    *out = (struct rendered){ .has_generation = t->tree.has_generation };
    run.globals = tmpl_alloc(&run.heap, t->tree.names.n * sizeof(*run.globals));
    rc = tmpl_run(&run);
    if (rc == 0) {
        str_add(&out->text, run.whole.n ? run.whole.s : "", run.whole.n);
        out->n_runs = out->cap_runs = run.whole.n_runs;
        out->runs = xmalloc(out->n_runs * sizeof(*out->runs));
        if (out->n_runs)
            memcpy(out->runs, run.whole.runs, out->n_runs * sizeof(*out->runs));
    }
    tmpl_heap_free(&run.heap);
    return rc;
}

void
rendered_free(struct rendered *r)
{
    str_free(&r->text);
    free(r->runs);
    free(r->said);
    *r = (struct rendered){ 0 };
}
