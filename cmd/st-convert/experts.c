/* SPDX-License-Identifier: ISC */
#include "cmd/st-convert/experts.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/parts.h"
#include "core/str.h"

/* Bytes of a stack's name up to the last dot. */
static size_t
module_n(const struct st_tensor *t)
{
    return (size_t)(strrchr(t->name, '.') + 1 - t->name);
}

size_t
experts_find(struct convert_plan *p, const struct st_tensor *t,
             struct part_at *at)
{
    const struct family_stack *stack =
        p->cmd->weights >= 0 && p->family ? family_stack(p->family) : NULL;
    bool packs = stack && !stack->in_out && !stack->has_bias &&
                 t->n_dims == 3 && t->n_elements && dtype_computes(t->dtype);
    size_t n = packs ? part_find_stack(at, p->family, t->name) : 0;
    char *module;

    if (n == 0 || t->shape[1] % n)
        return 0;
    module = xstrndup(t->name, module_n(t));
    if (plan_matches(&p->ignored, module, true)) /* "..experts." */
        n = 0;
    free(module);
    return n;
}

void
experts_add(struct convert_plan *p, const struct stdir_tensor *from,
            struct part_at at, size_t n_parts)
{
    const struct st_tensor *t = from->t;
    size_t n = t->shape[0] * n_parts;

    for (size_t i = 0; i < n; i++) {
        struct convert_expert *x = &p->experts[p->n_experts++];
        struct str s = { 0 };

        str_addf(&s, "%.*s%zu.%s.weight", (int)module_n(t), t->name,
                 i / n_parts,
                 part_word(p->family, at.part + (unsigned)(i % n_parts)));
        *x = (struct convert_expert){
            .of = { &x->t, from->st },
            .t = { s.s, s.n, t->dtype, 2, x->shape, t->n_elements / n,
                   t->begin + i * (t->nbytes / n), t->nbytes / n },
            .shape = { t->shape[1] / n_parts, t->shape[2] },
        };
        p->items[p->n_items++] = (struct convert_item){ .from = &x->of };
    }
}
