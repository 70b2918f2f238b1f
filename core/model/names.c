#include "core/model/names.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/str.h"

#define ROOT "model."

const char *
names_short(const char *name)
{
    size_t n = strlen(ROOT);

    return strncmp(name, ROOT, n) == 0 ? name + n : name;
}

const char *
names_layer(const char *name, int64_t *n, const char **end)
{
    for (const char *s = name; *s; s++) {
        bool starts = s == name || s[-1] == '.';
        char *after;

        if (!starts || (strncmp(s, "layers.", 7) && strncmp(s, "blocks.", 7)) ||
            s[7] < '0' || s[7] > '9')
            continue;
        *n = strtoll(s + 7, &after, 10);
        *end = after;
        return s;
    }
    return NULL;
}

const char *
names_root(const struct stdir *dir)
{
    return !stdir_find(dir, ROOT "norm.weight") &&
                   stdir_find(dir, "norm.weight")
               ? ""
               : ROOT;
}

const struct stdir_tensor *
names_tensor(const struct stdir *dir, const char *name, const char *word)
{
    const struct stdir_tensor *t;
    struct str s = { 0 };

    str_addf(&s, "%s.%s", name, word);
    t = stdir_find(dir, s.s);
    if (!t)
        t = stdir_find(dir, names_short(s.s));
    str_free(&s);
    return t;
}

bool
names_match(const char *glob, const char *name)
{
    return fnmatch(glob, name, 0) == 0 ||
           fnmatch(glob, names_short(name), 0) == 0;
}

void
globs_open(struct globs *g, const char *list)
{
    char *copy = xstrdup(list ? list : ""), *save = NULL;

    *g = (struct globs){ 0 };
    for (char *s = strtok_r(copy, ",", &save); s;
         s = strtok_r(NULL, ",", &save)) {
        g->glob = xrealloc(g->glob, g->n + 1, sizeof(*g->glob));
        g->glob[g->n++] = xstrdup(s);
    }
    g->used = xcalloc(g->n, sizeof(*g->used));
    g->near = xcalloc(g->n, sizeof(*g->near));
    for (size_t i = 0; i < g->n; i++)
        near_start(&g->near[i], g->glob[i]);
    free(copy);
}

void
globs_close(struct globs *g)
{
    for (size_t i = 0; i < g->n; i++)
        free(g->glob[i]);
    free(g->glob);
    free(g->used);
    free(g->near);
    *g = (struct globs){ 0 };
}

bool
globs_match(const struct globs *g, const char *name)
{
    for (size_t i = 0; i < g->n; i++)
        if (names_match(g->glob[i], name))
            return true;
    return false;
}

void
globs_use(struct globs *g, const char *name)
{
    for (size_t i = 0; i < g->n; i++)
        g->used[i] = g->used[i] || names_match(g->glob[i], name);
    globs_near(g, name);
}

void
globs_near(struct globs *g, const char *name)
{
    for (size_t i = 0; i < g->n; i++) {
        if (g->used[i])
            continue;
        near_try(&g->near[i], name, strlen(name));
        near_try(&g->near[i], names_short(name), strlen(names_short(name)));
    }
}

const char *
globs_unused(const struct globs *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (!g->used[i])
            return g->glob[i];
    return NULL;
}

const char *
globs_hint(struct globs *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (!g->used[i])
            return near_hint(&g->near[i]);
    return "";
}
