/* SPDX-License-Identifier: ISC */
#include "core/model/linear_file.h"

#include "core/format/stwant.h"
#include "core/mem.h"
#include "core/model/names.h"
#include "core/model/parts.h"

static struct linear
layer_of(const struct stdir_tensor *t, bool by_k)
{
    return (struct linear){
        .w = { st_data(t->st, t->t), t->t->dtype, (size_t)t->t->shape[1] },
        .by_k = by_k,
        .out = (size_t)t->t->shape[by_k],
        .in = (size_t)t->t->shape[!by_k],
    };
}

int
linear_file_bind(struct linear *l, const struct stdir_tensor *t, size_t out,
                 size_t in, const char *by, struct err *err)
{
    bool by_k = l->by_k;
    const struct st_want want = { .n_dims = 2,
                                  .shape = { by_k ? in : out, by_k ? out : in },
                                  .by = by };

    if (st_want(t->st->path, t->t, &want, err))
        return -1;
    *l = layer_of(t, by_k);
    return 0;
}

size_t
linear_file_parts(const struct stdir *dir, const struct quantization *q,
                  const char *name, char *parts[LUT_MAX_PARTS])
{
    if (!names_tensor(dir, name, "weight") && !(q && form_is(q, dir, name)))
        return lut_parts(name, parts);
    parts[0] = xstrdup(name);
    return 1;
}

/* A tensor of numbers: -1 with 'err' set where it is another. */
static int
check(const struct stdir_tensor *t, size_t n_dims, struct err *err)
{
    const struct st_want want = { .n_dims = n_dims,
                                  .shape = { ST_OPEN, ST_OPEN },
                                  .open = "outputs, inputs" };

    if (st_want(t->st->path, t->t, &want, err) < 0)
        return -1;
    if (t->t->n_elements == 0)
        return err_set(err, EX_DATAERR, "%s: %s is empty", t->st->path,
                       t->t->name);
    return 0;
}

/* A layer of a family whose matrices are [in, out]? */
static bool
is_in_out(const struct model_family *f, const char *name)
{
    struct part_at at;

    return f->form.in_out && part_find(&at, f, name) && at.part >= PART_QKV;
}

/* Two of GPT-2's relatives have its names, but only one of them its layout, and
 * a square matrix does not show which. */
static int
refuse_unknown(const struct stdir *dir, const char *name, struct err *err)
{
    struct part_at at;

    if (part_find(&at, NULL, name)) /* llama's, which others have, too */
        return 0;
    for (const struct model_family *f = NULL; (f = family_next(f));)
        if (is_in_out(f, name))
            return err_set(err, EX_DATAERR,
                           "%s: %s.weight is [inputs, outputs] in a %s, and no "
                           "model_type of hf-infer --families says whether it "
                           "is here",
                           dir->path, name, f->model_type);
    return 0;
}

/* A packed layer, as form_find() has it. */
static int
find_packed(struct linear *l, const struct linear_dir *in, const char *name,
            struct err *err)
{
    if (!in->packed || !form_is(in->packed, in->dir, name))
        return 0;
    if (in->family && is_in_out(in->family, name))
        return form_refuse_in_out(in->dir->path, name, in->family, err);
    return form_find(l, in->packed, in->memory, in->dir, name, 0, 0, err);
}

int
linear_file_find(struct linear *l, const struct stdir_tensor **bias,
                 const struct linear_dir *in, const char *name, struct err *err)
{
    const struct stdir *dir = in->dir;
    const struct stdir_tensor *w = names_tensor(dir, name, "weight");
    const struct stdir_tensor *b = names_tensor(dir, name, "bias");
    int packed = find_packed(l, in, name, err);

    *bias = b;
    if (packed < 0 || (!packed && !w))
        return packed;
    if ((b && check(b, 1, err) < 0) ||
        (!packed && (check(w, 2, err) < 0 ||
                     (!in->family && refuse_unknown(dir, name, err) < 0))))
        return -1;
    if (!packed)
        *l = layer_of(w, in->family && is_in_out(in->family, name));
    if (b && b->t->shape[0] != l->out)
        return err_set(err, EX_DATAERR,
                       "%s: %s.bias has %zu numbers (expected %zu, the "
                       "outputs of its weight)",
                       dir->path, name, (size_t)b->t->shape[0], l->out);
    return 1;
}
