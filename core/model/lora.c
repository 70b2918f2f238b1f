#include "core/model/lora.h"

#include <math.h>
#include <stdlib.h>

#include "core/format/peft.h"
#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/lora_peft.h"
#include "core/model/lora_stack.h"
#include "core/model/model.h"
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

/* ---- stacked experts ---- */

/* The layer: what was asked for (-1: nothing was), what the file says, or the
 * only one that has experts. */
static int
find_layer(const struct model *m, const struct st *st, int64_t *layer,
           struct err *err)
{
    const struct config *c = &m->config;
    int64_t asked = *layer, last = -1, said;
    size_t n = 0;

    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->sparse[i]) {
            n++;
            last = i;
        }
    if (lora_stack_layer(st, &said, err) < 0)
        return -1;
    if (asked >= 0 && said >= 0 && said != asked)
        return err_set(
            err, EX_DATAERR,
            "%s: is for layer %lld by its metadata, but @%lld asks for another",
            st->path, (long long)said, (long long)asked);
    if (asked < 0 && said < 0 && n > 1)
        return err_set(err, EX_DATAERR,
                       "%s: does not say which layer it is for, and %s has %zu "
                       "with experts (--lora FILE@LAYER says it)",
                       st->path, m->dir.path, n);
    *layer = asked >= 0 ? asked : said >= 0 ? said : last;
    if (*layer < 0)
        return err_set(err, EX_DATAERR, "%s: is of experts, but %s has none",
                       st->path, m->dir.path);
    if (*layer >= c->n_layers || !c->sparse[*layer])
        return err_set(err, EX_DATAERR,
                       "%s: is of experts, but layer %lld of %s has none",
                       st->path, (long long)*layer, m->dir.path);
    return 0;
}

/* An expert's matrix [out, in] of a stack. */
static struct linear
matrix_at(const struct st *st, const struct st_tensor *t, size_t expert)
{
    size_t out = t->shape[1], in = t->shape[2];
    size_t nbytes = out * in * dtype_table[t->dtype].bits / 8;

    return (struct linear){ .w = (const char *)st_data(st, t) + expert * nbytes,
                            .dtype = t->dtype,
                            .out = out,
                            .in = in };
}

static int
open_stack(struct model *m, struct adapter *adapter, const char *path,
           int64_t layer, struct err *err)
{
    struct lora_stack s = { .n_experts = (size_t)m->config.n_experts };
    struct mlp *experts;
    const struct st *st;

    if (stdir_open(&adapter->dir, path, err) || stdir_map(&adapter->dir, err))
        return -1;
    st = &adapter->dir.files[0];
    if (find_layer(m, st, &layer, err))
        return -1;
    experts = m->layers[layer].experts;
    s.hidden = experts->gate.in;
    s.intermediate = experts->gate.out;
    if (lora_stack_read(&s, st, err))
        return -1;
    if (st->n_tensors != MOE_N_LORA)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu tensor%s (expected gate_lora_a to "
                       "down_lora_b, 6)",
                       path, st->n_tensors, plural(st->n_tensors));
    adapter->parts =
        xcalloc(s.n_experts * MOE_N_LORA / 2, sizeof(*adapter->parts));
    for (size_t e = 0; e < s.n_experts; e++) {
        struct linear *const to[] = { &experts[e].gate, &experts[e].up,
                                      &experts[e].down };

        for (int i = 0; i < MOE_N_LORA / 2; i++)
            lora_bind(
                m, adapter, to[i],
                &(struct lora){ .a = matrix_at(st, s.m[2 * i], e),
                                .b = matrix_at(st, s.m[2 * i + 1], e),
                                .scale = (float)(s.alpha / (double)s.rank) });
    }
    return 0;
}

/* ---- both ---- */

int
lora_open(struct model *m, const char *path, struct err *err)
{
    struct adapter *adapter = xcalloc(1, sizeof(*adapter));
    char *file = xstrdup(path);
    int64_t layer = file_cut_layer(&file);
    int is_dir, rc;

    adapter->next = m->adapters;
    m->adapters = adapter;
    peft_enter(&file);
    is_dir = file_is_dir(file, err);
    if (is_dir < 0)
        rc = -1;
    else if (!is_dir)
        rc = open_stack(m, adapter, file, layer, err);
    else if (layer >= 0)
        rc = err_set(err, TU_USAGE,
                     "--lora %s: the tensors of a directory name their layers, "
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

const struct stdir_tensor *
lora_not_finite(const struct model *m)
{
    for (const struct adapter *a = m->adapters; a; a = a->next)
        for (size_t i = 0; i < a->dir.n_tensors; i++) {
            const struct stdir_tensor *t = &a->dir.tensors[i];
            const void *data = st_data(t->st, t->t);
            size_t n = t->t->nbytes * 8 / dtype_table[t->t->dtype].bits;

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
        stdir_close(&a->dir);
        free(a);
    }
}
