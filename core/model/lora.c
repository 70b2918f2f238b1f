/* SPDX-License-Identifier: ISC */
#include "core/model/lora.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/peft.h"
#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/linear_file.h"
#include "core/model/model.h"
#include "core/str.h"
#include "core/tty.h"

/* ---- running ---- */

void
lora_apply(struct engine *e, const struct apply *to, const float *x,
           size_t n_rows)
{
    for (const struct lora *l = to->linear->lora; l; l = l->next) {
        size_t rank = l->a.out;
        struct gemm_job a = linear_job(&l->a, e->low, false);
        struct gemm_job b = linear_job(&l->b, to->y, true);

        gemm_exact(e->gemm, &a, 1, x, l->a.in, n_rows);
        vec_scale(e->low, l->scale, n_rows * rank);
        gemm_exact(e->gemm, &b, 1, e->low, rank, n_rows);
    }
}

/* ---- binding ---- */

void
lora_bind(struct model *m, struct adapter *adapter, struct linear *to,
          const struct lora *part)
{
    struct lora *l = &adapter->parts[adapter->n_parts++];
    struct lora **end = &to->lora;

    *l = *part;
    while (*end) /* in the order in which adapters are given */
        end = &(*end)->next;
    *end = l;
    if (l->a.out > m->lora_rank)
        m->lora_rank = l->a.out;
}

/* What a stack is of; its layer, if it does not say, is the only one that has
 * experts. */
static int
open_stack(struct model *m, struct lora_file *f, struct err *err)
{
    const struct config *c = &m->config;
    struct lora_stack s = { .family = c->family,
                            .n_experts = (size_t)c->n_experts,
                            .hidden = (size_t)c->hidden_size,
                            .intermediate = (size_t)c->expert_size };
    const char *path = f->dir.path;
    int64_t layer = f->layer, last = -1;
    size_t n = 0;

    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->sparse[i]) {
            n++;
            last = i;
        }
    if (layer < 0 && n > 1)
        return err_set(err, EX_DATAERR,
                       "%s: does not say which layer it is for, and %s has %zu "
                       "with experts (--lora FILE@LAYER says it)",
                       path, m->dir.path, n);
    layer = layer < 0 ? last : layer;
    if (layer < 0)
        return err_set(err, EX_DATAERR, "%s: is of experts, but %s has none",
                       path, m->dir.path);
    if (layer >= c->n_layers || !c->sparse[layer])
        return err_set(err, EX_DATAERR,
                       "%s: is of experts, but layer %lld of %s has none", path,
                       (long long)layer, m->dir.path);
    return lora_file_stack(f, &s, layer, err);
}

/* The linear layer of a module that a tensor is of; NULL with 'err' set. */
static struct linear *
find_linear(struct model *m, const char *module, const struct stdir_tensor *t,
            struct err *err)
{
    struct linear *l = model_linear(m, module);

    if (!l)
        err_set(err, EX_DATAERR, "%s: %s is of no linear layer of %s",
                t->st->path, t->t->name, m->dir.path);
    return l;
}

/* PEFT saves the layer itself with the adapter of an lm_head, and loads it in
 * place of the model's: that must be the same. */
static int
check_base(struct model *m, const struct stdir_tensor *t, struct err *err)
{
    const char *end = str_ends(t->t->name, PEFT_BASE_LAYER);
    struct linear base = { .by_k = false }, *to;
    bool same = true;
    size_t n_rows, n;
    float *row;
    char *module;
    int rc;

    if (!end)
        return 0;
    module = xstrndup(t->t->name + strlen(PEFT_ROOT),
                      (size_t)(end - t->t->name) - strlen(PEFT_ROOT));
    to = find_linear(m, module, t, err);
    base.by_k = to && to->by_k;
    rc = to ? linear_file_bind(&base, t, to->out, to->in, NULL, err) : -1;
    n_rows = to ? to->by_k ? to->in : to->out : 0;
    n = to ? to->by_k ? to->out : to->in : 0;
    row = xcalloc(2 * n, sizeof(*row));
    for (size_t i = 0; rc == 0 && i < n_rows && same; i++) {
        weight_read(row, &base.w, i, 0, n);
        weight_read(row + n, &to->w, i, 0, n);
        same = !memcmp(row, row + n, n * sizeof(*row));
    }
    free(row);
    if (!same)
        rc = err_set(err, EX_DATAERR,
                     "%s: %s is not %s.weight of %s: trained on another model",
                     t->st->path, t->t->name, module, m->dir.path);
    free(module);
    return rc;
}

