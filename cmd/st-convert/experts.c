/* SPDX-License-Identifier: ISC */
#include "cmd/st-convert/experts.h"

#include <string.h>

#include "core/model/parts.h"
#include "core/str.h"

size_t
experts_find(struct convert_plan *p, const struct st_tensor *t,
             struct part_at *at)
{
    const struct family_stack *stack =
        p->cmd->weights >= 0 && p->family ? family_stack(p->family) : NULL;
    size_t n = 0, n_module;
    struct str both[2] = { { 0 }, { 0 } };
    bool ignored;

    if (stack && !stack->in_out && !stack->has_bias && t->n_dims == 3 &&
        t->n_elements && dtype_computes(t->dtype))
        n = part_find_stack(at, p->family, t->name);
    if (n == 0 || t->shape[1] % n)
        return 0;
    n_module = strlen(t->name) - strlen(n > 1 ? stack->gate_up : stack->down);
    str_addf(&both[0], "%.*s%s", (int)n_module, t->name, stack->gate_up);
    str_addf(&both[1], "%.*s%s", (int)n_module, t->name, stack->down);
    ignored = plan_matches(&p->ignored, both[0].s, true) &&
              plan_matches(&p->ignored, both[1].s, true);
    str_free(&both[0]);
    str_free(&both[1]);
    return ignored ? 0 : n;
}

void
experts_add(struct convert_plan *p, const struct stdir_tensor *from,
            struct part_at at, size_t n_parts)
{
    const struct st_tensor *t = from->t;
    size_t n = t->shape[0] * n_parts, n_module = strlen(t->name);

    while (t->name[n_module - 1] != '.')
        n_module--;
    for (size_t i = 0; i < n; i++) {
        struct convert_expert *x = &p->experts[p->n_experts++];
        struct str s = { 0 };

        str_addf(&s, "%.*s%zu.%s.weight", (int)n_module, t->name, i / n_parts,
                 part_word(p->family, at.part + (unsigned)(i % n_parts)));
        *x = (struct convert_expert){
            .of = { &x->t, from->st },
            .t = { s.s, s.n, t->dtype, 2, x->shape, t->n_elements / n,
                   t->begin + i * (t->nbytes / n), t->nbytes / n },
            .shape = { t->shape[1] / n_parts, t->shape[2] },
            .name = s.s,
        };
        p->items[p->n_items++] = (struct convert_item){ .from = &x->of };
    }
}
