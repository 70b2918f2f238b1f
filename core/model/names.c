/* SPDX-License-Identifier: ISC */
#include "core/model/names.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/str.h"

/* The longer one of two that begin alike is first: the first of all is a
 * table's, of the third. */
static const char *const roots[] = { "model.language_model.model.",
                                     "model.language_model.",
                                     "language_model.model.",
                                     "model.",
                                     "transformer.",
                                     "gpt_neox.",
                                     "vision_model.",
                                     "dinov2.",
                                     "dinov2_with_registers.",
                                     "vit." };
enum { N_ROOTS = sizeof(roots) / sizeof(*roots) };

static const char *
after_root(const char *name)
{
    for (size_t i = 0; i < N_ROOTS; i++)
        if (!strncmp(name, roots[i], strlen(roots[i])))
            return name + strlen(roots[i]);
    return NULL;
}

const char *
names_short(const char *name)
{
    const char *rest = after_root(name), *inner = NULL;

    if (rest && strncmp(rest, "model.", 6) != 0)
        inner = after_root(rest); /* a table's name */
    return inner ? inner : rest ? rest : name;
}

const char *
names_layer(const char *name, int64_t *n, const char **end)
{
    for (const char *s = name; *s; s++) {
        bool starts = s == name || s[-1] == '.';
        char *after;

        size_t k = !strncmp(s, "h.", 2) ? 2 : !strncmp(s, "layer.", 6) ? 6 : 7;

        if (!starts ||
            (k == 7 && strncmp(s, "layers.", k) && strncmp(s, "blocks.", k)) ||
            s[k] < '0' || s[k] > '9')
            continue;
        *n = strtoll(s + k, &after, 10);
        *end = after;
        return s;
    }
    return NULL;
}

const char *
names_root(const struct stdir *dir, const char *name)
{
    struct str s = { 0 };
    const char *root = NULL;

    for (size_t i = 0; i < N_ROOTS && !root; i++) {
        str_clear(&s);
        str_addf(&s, "%s%s", roots[i], name);
        root = stdir_find(dir, s.s) ? roots[i] : NULL;
    }
    str_free(&s);
    return root;
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
    for (size_t i = 0; i < N_ROOTS && !t; i++) {
        str_clear(&s);
        str_addf(&s, "%s%s.%s", roots[i], names_short(name), word);
        t = stdir_find(dir, s.s);
    }
    str_free(&s);
    return t;
}

/* The number that ends at 'end' (its digits begin after a dot or at 's'). */
static bool
number_before(const char *s, const char *end, const char **start, int64_t *v)
{
    int64_t n = 0, unit = 1;
    const char *p = end;

    while (p > s && p[-1] >= '0' && p[-1] <= '9' && end - p < 9) {
        n += unit * (*--p - '0');
        unit *= 10;
    }
    *start = p;
    *v = n;
    return p < end && (p == s || p[-1] == '.');
}

bool
names_expert(struct expert_name *name, const struct st_tensor *t,
             const char *tail)
{
    const size_t k = strlen("experts."), l = strlen("layers.");
    size_t n = strlen(tail);
    const char *s = t->name, *end, *start;
    int64_t layer;

    if (strlen(s) != t->name_n || t->name_n < n ||
        strcmp(s + t->name_n - n, tail) != 0)
        return false;
    end = s + t->name_n - n;
    *name = (struct expert_name){ (size_t)(end - s), -1, -1 };
    if (end > s && end[-1] != '.')
        return false;
    if (end > s && number_before(s, end - 1, &start, &name->expert) &&
        (size_t)(start - s) >= k && !memcmp(start - k, "experts.", k))
        name->prefix_n = (size_t)(start - s);
    else
        name->expert = -1;
    for (size_t i = 0; i + l < name->prefix_n; i++) {
        const char *digits = s + i + l, *dot;

        if (memcmp(s + i, "layers.", l) != 0 || (i && s[i - 1] != '.'))
            continue;
        dot = memchr(digits, '.', name->prefix_n - i - l);
        if (dot && number_before(digits, dot, &start, &layer) &&
            start == digits)
            name->layer = layer;
    }
    return true;
}

bool
names_match(const char *glob, const char *name)
{
    const char *rest = after_root(name);

    return fnmatch(glob, name, 0) == 0 ||
           (rest && fnmatch(glob, rest, 0) == 0) ||
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
