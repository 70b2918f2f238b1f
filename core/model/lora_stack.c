#include "core/model/lora_stack.h"

#include <math.h>
#include <string.h>

#include "core/format/peft.h"
#include "core/format/stwant.h"

int
lora_stack_layer(const struct st *st, int64_t *layer, struct err *err)
{
    double v;
    int rc;

    if (st->n_tensors &&
        !strncmp(st->tensors->name, PEFT_ROOT, strlen(PEFT_ROOT)))
        return err_set(err, EX_DATAERR,
                       "%s: is PEFT's, and " PEFT_CONFIG
                       ", which has its rank and alpha, is not next to it",
                       st->path);
    rc = st_meta_f64(st, "layer_idx", &v, err);

    *layer = rc > 0 && v >= 0 && v < INT32_MAX ? (int64_t)v : -1;
    return rc < 0 ? -1 : 0;
}

/* Sizes that the metadata name are those of the tensors; alpha must be there.
 */
static int
read_meta(struct lora_stack *s, const struct st *st, struct err *err)
{
    const struct {
        const char *key;
        size_t size;
    } sizes[] = { { "lora_rank", s->rank },
                  { "expert_num", s->n_experts },
                  { "hidden_size", s->hidden },
                  { "intermediate_size", s->intermediate } };
    int rc;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        double v;

        if ((rc = st_meta_f64(st, sizes[i].key, &v, err)) < 0)
            return -1;
        if (rc > 0 && v != (double)sizes[i].size)
            return err_set(err, EX_DATAERR,
                           "%s: __metadata__ %s is \"%s\", but the tensors "
                           "have %zu",
                           st->path, sizes[i].key, st_meta(st, sizes[i].key),
                           sizes[i].size);
    }
    if ((rc = st_meta_f64(st, "lora_alpha", &s->alpha, err)) < 0)
        return -1;
    if (rc == 0)
        return err_set(err, EX_DATAERR, "%s: __metadata__ has no lora_alpha",
                       st->path);
    if (!isfinite((float)s->alpha))
        return err_set(err, EX_DATAERR,
                       "%s: __metadata__ lora_alpha is \"%s\", more than F32 "
                       "holds",
                       st->path, st_meta(st, "lora_alpha"));
    return 0;
}

int
lora_stack_read(struct lora_stack *s, const struct st *st, struct err *err)
{
    struct moe_config sizes;

    if (lora_stack_layer(st, &s->layer, err) < 0)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++) {
        struct st_want want = { .n_dims = 3,
                                .open = m == MOE_GATE_A
                                            ? "experts, rank, hidden"
                                            : "experts, intermediate, rank" };
        const struct st_tensor *t = st_find(st, moe_lora_names[m]);

        /* gate's two have all the sizes, which the others must share */
        sizes = (struct moe_config){ .n_experts = s->n_experts,
                                     .hidden = s->hidden,
                                     .intermediate = s->intermediate,
                                     .lora_rank = s->rank };
        moe_lora_shape(&sizes, (enum moe_lora_matrix)m, want.shape);
        for (int d = 0; m <= MOE_GATE_B && d < 3; d++)
            if (want.shape[d] == 0 || (m == MOE_GATE_A && d == 1))
                want.shape[d] = ST_OPEN;
        if (!t)
            return st_missing(st->path, moe_lora_names[m], err);
        if (st_want(st->path, t, &want, err) < 0)
            return -1;
        if (t->n_elements == 0)
            return err_set(err, EX_DATAERR, "%s: %s is empty", st->path,
                           t->name);
        if (t->shape[0] > MOE_MAX_EXPERTS)
            return err_set(err, EX_DATAERR,
                           "%s: has %zu experts (expected at most %d)",
                           st->path, (size_t)t->shape[0], MOE_MAX_EXPERTS);
        if (m == MOE_GATE_A) {
            s->n_experts = t->shape[0];
            s->rank = t->shape[1];
            s->hidden = t->shape[2];
        } else if (m == MOE_GATE_B) {
            s->intermediate = t->shape[1];
        }
        s->m[m] = t;
    }
    return read_meta(s, st, err);
}
