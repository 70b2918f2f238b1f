/* SPDX-License-Identifier: ISC */
#include "cmd/st-inspect/packed.h"

#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/tool.h"

const char *const packed_roles[FORM_N_ROLES] = {
    [FORM_CODES] = "codes",       [FORM_SCALE] = "scales",
    [FORM_ZERO] = "zero points",  [FORM_SHAPE] = "shape",
    [FORM_INDEX] = "group index", [FORM_INPUT] = "input scale",
};

int
packed_part(struct packed_part *p, const struct quantization *q,
            const struct stdir *dir, const struct stdir_tensor *t,
            struct err *err)
{
    const struct form_tensors *l = &p->layer;
    int rc;

    *p = (struct packed_part){ 0 };
    rc = form_of(&p->layer, &p->role, &p->module_n, q, dir, t, err);
    if (rc <= 0)
        p->layer.group = NULL;
    else if (l->stacked)
        p->shape[p->n_dims++] = l->n;
    p->shape[p->n_dims++] = l->out;
    p->shape[p->n_dims++] = l->in;
    p->n_elements = (uint64_t)l->n * l->out * l->in;
    return rc;
}

void
packed_load(struct quantization *q, struct stdir *dir, bool say)
{
    struct err err;

    if (quantization_load(q, dir->path, &err) == 0 &&
        (q->n_groups == 0 || stdir_map(dir, &err) == 0))
        return;
    if (say)
        tool_say("%s", err.what);
    quantization_free(q);
}

static int
by_name(const void *pa, const void *pb)
{
    const struct st_tensor *a = ((const struct stdir_tensor *)pa)->t;
    const struct st_tensor *b = ((const struct stdir_tensor *)pb)->t;

    return st_name_cmp(a->name, a->name_n, b->name, b->name_n);
}

/* NAME.weight; of experts' NAME_blocks it is NAME. */
static void
set_tensor(struct packed_tensor *w, const struct st_tensor *codes)
{
    struct str name = { 0 };

    str_add(&name, codes->name, w->p.module_n);
    str_adds(&name, codes->name[w->p.module_n] == '.' ? ".weight" : "");
    w->t = (struct st_tensor){ .name = name.s,
                               .name_n = name.n,
                               .dtype = DT_F32,
                               .n_dims = w->p.n_dims,
                               .shape = w->p.shape,
                               .n_elements = w->p.n_elements };
    for (size_t i = 0; i < FORM_N_ROLES; i++)
        if (w->p.layer.tensor[i])
            w->t.nbytes += w->p.layer.tensor[i]->t->nbytes;
}

/* Without a config.json numbers of few bits may stand for others. */
static int
check_plain(const struct stdir *dir, struct err *err)
{
    struct config_file config;
    int rc = config_file_near(&config, dir->path, err);

    config_file_close(&config);
    for (size_t i = 0; rc == 0 && i < dir->n_tensors; i++) {
        enum dtype dtype = dir->tensors[i].t->dtype;

        if (!dtype_computes(dtype) && dtype != DT_BOOL &&
            dtype_table[dtype].bits <= 32)
            return err_set(err, EX_NOINPUT,
                           "%s: has no config.json next to it, which says what "
                           "--dequantize needs to know",
                           dir->path);
    }
    return rc < 0 ? -1 : 0;
}

int
packed_open(struct packed *p, struct stdir *dir, struct err *err)
{
    size_t max = dir->n_tensors;
    int rc;

    if (quantization_load(&p->q, dir->path, err) < 0)
        return -1;
    if (p->q.n_groups == 0)
        return check_plain(dir, err);
    if (stdir_map(dir, err) < 0)
        return -1;
    p->whole = *dir;
    dir->n_tensors = 0;
    dir->tensors = mem_try(max, sizeof(*dir->tensors), dir->path, err);
    p->tensors = mem_try(max, sizeof(*p->tensors), dir->path, err);
    if (!dir->tensors || !p->tensors)
        return -1;
    for (size_t i = 0; i < max; i++) {
        const struct stdir_tensor *t = &p->whole.tensors[i];
        struct packed_tensor *w = &p->tensors[p->n];

        *w = (struct packed_tensor){ 0 };
        rc = packed_part(&w->p, &p->q, &p->whole, t, err);
        if (rc < 0)
            return -1;
        if (rc == 0) {
            dir->tensors[dir->n_tensors++] = *t;
        } else if (w->p.role == FORM_CODES) {
            set_tensor(w, t->t);
            dir->tensors[dir->n_tensors++] =
                (struct stdir_tensor){ .t = &w->t };
            p->n++;
        }
    }
    qsort(dir->tensors, dir->n_tensors, sizeof(*dir->tensors), by_name);
    return 0;
}

void
packed_close(struct packed *p, struct stdir *dir)
{
    if (p->whole.tensors) {
        free(dir->tensors);
        *dir = p->whole;
    }
    for (size_t i = 0; i < p->n; i++) {
        free((char *)(uintptr_t)p->tensors[i].t.name);
        form_memory_free(&p->tensors[i].memory);
        free(p->tensors[i].bound);
    }
    free(p->tensors);
    quantization_free(&p->q);
}

struct packed_tensor *
packed_of(const struct stdir_tensor *t)
{
    return t->st ? NULL : (struct packed_tensor *)(uintptr_t)t->t;
}

int
packed_bind(struct packed_tensor *p, struct par *par, struct err *err)
{
    size_t n = p ? p->p.layer.n : 0;

    if (!p)
        return 0;
    p->memory = (struct form_memory){ .par = par };
    p->bound = xcalloc(n, sizeof(*p->bound));
    for (size_t i = 0; i < n; i++)
        if (form_bind(&p->bound[i], &p->p.layer, i, &p->memory, err) < 0)
            return -1;
    return 0;
}

int
packed_unbind(struct packed_tensor *p, struct err *err)
{
    if (!p)
        return 0;
    form_memory_free(&p->memory);
    p->memory = (struct form_memory){ 0 };
    free(p->bound);
    p->bound = NULL;
    for (size_t i = 0; i < FORM_N_ROLES; i++)
        if (p->p.layer.tensor[i] &&
            st_unchanged(p->p.layer.tensor[i]->st, err) < 0)
            return -1;
    return 0;
}

void
packed_read(const struct packed_tensor *p, void *buf, uint64_t first, size_t n)
{
    size_t in = p->p.layer.in, out = p->p.layer.out;
    size_t row = first / in, col = first % in;
    float *to = buf;

    for (size_t i = 0, k; i < n; i += k, row++, col = 0) {
        k = smaller(in - col, n - i);
        weight_read(to + i, &p->bound[row / out].w, row % out, col, k);
    }
    for (size_t i = 0; i < n; i++)
        put_le32(to + i, f32_bits(to[i]));
}
