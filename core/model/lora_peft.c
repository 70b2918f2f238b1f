#include "core/model/lora_peft.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/peft.h"
#include "core/format/stwant.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/linear_file.h"
#include "core/model/lora.h"
#include "core/model/model.h"

#define TAIL_A ".lora_A.weight"
#define TAIL_B ".lora_B.weight"
#define BASE   ".base_layer.weight"

struct from {
    struct model *model;
    struct adapter *adapter;
    struct peft config;
    struct err *err;
};

/* The module of a tensor's name, without 'tail'; NULL: it has another one. */
static char *
module_of(const char *name, const char *tail)
{
    size_t n = strlen(name), k = strlen(tail), root = strlen(PEFT_ROOT);

    if (n <= root + k || strncmp(name, PEFT_ROOT, root) != 0 ||
        strcmp(name + n - k, tail) != 0)
        return NULL;
    return xstrndup(name + root, n - k - root);
}

static int
bind_pair(const struct from *p, const char *module,
          const struct stdir_tensor *a, const struct stdir_tensor *b)
{
    struct linear *to = model_linear(p->model, module);
    struct lora part = { 0 };
    struct peft_pair pair;

    if (!to)
        return err_set(p->err, EX_DATAERR, "%s: %s is of no linear layer of %s",
                       a->st->path, a->t->name, p->model->dir.path);
    if (peft_target(&p->config, module, p->err) ||
        peft_pair(&p->config, module, &pair, p->err) ||
        linear_file_bind(&part.a, a, (size_t)pair.r, to->in, NULL, p->err) ||
        linear_file_bind(&part.b, b, to->out, (size_t)pair.r, NULL, p->err))
        return -1;
    part.scale = (float)pair.scale;
    lora_bind(p->model, p->adapter, to, &part);
    return 0;
}

/* The other tensor of a module's two. */
static const struct stdir_tensor *
find_other(const struct from *p, const char *module, const char *tail)
{
    const struct stdir_tensor *t;
    struct str s = { 0 };

    str_addf(&s, PEFT_ROOT "%s%s", module, tail);
    t = stdir_find(&p->adapter->dir, s.s);
    if (!t)
        st_missing(p->adapter->dir.path, s.s, p->err);
    str_free(&s);
    return t;
}

/* PEFT saves the layer itself with the adapter of an lm_head, and loads it in
 * place of the model's: that must be the same. */
static int
check_base(const struct from *p, const char *module,
           const struct stdir_tensor *t)
{
    const struct linear *to = model_linear(p->model, module);
    struct linear base;
    bool same = true;
    size_t n;

    if (!to)
        return err_set(p->err, EX_DATAERR, "%s: %s is of no linear layer of %s",
                       t->st->path, t->t->name, p->model->dir.path);
    if (linear_file_bind(&base, t, to->out, to->in, NULL, p->err))
        return -1;
    n = base.out * base.in;
    if (base.dtype == to->dtype)
        same = !memcmp(base.w, to->w, n * dtype_table[to->dtype].bits / 8);
    else
        for (size_t i = 0; i < n && same; i++)
            same = dtype_get(base.dtype, base.w, i) ==
                   dtype_get(to->dtype, to->w, i);
    if (same)
        return 0;
    return err_set(p->err, EX_DATAERR,
                   "%s: %s is not %s.weight of %s: trained on another model",
                   t->st->path, t->t->name, module, p->model->dir.path);
}

static int
bind_tensor(const struct from *p, const struct stdir_tensor *t)
{
    char *a = module_of(t->t->name, TAIL_A), *b = module_of(t->t->name, TAIL_B);
    char *base = module_of(t->t->name, BASE);
    const struct stdir_tensor *other = NULL;
    int rc = -1;

    if (a)
        other = find_other(p, a, TAIL_B);
    else if (b)
        other = find_other(p, b, TAIL_A);
    else if (base)
        rc = check_base(p, base, t);
    else
        err_set(p->err, EX_DATAERR,
                "%s: %s is not supported (" PEFT_ROOT "MODULE" TAIL_A
                ", " TAIL_B ")",
                t->st->path, t->t->name);
    if (other)
        rc = a ? bind_pair(p, a, t, other) : 0;
    free(base);
    free(b);
    free(a);
    return rc;
}

/* What a path or a Hub's id, "org/name", says that a model is, [*n]: the last
 * name, or NAME of the Hub's cache: models--ORG--NAME/snapshots/HASH, 'cache'.
 */
static const char *
model_name(const char *path, size_t *n, bool *cache)
{
    const char *hub = strstr(path, "models--");
    const char *last = hub ? strstr(hub, "/snapshots/") : NULL;
    size_t end = last ? (size_t)(last - path) : strlen(path), begin;

    *cache = last;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/' &&
                      !(last && !strncmp(path + begin - 2, "--", 2));)
        begin--;
    *n = end - begin;
    return path + begin;
}

/* Does the adapter name another model than this one as its base?  A directory's
 * name says which model it is if it has a digit, as all models' names do, or
 * is one of the Hub's cache. */
static void
compare_base(const struct model *m, const struct peft *p)
{
    const char *base =
        json_string_value(json_object_get(p->root, "base_model_name_or_path"));
    char *path = realpath(m->dir.path, NULL);
    char *theirs = base ? realpath(base, NULL) : NULL;
    const char *name, *of;
    size_t n, n_of;
    bool cache;

    if (!base || !*base || !path || (theirs && !strcmp(theirs, path)))
        goto out;
    of = model_name(base, &n_of, &cache);
    name = model_name(path, &n, &cache);
    if ((n != n_of || strncasecmp(name, of, n) != 0) &&
        (theirs || cache || strcspn(name, "0123456789") < n))
        err_warn("%s: is of the base %s, but this model is %.*s", p->path, base,
                 (int)n, name);
out:
    free(theirs);
    free(path);
}

int
lora_peft(struct model *model, struct adapter *adapter, const char *dir,
          struct err *err)
{
    struct from p = { .model = model, .adapter = adapter, .err = err };
    struct str file = { 0 };
    int rc = peft_open(&p.config, dir, err);

    str_addf(&file, "%s/" PEFT_MODEL, dir);
    if (rc == 0)
        compare_base(model, &p.config);
    if (rc == 0)
        rc = file_missing(file.s) ? stdir_wrong(dir, "has no " PEFT_MODEL, err)
                                  : stdir_open(&adapter->dir, file.s, err);
    if (rc == 0)
        rc = stdir_map(&adapter->dir, err);
    if (rc == 0 && adapter->dir.n_tensors == 0)
        rc = err_set(err, EX_DATAERR, "%s: has no tensors", adapter->dir.path);
    adapter->parts = xcalloc(adapter->dir.n_tensors, sizeof(*adapter->parts));
    for (size_t i = 0; i < adapter->dir.n_tensors && rc == 0; i++)
        rc = bind_tensor(&p, &adapter->dir.tensors[i]);
    if (rc == 0)
        rc = peft_warn(&p.config, &adapter->dir, &model->dir, "", err);
    peft_close(&p.config);
    str_free(&file);
    return rc;
}
