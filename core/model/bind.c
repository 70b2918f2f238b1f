/* SPDX-License-Identifier: ISC */
#include "core/model/bind.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/kernel/f64.h"
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

/* Allocates *v [n], which is the model's. */
static int
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

/* Widens the tensor b->name, of this shape, to *to, which is allocated where
 * that is NULL: 1; 0: there is none. */
static int
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

/* The same of one that must be there: 0, or -1. */
static int
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

/* Finds the packed weights of the module b->name, n matrices [out, in]; out 0:
 * any number.  1; 0: they are not packed, or there are none. */
static int
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

/* ---- Gated DeltaNet ---- */

/* A tensor of the module that has out_proj. */
static int
bind_own(struct binder *b, size_t layer, const char *word,
         const struct st_want *want, float **to)
{
    bind_name(b, (struct part_at){ PART_GDN_OUT, layer, 0 }, "");
    b->name.n = (size_t)(strrchr(b->name.s, '.') + 1 - b->name.s);
    str_adds(&b->name, word);
    *to = NULL;
    return bind_needed(b, want, to);
}

static int
bind_gdn(struct binder *b, size_t layer)
{
    const struct config *c = &b->model->config;
    struct gdn *g = &b->model->layers[layer].gdn;
    size_t heads = (size_t)c->gdn.n_v_heads, kernel = (size_t)c->gdn.kernel;
    size_t channels = gdn_sizes(c).channels;
    const struct st_want of_heads = { 1, .shape = { heads }, .by = BIND_BY };
    const struct st_want of_conv = { 3, .shape = { channels, 1, kernel },
                                     .by = BIND_BY };
    float *rate, *bias, *conv, *by_channel;

    if (bind_own(b, layer, "A_log", &of_heads, &rate) ||
        bind_own(b, layer, "dt_bias", &of_heads, &bias) ||
        bind_own(b, layer, "conv1d.weight", &of_conv, &conv))
        return -1;
    for (size_t i = 0; i < heads; i++)
        rate[i] = (float)-f64_exp((double)rate[i]);
    by_channel = xmalloc(channels * kernel * sizeof(*conv));
    memcpy(by_channel, conv, channels * kernel * sizeof(*conv));
    for (size_t i = 0; i < channels * kernel; i++)
        conv[i % kernel * channels + i / kernel] = by_channel[i];
    free(by_channel);
    g->rate = rate;
    g->bias = bias;
    g->conv = conv;
    return 0;
}

/* ---- stacks of experts ---- */

/*
 * Experts' matrices that lie in one tensor for each layer: all are parts of it.
 * Copied are only those by columns whose columns alternate, as products have
 * no stride of columns, and all by columns for who wants rows.
 * n matrices [out, in], of which each has n_parts: gate and up, or down.
 */
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
    bool in_out = s->of->in_out, take_turns = in_out && s->n_parts > 1;
    const struct st_want want = { .n_dims = 3,
                                  .shape = { s->n, in_out ? s->in : s->out,
                                             in_out ? s->out : s->in },
                                  .by = BIND_BY };
    int rc = bind_look(b, &s->packed, s->n, s->out, s->in);

    if (rc > 0 && in_out && s->packed.group->form->layout != LAYOUT_MXFP4)
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
    s->by_k = in_out && !b->by_rows;
    s->data = in_out && b->by_rows
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

/* ---- layers ---- */

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

/* ---- before and after a vision encoder's layers ---- */

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
