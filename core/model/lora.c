#include "core/model/lora.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/peft.h"
#include "core/format/stwant.h"
#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/lora_peft.h"
#include "core/model/model.h"

/* ---- running ---- */

void
lora_apply(struct engine *e, const struct apply *to, const float *x,
           size_t n_rows)
{
    for (const struct lora *l = to->linear->lora; l; l = l->next) {
        size_t rank = l->a.rows;
        struct gemm_job a = linear_job(&l->a, e->low, false);
        struct gemm_job b = linear_job(&l->b, to->y, true);

        gemm_exact(e->gemm, &a, 1, x, l->a.cols, n_rows);
        vec_scale(e->low, l->scale, n_rows * rank);
        gemm_exact(e->gemm, &b, 1, e->low, rank, n_rows);
    }
}

/* ---- binding ---- */

int
lora_bind(struct model *m, struct adapter *adapter, struct linear *to,
          const struct lora *part, struct err *err)
{
    struct lora *l = &adapter->parts[adapter->n_parts];
    struct lora **end = &to->lora;

    if (!isfinite(part->scale))
        return err_set(err, EX_DATAERR,
                       "%s: lora_alpha over the rank is no number of 32 bits",
                       adapter->dir.path);
    *l = *part;
    while (*end) /* in the order in which adapters are given */
        end = &(*end)->next;
    *end = l;
    adapter->n_parts++;
    if (l->a.rows > m->lora_rank)
        m->lora_rank = l->a.rows;
    return 0;
}

/* ---- stacked experts ---- */

/* "gate_lora_a" and "gate_lora_b": of which matrix. */
enum { GATE, UP, DOWN, N_MATRICES };
static const char *const names[N_MATRICES] = { "gate", "up", "down" };

struct stacked {
    struct model *model;
    struct adapter *adapter;
    const struct st *st;
    int64_t layer; /* asked for; -1: not said */
    float scale;
    struct err *err;
};

static size_t
count_sparse(const struct config *c, int64_t *last)
{
    size_t n = 0;

    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->sparse[i]) {
            n++;
            *last = i;
        }
    return n;
}

/* The layer: what was asked for, what the file says, or the only one. */
static int
find_layer(struct stacked *s)
{
    const struct config *c = &s->model->config;
    const char *model = s->model->dir.path;
    int64_t last = -1;
    size_t n = count_sparse(c, &last);
    double said = -1;
    int rc = st_meta_f64(s->st, "layer_idx", &said, s->err);

    if (rc == 0)
        rc = st_meta_f64(s->st, "layer", &said, s->err);
    if (rc < 0)
        return -1;
    if (rc > 0 && s->layer >= 0 && said != (double)s->layer)
        return err_set(s->err, EX_DATAERR,
                       "%s: is of layer %g by its metadata, but @%lld asks for "
                       "another",
                       s->st->path, said, (long long)s->layer);
    if (rc == 0 && s->layer < 0 && n > 1)
        return err_set(s->err, EX_DATAERR,
                       "%s: does not say of which layer it is, and %s has %zu "
                       "with experts (--lora FILE@LAYER says it)",
                       s->st->path, model, n);
    if (s->layer < 0)
        s->layer = rc > 0 && said >= 0 && said < (double)c->n_layers
                       ? (int64_t)said
                   : rc > 0 ? c->n_layers
                            : last;
    if (s->layer < 0 || s->layer >= c->n_layers || !c->sparse[s->layer])
        return err_set(s->err, EX_DATAERR,
                       "%s: is of experts, but layer %g of %s has none",
                       s->st->path, rc > 0 ? said : (double)s->layer, model);
    return 0;
}

/* The rank is the first tensor's. */
static int
find_scale(struct stacked *s, size_t *rank)
{
    const struct stdir_tensor *t = stdir_find(&s->adapter->dir, "gate_lora_a");
    double alpha, said;
    int rc;

    if (!t)
        return st_missing(s->st->path, "gate_lora_a", s->err);
    *rank = t->t->n_dims == 3 ? t->t->shape[1] : 0;
    rc = st_meta_f64(s->st, "lora_rank", &said, s->err);
    if (rc > 0 && said != (double)*rank)
        return err_set(s->err, EX_DATAERR,
                       "%s: __metadata__ lora_rank is %g, but gate_lora_a has "
                       "%zu",
                       s->st->path, said, *rank);
    if (rc >= 0)
        rc = st_meta_f64(s->st, "lora_alpha", &alpha, s->err);
    if (rc == 0)
        err_set(s->err, EX_DATAERR, "%s: __metadata__ has no lora_alpha",
                s->st->path);
    s->scale = rc > 0 ? (float)(alpha / (double)*rank) : 0;
    return rc > 0 ? 0 : -1;
}

