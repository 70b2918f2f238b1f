/* SPDX-License-Identifier: ISC */
#include "core/model/bind.h"

#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/linear_file.h"
#include "core/model/model.h"

const struct stdir_tensor *
bind_find(struct binder *b, const char *name)
{
    const struct stdir *dir = &b->model->dir;
    const struct stdir_tensor *t = stdir_find(dir, name), *other = NULL;
    struct str longer = { 0 };

    if (b->more) {
        str_addf(&longer, "%s%s", b->more, name);
        other = stdir_find(dir, longer.s);
        str_free(&longer);
    }
    if (t && other) {
        b->twice[0] = t;
        b->twice[1] = other;
    }
    t = t ? t : other;
    if (t)
        b->used[t - dir->tensors] = true;
    return t;
}

int
bind_refuse_twice(struct binder *b)
{
    return err_set(b->err, EX_DATAERR,
                   "%s: %s and %s are both there (expected one of them)",
                   b->model->dir.path, b->twice[0]->t->name,
                   b->twice[1]->t->name);
}

int
bind_missing(struct binder *b, const char *name, const char *why)
{
    if (b->twice[0])
        return bind_refuse_twice(b);
    return err_set(b->err, EX_DATAERR, "%s: tensor %s is missing%s",
                   b->model->dir.path, name, why);
}

int
bind_allot(struct binder *b, size_t n, float **v)
{
    struct model *m = b->model;

    *v = mem_try(n, sizeof(**v), b->name.s, b->err);
    if (!*v)
        return -1;
    m->owned = xrealloc(m->owned, m->n_owned + 1, sizeof(*m->owned));
    m->owned[m->n_owned++] = *v;
    return 0;
}

int
bind_numbers(struct binder *b, const struct st_want *want, float **to)
{
    const struct stdir_tensor *t = bind_find(b, b->name.s);

    if (!t)
        return 0;
    if (st_want(t->st->path, t->t, want, b->err) ||
        (!*to && bind_allot(b, t->t->n_elements, to)))
        return -1;
    cvt_to_f32(*to, st_data(t->st, t->t), t->t->dtype, t->t->n_elements);
    return 1;
}

int
bind_needed(struct binder *b, const struct st_want *want, float **to)
{
    int found = bind_numbers(b, want, to);

    return found > 0 ? 0 : found < 0 ? -1 : bind_missing(b, b->name.s, "");
}

int
bind_bias(struct binder *b, size_t n, const float **to)
{
    const struct st_want want = { 1, .shape = { n }, .by = BIND_BY };
    float *bias = NULL;
    int found = bind_numbers(b, &want, &bias);

    *to = bias;
    return found;
}

const char *
bind_name(struct binder *b, struct part_at at, const char *tail)
{
    static const char of_two[] = "language_model."; /* whose head is outside */
    bool outside = !strcmp(b->root, "language_model.model.");

    str_clear(&b->name);
    str_adds(&b->name, at.part != PART_HEAD ? b->root : outside ? of_two : "");
    part_module(&b->name, b->model->config.family, at, 0);
    str_adds(&b->name, tail);
    return b->name.s;
}

/* One that is not in this layer is NORM_NONE, of the same size. */
int
bind_norm(struct binder *b, struct part_at at)
{
    const struct config *c = &b->model->config;
    struct norm_kind kind = c->form.norm;
    struct norm *norm = part_norm(b->model, at);
    const char *const tails[] = { ".weight", ".bias" };
    float *found[] = { NULL, NULL };
    bool of_heads = at.part == PART_Q_NORM || at.part == PART_K_NORM;
    bool own = of_heads && c->form.qk_norm >= QK_OWN;
    bool tensors = own && c->form.qk_norm == QK_OWN_TENSORS;
    bool latent = at.part == PART_Q_A_NORM || at.part == PART_KV_A_NORM;
    bool scale = (c->form.layer_scale &&
                  (at.part == PART_ATTN_POST || at.part == PART_MLP_POST)) ||
                 at.part == PART_SINKS;
    struct st_want want = { 1, .by = BIND_BY };
    size_t sets;

    part_size(c, at.part, &norm->n, &sets);
    if (!part_is_in(c, at.part, at.layer))
        return 0;
    want.shape[0] = norm->n;
    if (own && !tensors)
        want = (struct st_want){ 2, .shape = { sets, norm->n }, .by = BIND_BY };
    for (int i = 0; i < (c->form.norm.has_bias && !own && !scale ? 2 : 1); i++)
        for (at.expert = 0; at.expert < (tensors ? sets : 1); at.expert++) {
            float *to;

            bind_name(b, at, scale ? "" : tails[i]);
            if (!found[i] && bind_allot(b, sets * norm->n, &found[i]))
                return -1;
            to = found[i] + at.expert * norm->n;
            if (bind_needed(b, &want, &to))
                return -1;
        }
    kind.plus_one &= at.part != PART_GDN_NORM; /* as no family has it */
    norm_bind(norm, &kind, found[0], found[1], sets, norm->n,
              latent ? 1e-6F : c->norm_eps); /* as DeepSeek's classes do */
    if (scale)
        norm->form = NORM_SCALE;
    return 0;
}

