/* SPDX-License-Identifier: ISC */
/*
 * Experts' matrices that lie in one tensor for each layer: all are parts of it.
 * Copied are only those by columns whose columns take turns, as products have
 * no stride of columns, and all by columns for who wants rows.
 */
#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/mem.h"
#include "core/model/bind.h"
#include "core/model/model.h"

/* n matrices [out, in], of which each has n_parts: gate and up, or down. */
struct stack {
    const struct family_stack *of;
    size_t n, out, in, n_parts;
    const struct stdir_tensor *t; /* of numbers, NULL: they are packed */
    const void *data;
    bool by_k; /* [in, out] */
    struct form_tensors packed;
    float *bias; /* [n, out], gate's before up's; or NULL */
};

/* Finds the stack b->name: 1; 0: there is none. */
static int
find_stack(struct binder *b, struct stack *s)
{
    struct model *m = b->model;
    bool by_k = s->of->in_out, take_turns = by_k && s->n_parts > 1;
    const struct st_want want = { .n_dims = 3,
                                  .shape = { s->n, by_k ? s->in : s->out,
                                             by_k ? s->out : s->in },
                                  .by = BIND_BY };
    int rc = bind_look(b, &s->packed, s->n, s->out, s->in);

    if (rc > 0 && by_k && s->packed.group->form->layout != LAYOUT_MXFP4)
        return form_refuse_in_out(m->dir.path, b->name.s, m->config.family,
                                  b->err);
    if (rc > 0 && take_turns) { /* rows 2 i and 2 i + 1 are one row */
        s->packed.out /= 2;
        s->packed.in *= 2;
    }
    s->t = rc ? NULL : bind_find(b, b->name.s);
    if (!s->t)
        return rc;
    if (st_want(s->t->st->path, s->t->t, &want, b->err))
        return -1;
    s->by_k = by_k && !b->by_rows;
    s->data = by_k && b->by_rows
                  ? form_transpose(&m->packed, s->t, take_turns, b->err)
              : take_turns ? form_split(&m->packed, s->t, b->err)
                           : st_data(s->t->st, s->t->t);
    return s->data ? 1 : -1;
}

/* The biases b->name. */
static int
find_biases(struct binder *b, struct stack *s)
{
    const struct st_want want = { 2, .shape = { s->n, s->out }, .by = BIND_BY };
    size_t half = s->out / 2;
    float *row;

    if (bind_needed(b, &want, &s->bias))
        return -1;
    row = xcalloc(s->out, sizeof(*row));
    for (size_t e = 0; s->of->in_out && s->n_parts > 1 && e < s->n; e++) {
        float *bias = s->bias + e * s->out;

        memcpy(row, bias, s->out * sizeof(*row));
        for (size_t i = 0; i < s->out; i++)
            bias[i / 2 + i % 2 * half] = row[i];
    }
    free(row);
    return 0;
}

/* The parts of matrix e. */
static int
bind_parts(struct binder *b, const struct stack *s, size_t layer, size_t e)
{
    const enum model_part first =
        s->n_parts > 1 ? PART_EXPERT_GATE : PART_EXPERT_DOWN;
    const size_t rows = s->out / s->n_parts;
    bool by_k = s->by_k, is_row = !s->t && s->of->in_out;
    struct linear l = { .by_k = by_k };

    if (!s->t && form_bind(&l, &s->packed, e, &b->model->packed, b->err))
        return -1;
    if (s->t)
        l.w = (struct weight){ .data = s->data,
                               .dtype = s->t->t->dtype,
                               .ld = by_k ? s->out : s->in,
                               .row = e * (by_k ? s->in : s->out) };
    l.out = rows;
    l.in = s->in;
    for (size_t i = 0; i < s->n_parts; i++) {
        struct linear *to = part_linear(
            b->model,
            (struct part_at){ (enum model_part)(first + i), layer, e });

        *to = l;
        if (by_k || is_row)
            to->w.col = i * (by_k ? rows : s->in);
        else
            to->w.row += i * rows;
        to->bias = s->bias ? s->bias + e * s->out + i * rows : NULL;
    }
    return 0;
}

int
bind_stacks(struct binder *b, size_t layer)
{
    const struct config *c = &b->model->config;
    const struct family_stack *of = family_stack(c->family);
    struct part_at at = { .part = PART_EXPERT_GATE, .layer = layer };

    for (size_t i = 0; i < 2; i++) {
        struct stack s = { .of = of, .n = (size_t)c->n_experts };
        int found;

        s.n_parts = 2 - i;
        at.part = i ? PART_EXPERT_DOWN : PART_EXPERT_GATE;
        part_size(c, at.part, &s.out, &s.in);
        s.out *= s.n_parts;
        str_clear(&b->name);
        str_adds(&b->name, b->root);
        part_module(&b->name, c->family, at, 2);
        str_addf(&b->name, ".%s", i ? of->down : of->gate_up);
        found = find_stack(b, &s);
        if (found <= 0)
            return found < 0 || i == 0 ? found : bind_missing(b, b->name.s, "");
        str_adds(&b->name, "_bias");
        if (of->has_bias && find_biases(b, &s))
            return -1;
        for (size_t e = 0; e < s.n; e++)
            if (bind_parts(b, &s, layer, e))
                return -1;
    }
    return 1;
}