/* One of the six, checked; w is the first expert's. */
static int
find_stack(struct stacked *s, const char *name, size_t rows, size_t cols,
           struct linear *l)
{
    const uint64_t n_experts = (uint64_t)s->model->config.n_experts;
    const struct st_want want = { .n_dims = 3,
                                  .shape = { n_experts, rows, cols } };
    const struct stdir_tensor *t = stdir_find(&s->adapter->dir, name);

    if (!t)
        return st_missing(s->st->path, name, s->err);
    if (st_want(s->st->path, t->t, &want, s->err))
        return -1;
    *l = (struct linear){ .w = st_data(t->st, t->t),
                          .dtype = t->t->dtype,
                          .rows = rows,
                          .cols = cols };
    return 0;
}

static void
next_expert(struct linear *l)
{
    l->w =
        (const char *)l->w + l->rows * l->cols * dtype_table[l->dtype].bits / 8;
}

static int
bind_stack(struct stacked *s, int which, size_t rank)
{
    struct layer *layer = &s->model->layers[s->layer];
    struct lora part = { .scale = s->scale };
    char a[16], b[16];

    snprintf(a, sizeof(a), "%s_lora_a", names[which]);
    snprintf(b, sizeof(b), "%s_lora_b", names[which]);
    for (int64_t i = 0; i < s->model->config.n_experts; i++) {
        struct mlp *m = &layer->experts[i];
        struct linear *to = which == GATE ? &m->gate
                            : which == UP ? &m->up
                                          : &m->down;

        if (i == 0 && (find_stack(s, a, rank, to->cols, &part.a) ||
                       find_stack(s, b, to->rows, rank, &part.b)))
            return -1;
        if (lora_bind(s->model, s->adapter, to, &part, s->err))
            return -1;
        next_expert(&part.a);
        next_expert(&part.b);
    }
    return 0;
}

static int
open_stacked(struct model *m, struct adapter *adapter, const char *path,
             int64_t layer, struct err *err)
{
    struct stacked s = { m, adapter, NULL, layer, 0, err };
    size_t rank = 0;

    if (stdir_open(&adapter->dir, path, err) || stdir_map(&adapter->dir, err))
        return -1;
    s.st = &adapter->dir.files[0];
    if (find_layer(&s) || find_scale(&s, &rank))
        return -1;
    adapter->parts = xcalloc((size_t)m->config.n_experts * N_MATRICES,
                             sizeof(*adapter->parts));
    for (int i = 0; i < N_MATRICES; i++)
        if (bind_stack(&s, i, rank))
            return -1;
    if (adapter->dir.n_tensors != 2 * N_MATRICES)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu tensors (expected gate_lora_a to "
                       "down_lora_b, 6)",
                       path, adapter->dir.n_tensors);
    return 0;
}

/* ---- both ---- */

int
lora_open(struct model *m, const char *path, struct err *err)
{
    struct adapter *adapter = xcalloc(1, sizeof(*adapter));
    char *file = xstrdup(path);
    int64_t layer = file_cut_layer(&file);
    int folder, rc;

    adapter->next = m->adapters;
    m->adapters = adapter;
    peft_enter_trained(&file);
    folder = file_is_dir(file, err);
    if (folder < 0)
        rc = -1;
    else if (!folder)
        rc = open_stacked(m, adapter, file, layer, err);
    else if (layer >= 0)
        rc = err_set(err, TU_USAGE,
                     "--lora %s: a folder's tensors name their layers, "
                     "@%lld is for files",
                     path, (long long)layer);
    else
        rc = lora_peft(m, adapter, file, err);
    free(file);
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

void
lora_close(struct model *m)
{
    while (m->adapters) {
        struct adapter *a = m->adapters;

        m->adapters = a->next;
        free(a->parts);
        stdir_close(&a->dir);
        free(a);
    }
}