int
bind_look(struct binder *b, struct form_tensors *t, size_t n, size_t out,
          size_t in)
{
    const struct model *m = b->model;
    int rc = form_look(t, &m->config.quantization, &m->dir, b->name.s, b->err);

    if (rc > 0 && form_want(t, n, out, in, BIND_BY, b->err) < 0)
        rc = -1;
    if (rc <= 0)
        return rc;
    for (size_t r = 0; r < FORM_N_ROLES; r++)
        if (t->tensor[r])
            b->used[t->tensor[r] - m->dir.tensors] = true;
    return 1;
}

/* The weights of the module that b->name is, if they are packed: 1; 0: they are
 * not, or there are none. */
static int
bind_packed(struct binder *b, struct linear *to, size_t out, size_t in)
{
    struct model *m = b->model;
    bool by_k = to->by_k;
    struct form_tensors t;
    int rc;

    if (by_k && form_is(&m->config.quantization, &m->dir, b->name.s))
        return form_refuse_in_out(m->dir.path, b->name.s, m->config.family,
                                  b->err);
    rc = bind_look(b, &t, 1, out, in);
    return rc > 0 && form_bind(to, &t, 0, &m->packed, b->err) ? -1 : rc;
}

/* The weights b->name + tail, packed or not: 1; 0: none.  out 0: any number. */
int
bind_weights(struct binder *b, const char *tail, struct linear *to, size_t out,
             size_t in)
{
    const struct stdir_tensor *t;
    int packed = bind_packed(b, to, out, in);

    str_adds(&b->name, tail);
    if (packed)
        return packed;
    t = bind_find(b, b->name.s);
    if (t && !out && t->t->n_dims > 0)
        out = (size_t)t->t->shape[0];
    return !t ? 0 : linear_file_bind(to, t, out, in, BIND_BY, b->err) ? -1 : 1;
}

/* What a router adds to scores to choose by. */
static int
bind_correction(struct binder *b, size_t layer)
{
    const struct st_want want = {
        1, .shape = { (size_t)b->model->config.n_experts }, .by = BIND_BY
    };

    bind_name(b, (struct part_at){ PART_ROUTER, layer, 0 },
              ".e_score_correction_bias");
    return bind_needed(b, &want, &b->model->layers[layer].correction);
}

/* Biases may be there where config.json does not say so: in all layers then. */
int
bind_linear(struct binder *b, struct part_at at)
{
    const struct config *c = &b->model->config;
    struct part_at first = { .part = at.part };
    bool first_has;
    struct linear *to = part_linear(b->model, at);
    struct str why = { 0 };
    size_t out, in;
    int found;

    while (!part_is_in(c, at.part, first.layer))
        first.layer++;
    first_has = part_linear(b->model, first)->bias;
    part_size(c, at.part, &out, &in);
    to->by_k = c->form.in_out && at.part >= PART_QKV;
    bind_name(b, at, "");
    found = bind_weights(b, ".weight", to, out, in);
    if (found <= 0)
        return found < 0 ? -1 : bind_missing(b, b->name.s, "");
    if (at.part == PART_POSITIONS ||
        (at.part >= PART_ROUTER && !part_needs_bias(c, at.part)))
        return 0;
    bind_name(b, at, ".bias");
    found = bind_bias(b, out, &to->bias);
    if (found == 0 && part_needs_bias(c, at.part))
        return bind_missing(b, b->name.s,
                            ", but config.json says there is a bias");
    if (found == 0 && at.layer > first.layer && first_has) {
        str_addf(&why, ", but layer %zu has it", first.layer);
        bind_missing(b, b->name.s, why.s);
        str_free(&why);
        return -1;
    }
    if (found > 0 && at.layer > first.layer && !first_has)
        return err_set(b->err, EX_DATAERR,
                       "%s: %s is there, but layer %zu has no such bias",
                       stdir_find(&b->model->dir, b->name.s)->st->path,
                       b->name.s, first.layer);
    return found < 0 ? -1 : 0;
}

int
bind_layer(struct binder *b, size_t i)
{
    const struct config *c = &b->model->config;
    size_t n_experts = c->sparse[i] ? (size_t)c->n_experts : 0;
    int stacked;

    for (enum model_part p = PART_ATTN_NORM; p < PART_EXPERT_GATE; p++) {
        struct part_at at = { .part = p, .layer = i };

        if (part_norm(b->model, at) ? bind_norm(b, at)
                                    : part_is_in(c, p, i) && bind_linear(b, at))
            return -1;
    }
    if (c->mixer[i] == MIXER_GDN && bind_gdn(b, i))
        return -1;
    if (c->form.residual == RESIDUAL_ONE_NORM)
        b->model->layers[i].mlp_norm = b->model->layers[i].attn_norm;
    if (n_experts)
        b->model->layers[i].experts =
            xcalloc(n_experts, sizeof(*b->model->layers[i].experts));
    if (n_experts && c->router.corrected && bind_correction(b, i))
        return -1;
    stacked = n_experts ? bind_stacks(b, i) : 0;
    b->model->stacked |= stacked > 0;
    if (stacked)
        return stacked < 0 ? -1 : 0;
    for (size_t k = 0; k < n_experts; k++)
        for (enum model_part p = PART_EXPERT_GATE; p <= PART_EXPERT_DOWN; p++)
            if (bind_linear(b, (struct part_at){ p, i, k }))
                return -1;
    return 0;
}
