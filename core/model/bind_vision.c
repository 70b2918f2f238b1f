/* SPDX-License-Identifier: ISC */
/* What a vision encoder has before and after its layers, bound. */
#include "core/format/stwant.h"
#include "core/model/bind.h"
#include "core/model/model.h"

/* NAME.weight and NAME.bias, if that is there; 'end' is "." or "_".  out 0: as
 * many as there are, which may be none. */
static int
bind_end(struct binder *b, const char *name, const char *end, struct linear *to,
         size_t out, size_t in)
{
    struct str *s = &b->name;
    bool needed = out > 0;
    int found;

    str_clear(s);
    str_adds(s, name);
    found = bind_weights(b, *end == '.' ? ".weight" : "_weight", to, out, in);
    if (found <= 0)
        return found < 0 ? -1 : needed ? bind_missing(b, s->s, "") : 0;
    str_clear(s);
    str_addf(s, "%s%sbias", name, end);
    return bind_bias(b, to->out, &to->bias) < 0 ? -1 : 0;
}

/* A tensor NAME, or NAME and 'tail'. */
static int
bind_rows(struct binder *b, const char *name, const char *tail,
          const struct st_want *want, float **to)
{
    str_clear(&b->name);
    str_addf(&b->name, "%s%s", name, tail);
    return bind_needed(b, want, to);
}

static int
bind_before(struct binder *b, const char *name, struct norm *norm)
{
    const struct config *c = &b->model->config;
    const size_t n = (size_t)c->hidden_size;
    const struct st_want want = { 1, .shape = { n }, .by = BIND_BY };
    float *weight = NULL, *bias = NULL;

    if (bind_rows(b, name, ".weight", &want, &weight) ||
        bind_rows(b, name, ".bias", &want, &bias))
        return -1;
    norm_bind(norm, &c->form.norm, weight, bias, 1, n, c->norm_eps);
    return 0;
}

/* The product with patches, whose weights [hidden, 3, p, p] are a matrix. */
static int
bind_patch(struct binder *b)
{
    const struct config *c = &b->model->config;
    size_t p = (size_t)c->vision.patch, d = (size_t)c->hidden_size;
    const struct st_want want = { 4, .shape = { d, 3, p, p }, .by = BIND_BY };
    struct linear *to = &b->model->vision.patch;
    const struct stdir_tensor *t;

    str_clear(&b->name);
    str_addf(&b->name, "%s.weight", c->family->vision->patch);
    t = bind_find(b, b->name.s);
    if (!t)
        return bind_missing(b, b->name.s, "");
    if (st_want(t->st->path, t->t, &want, b->err))
        return -1;
    *to = (struct linear){
        .w = { st_data(t->st, t->t), t->t->dtype, 3 * p * p },
        .out = d,
        .in = 3 * p * p,
    };
    str_clear(&b->name);
    str_addf(&b->name, "%s.bias", c->family->vision->patch);
    return bind_bias(b, d, &to->bias) < 0 ? -1 : 0;
}

int
bind_vision(struct binder *b)
{
    const struct config *c = &b->model->config;
    const struct config_vision *v = &c->vision;
    const struct family_vision *f = c->family->vision;
    struct model_vision *to = &b->model->vision;
    size_t d = (size_t)c->hidden_size, inner = (size_t)c->intermediate_size;
    size_t n = (size_t)((v->height / v->patch) * (v->width / v->patch)) +
               (f->cls != NULL);
    const struct st_want cls = { f->flat ? 1 : 3, .by = BIND_BY,
                                 .shape = { f->flat ? d : 1, 1, d } };
    const struct st_want registers = {
        3, .by = BIND_BY, .shape = { 1, (size_t)v->n_registers, d }
    };
    const struct st_want positions = { f->flat ? 2 : 3, .by = BIND_BY,
                                       .shape = { f->flat ? n : 1,
                                                  f->flat ? d : n, d } };
    const struct st_want probe = { 3, .by = BIND_BY, .shape = { 1, 1, d } };

    if (bind_patch(b) || (f->cls && bind_rows(b, f->cls, "", &cls, &to->cls)) ||
        (f->positions &&
         bind_rows(b, f->positions, "", &positions, &to->positions)) ||
        (v->n_registers && bind_rows(b, "embeddings.register_tokens", "",
                                     &registers, &to->registers)) ||
        (f->before && bind_before(b, f->before, &to->before)))
        return -1;
    if (f->pool == POOL_PROJECTED)
        return bind_end(b, "visual_projection", ".", &to->project, 0, d);
    if (f->pool == POOL_TANH)
        return bind_end(b, "pooler.dense", ".", &to->project, 0, d);
    if (f->pool == POOL_CLS || !v->has_head)
        return 0;
    return bind_rows(b, "head.probe", "", &probe, &to->probe) ||
                   bind_end(b, "head.attention.in_proj", "_", &to->in, 3 * d,
                            d) ||
                   bind_end(b, "head.attention.out_proj", ".", &to->out, d,
                            d) ||
                   bind_before(b, "head.layernorm", &to->norm) ||
                   bind_end(b, "head.mlp.fc1", ".", &to->up, inner, d) ||
                   bind_end(b, "head.mlp.fc2", ".", &to->down, d, inner)
               ? -1
               : 0;
}