static int
bind_all(struct model *m, struct adapter *adapter, struct err *err)
{
    struct lora_file *f = &adapter->file;

    adapter->parts = xcalloc(f->n_pairs, sizeof(*adapter->parts));
    for (size_t i = 0; i < f->n_pairs; i++) {
        struct lora_pair *p = &f->pairs[i];
        struct linear *to = find_linear(m, p->module, p->tensor[0], err);

        if (!to || lora_pair_fit(f, p, to->out, to->in, err))
            return -1;
        lora_bind(m, adapter, to,
                  &(struct lora){
                      .a = p->a, .b = p->b, .scale = (float)p->config.scale });
    }
    for (size_t i = 0; i < f->dir.n_tensors && !f->is_stack; i++)
        if (check_base(m, &f->dir.tensors[i], err))
            return -1;
    return 0;
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

/* PEFT takes what the weights are, whatever this says: so does this. */
static int
compare_fan_in(const struct model *m, const struct peft *p, struct err *err)
{
    bool in_out = m->config.form.in_out, says;

    if (js_bool_or(&p->config, "fan_in_fan_out", in_out, &says, err) < 0)
        return -1;
    if (says != in_out)
        err_warn("%s: fan_in_fan_out is %s, but %s has weights [%s]: ignored",
                 p->path, says ? "true" : "false", m->config.family->model_type,
                 in_out ? "in, out" : "out, in");
    return 0;
}

int
lora_open(struct model *m, const char *path, struct err *err)
{
    struct adapter *adapter = xcalloc(1, sizeof(*adapter));
    struct lora_file *f = &adapter->file;
    const struct family_stack *stack = family_stack(m->config.family);
    const struct lora_experts experts = {
        .family = m->config.family,
        .n = (size_t)m->config.n_experts,
        .hidden = (size_t)m->config.hidden_size,
        .intermediate = (size_t)m->config.expert_size,
        .take_turns = stack && stack->in_out,
    };
    char *name = xstrdup(path);
    int64_t layer = file_cut_layer(&name);
    int rc;

    adapter->next = m->adapters;
    m->adapters = adapter;
    peft_enter(&name);
    rc = lora_file_open(f, name, layer, err);
    if (rc == 0 && f->is_stack)
        rc = open_stack(m, f, err);
    if (rc == 0 && !f->is_stack)
        rc = lora_file_experts(f, &experts, err);
    if (rc == 0)
        rc = bind_all(m, adapter, err);
    /* an adapter that is refused gets no warnings, too; of several models, one
     * may be of this one alone */
    if (rc == 0 && !f->is_stack)
        rc = compare_fan_in(m, &f->config, err);
    if (rc == 0 && !f->is_stack) {
        compare_base(m, &f->config);
        rc = peft_warn(&f->config, &f->dir, m->config.of ? NULL : &m->dir,
                       m->used, "", err);
    }
    free(name);
    return rc;
}

size_t
lora_count(const struct model *m)
{
    size_t n = 0;

    for (const struct adapter *a = m->adapters; a; a = a->next)
        n += a->n_parts;
    return n;
}

const struct stdir_tensor *
lora_not_finite(const struct model *m)
{
    for (const struct adapter *a = m->adapters; a; a = a->next)
        for (size_t i = 0; i < a->file.dir.n_tensors; i++) {
            const struct stdir_tensor *t = &a->file.dir.tensors[i];
            const void *data = st_data(t->st, t->t);
            size_t n = t->t->nbytes / dtype_size(t->t->dtype);

            for (size_t k = 0; k < n; k++)
                if (!isfinite(dtype_get(t->t->dtype, data, k)))
                    return t;
        }
    return NULL;
}

void
lora_close(struct model *m)
{
    while (m->adapters) {
        struct adapter *a = m->adapters;

        m->adapters = a->next;
        free(a->parts);
        lora_file_close(&a->file);
        free(a);
    }
}
