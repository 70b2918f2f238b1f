#include "cmd/kvc-convert/pickle_value.h"

#include <string.h>

#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/pickle_global.h"

#define MAX_NAME 1000 /* bytes of a module, or of a name in it */

struct pth_value *
pickle_value(struct pickle *p, enum pickle_kind kind)
{
    struct pth_value *v = pickle_alloc(p, 1, sizeof(*v));

    if (v)
        v->kind = (uint8_t)kind;
    return v;
}

/* Of what has no name there is one that all share. */
struct pth_value *
pickle_opaque(struct pickle *p, const struct pth_value *callee)
{
    struct pth_value *v = pickle_value(p, PK_OPAQUE);

    if (v && (callee->kind == PK_GLOBAL || callee->kind == PK_OPAQUE))
        v->u.global = callee->u.global;
    return v;
}

struct pth_value *
pickle_list(struct pickle *p, enum pickle_kind kind)
{
    struct pth_value *v = pickle_value(p, kind);
    struct pickle_list *list = v ? pickle_alloc(p, 1, sizeof(*list)) : NULL;

    if (!list)
        return NULL;
    v->u.list = list;
    list->dict = kind == PK_DICT;
    list->next = p->lists;
    p->lists = list;
    return v;
}

int
pickle_extend(struct pickle *p, struct pth_value *v, struct pth_value **items,
              size_t n)
{
    struct pickle_list *list = v->u.list;
    size_t need = list->n + n;

    if (need > UINT32_MAX / 2)
        return pickle_bad(p, "%zu items are too many", need);
    if (need > list->cap) {
        size_t cap = need > 2 * (size_t)list->cap ? need : 2 * list->cap;
        struct pth_value **more = pickle_alloc(p, cap, sizeof(*more));

        if (!more)
            return -1;
        if (list->n > 0)
            memcpy(more, list->items, list->n * sizeof(*more));
        list->items = more;
        list->cap = (uint32_t)cap;
    }
    if (n > 0)
        memcpy(list->items + list->n, items, n * sizeof(*items));
    list->n = (uint32_t)need;
    return 0;
}

static const char *
copy(struct pickle *p, const char *s, size_t n)
{
    char *c = pickle_alloc(p, n + 1, 1);

    if (c)
        memcpy(c, s, n);
    return c;
}

static int
check_name(struct pickle *p, const char *module, const char *name)
{
    if (pickle_dangerous(module, name))
        return pickle_bad(p,
                          "global %.200s.%.200s could run code: no checkpoint "
                          "needs it",
                          module, name);
    if (pickle_listed(module, name) || pickle_allowed(p->allowed, module, name))
        return 0;
    return pickle_bad(p,
                      "global %.200s.%.200s is not one that weights need "
                      "(--allow %.200s.%.200s passes over it)",
                      module, name, module, name);
}

struct pth_value *
pickle_global(struct pickle *p, const char *module, size_t module_n,
              const char *name, size_t name_n)
{
    struct pth_value *v = pickle_value(p, PK_GLOBAL);
    struct pth_global *g = v ? pickle_alloc(p, 1, sizeof(*g)) : NULL;

    if (module_n > MAX_NAME || name_n > MAX_NAME) {
        pickle_bad(p, "a global's name of %zu bytes (expected at most %d)",
                   module_n > MAX_NAME ? module_n : name_n, MAX_NAME);
        return NULL;
    }
    if (!g || !(g->module = copy(p, module, module_n)) ||
        !(g->name = copy(p, name, name_n)))
        return NULL;
    g->at = p->op;
    if (strlen(g->module) != module_n || strlen(g->name) != name_n) {
        pickle_bad(p, "a global's name has a NUL in it");
        return NULL;
    }
    if (check_name(p, g->module, g->name) < 0)
        return NULL;
    if (p->last_global)
        p->last_global->next = g;
    else
        p->globals = g;
    p->last_global = g;
    v->u.global = g;
    return v;
}

bool
pickle_is(const struct pth_value *v, const char *module, const char *name)
{
    return v->kind == PK_GLOBAL && !strcmp(v->u.global->module, module) &&
           !strcmp(v->u.global->name, name);
}
