/* SPDX-License-Identifier: ISC */
#include "core/model/model.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/linear_file.h"
#include "core/model/lora.h"
#include "core/model/names.h"
#include "core/model/parts.h"
#include "core/str.h"
#include "core/tty.h"

#define BY " by config.json" /* what expects a shape */

#define WEIGHT ".weight"
#define BIAS   ".bias"

#define TIED_ROWS 64 /* compared of two matrices that should be one, twice */

/* The tensors of a model that is being opened, and which were asked for. */
struct binder {
    struct model *model;
    const char *root; /* of names in this directory; "": none */
    const char *more; /* one that some of a vision encoder's have, or NULL */
    const struct stdir_tensor *twice[2]; /* two of one name, but for that */
    bool *used;                          /* [dir.n_tensors] */
    struct str name;
    struct err *err;
};

static const struct stdir_tensor *
find(struct binder *b, const char *name)
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

static int
refuse_twice(struct binder *b)
{
    return err_set(b->err, EX_DATAERR,
                   "%s: %s and %s are both there (expected one of them)",
                   b->model->dir.path, b->twice[0]->t->name,
                   b->twice[1]->t->name);
}

static int
missing(struct binder *b, const char *name, const char *why)
{
    if (b->twice[0])
        return refuse_twice(b);
    return err_set(b->err, EX_DATAERR, "%s: tensor %s is missing%s",
                   b->model->dir.path, name, why);
}

/* Allocates *v [n], which is the model's. */
static int
allot(struct binder *b, const struct stdir_tensor *t, size_t n, float **v)
{
    struct model *m = b->model;

    *v = mem_try(n, sizeof(**v), t->t->name, b->err);
    if (!*v)
        return -1;
    m->owned = xrealloc(m->owned, m->n_owned + 1, sizeof(*m->owned));
    m->owned[m->n_owned++] = *v;
    return 0;
}

/* A norm or a bias [n], or if 'rows' [rows, n], widened to f32 into the
 * numbers from 'at' on of *v, of which there are 'room'; *v NULL is allocated
 * first. */
static int
widen_to(struct binder *b, const struct stdir_tensor *t, size_t rows, size_t n,
         float **v, size_t at, size_t room)
{
    const struct st_want want = { .n_dims = rows ? 2 : 1,
                                  .shape = { rows ? rows : n, n },
                                  .by = BY };

    if (st_want(t->st->path, t->t, &want, b->err) ||
        (!*v && allot(b, t, room, v)))
        return -1;
    cvt_to_f32(*v + at, st_data(t->st, t->t), t->t->dtype, rows ? rows * n : n);
    return 0;
}

/* A bias, NULL with 'err' set. */
static float *
widen(struct binder *b, const struct stdir_tensor *t, size_t n)
{
    float *v = NULL;

    widen_to(b, t, 0, n, &v, 0, n);
    return v;
}

/* A part's name in this directory and 'tail', until the next one's. */
static const char *
name_of(struct binder *b, struct part_at at, const char *tail)
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
static int
bind_norm(struct binder *b, struct part_at at)
{
    const struct config *c = &b->model->config;
    struct norm *norm = part_norm(b->model, at);
    const char *const tails[] = { WEIGHT, BIAS };
    float *found[] = { NULL, NULL };
    bool of_heads = at.part == PART_Q_NORM || at.part == PART_K_NORM;
    bool own = of_heads && c->form.qk_norm >= QK_OWN;
    bool tensors = own && c->form.qk_norm == QK_OWN_TENSORS;
    bool scale = c->form.layer_scale &&
                 (at.part == PART_ATTN_POST || at.part == PART_MLP_POST);
    size_t sets;

    part_size(c, at.part, &norm->n, &sets);
    if (!part_is_in(c, at.part, at.layer))
        return 0;
    for (int i = 0; i < (c->form.norm.has_bias && !own && !scale ? 2 : 1); i++)
        for (at.expert = 0; at.expert < (tensors ? sets : 1); at.expert++) {
            const char *name = name_of(b, at, scale ? "" : tails[i]);
            const struct stdir_tensor *t = find(b, name);

            if (!t)
                return missing(b, name, "");
            if (widen_to(b, t, own && !tensors ? sets : 0, norm->n, &found[i],
                         at.expert * norm->n, sets * norm->n))
                return -1;
        }
    norm_bind(norm, &c->form.norm, found[0], found[1], sets, norm->n,
              c->norm_eps);
    if (scale)
        norm->form = NORM_SCALE;
    return 0;
}

/* The weights of the module that b->name is, if they are packed: 1; 0: they are
 * not, or there are none. */
static int
bind_packed(struct binder *b, struct linear *to, size_t out, size_t in)
{
    const struct model *m = b->model;
    struct form_tensors t;
    int rc = form_look(&t, &m->config.quantization, &m->dir, b->name.s, b->err);

    if (rc <= 0)
        return rc;
    if (to->by_k)
        return form_refuse_in_out(m->dir.path, b->name.s, m->config.family,
                                  b->err);
    out = out ? out : t.out;
    if (t.out != out || t.in != in || t.n != 1)
        return err_data(b->err, t.tensor[FORM_CODES]->st->path,
                        "%s is of [%zu, %zu] (expected [%zu, %zu]" BY ")",
                        t.tensor[FORM_CODES]->t->name, t.n * t.out, t.in, out,
                        in);
    for (size_t r = 0; r < FORM_N_ROLES; r++)
        if (t.tensor[r])
            b->used[t.tensor[r] - m->dir.tensors] = true;
    return form_bind(to, &t, 0, &b->model->packed, b->err) ? -1 : 1;
}

/* The weights b->name + tail, packed or not: 1; 0: none.  out 0: any number. */
static int
bind_weights(struct binder *b, const char *tail, struct linear *to, size_t out,
             size_t in)
{
    const struct stdir_tensor *t;
    int packed = bind_packed(b, to, out, in);

    str_adds(&b->name, tail);
    if (packed)
        return packed;
    t = find(b, b->name.s);
    if (t && !out && t->t->n_dims > 0)
        out = (size_t)t->t->shape[0];
    return !t ? 0 : linear_file_bind(to, t, out, in, BY, b->err) ? -1 : 1;
}

/* Biases may be there where config.json does not say so: in all layers then. */
static int
bind_linear(struct binder *b, struct part_at at)
{
    const struct config *c = &b->model->config;
    const struct linear *first =
        part_linear(b->model, (struct part_at){ .part = at.part });
    bool first_has = first && first->bias;
    struct linear *to = part_linear(b->model, at);
    const struct stdir_tensor *t;
    const char *name;
    size_t out, in;
    int found;

    part_size(c, at.part, &out, &in);
    to->by_k = c->form.in_out && at.part >= PART_QKV;
    name_of(b, at, "");
    found = bind_weights(b, WEIGHT, to, out, in);
    if (found <= 0)
        return found < 0 ? -1 : missing(b, b->name.s, "");
    if (at.part >= PART_ROUTER || at.part == PART_POSITIONS)
        return 0;
    name = name_of(b, at, BIAS);
    t = find(b, name);
    if (!t && part_needs_bias(c, at.part))
        return missing(b, name, ", but config.json says there is a bias");
    if (!t && at.layer && first_has)
        return missing(b, name, ", but layer 0 has it");
    if (!t)
        return 0;
    if (at.layer && !first_has)
        return err_set(b->err, EX_DATAERR,
                       "%s: %s is there, but layer 0 has no such bias",
                       t->st->path, name);
    to->bias = widen(b, t, out);
    return to->bias ? 0 : -1;
}

static int
bind_layer(struct binder *b, size_t i)
{
    const struct config *c = &b->model->config;
    size_t n_experts = c->sparse[i] ? (size_t)c->n_experts : 0;

    for (enum model_part p = PART_ATTN_NORM; p < PART_EXPERT_GATE; p++) {
        struct part_at at = { .part = p, .layer = i };

        if (part_norm(b->model, at) ? bind_norm(b, at)
                                    : part_is_in(c, p, i) && bind_linear(b, at))
            return -1;
    }
    if (c->form.residual == RESIDUAL_ONE_NORM)
        b->model->layers[i].mlp_norm = b->model->layers[i].attn_norm;
    if (n_experts)
        b->model->layers[i].experts =
            xcalloc(n_experts, sizeof(*b->model->layers[i].experts));
    for (size_t k = 0; k < n_experts; k++)
        for (enum model_part p = PART_EXPERT_GATE; p <= PART_EXPERT_DOWN; p++)
            if (bind_linear(b, (struct part_at){ p, i, k }))
                return -1;
    return 0;
}

/*
 * Are they not the same?  Some rows tell, as a head that was trained alone has
 * others everywhere: at equal distances, and the last ones, of tokens that were
 * added.  All would be read from a disk for nothing.
 */
static bool
head_differs(const struct linear *embed, const struct linear *head)
{
    size_t rows = embed->out, n = embed->in;
    float *x = xmalloc(2 * n * sizeof(*x));
    bool differs = false;

    for (size_t i = 0; i < 2 * TIED_ROWS && !differs; i++) {
        size_t row = i < TIED_ROWS ? i * rows / TIED_ROWS
                                   : rows - 1 - (i - TIED_ROWS) % rows;

        weight_read(x, &embed->w, row, 0, n);
        weight_read(x + n, &head->w, row, 0, n);
        for (size_t k = 0; k < n; k++)
            differs |= x[k] != x[n + k];
    }
    free(x);
    return differs;
}

/* sqrt(n), rounded to the type of a model's numbers. */
static float
root_of(size_t n, enum dtype dtype)
{
    float root = (float)sqrt((double)n);
    char rounded[4];

    cvt_from_f32(rounded, dtype, &root, 1);
    cvt_to_f32(&root, rounded, dtype, 1);
    return root;
}

/*
 * The matrices from ids and to logits.  Tied, they are one, under either name;
 * two that differ are two all the same, as in transformers 5: 4 took the
 * embedding for both, as all do in a family whose default is tied.
 */
static int
bind_ends(struct binder *b)
{
    const struct part_at at_embed = { .part = PART_EMBED };
    const struct part_at at_head = { .part = PART_HEAD };
    const struct stdir_tensor *bias;
    struct model *m = b->model;
    bool tied = m->config.tied;
    int embed, head = 0;
    size_t vocab, hidden;

    part_size(&m->config, PART_EMBED, &vocab, &hidden);
    name_of(b, at_embed, "");
    embed = bind_weights(b, WEIGHT, &m->embed, vocab, hidden);
    if (embed > 0 && tied && m->config.family->tied) {
        find(b, name_of(b, at_head, WEIGHT)); /* the same, as all do */
    } else if (embed >= 0) {
        name_of(b, at_head, "");
        head = bind_weights(b, WEIGHT, &m->lm_head, vocab, hidden);
    }
    if (embed < 0 || head < 0)
        return -1;
    if (!embed && !(head && tied))
        return missing(b, name_of(b, at_embed, WEIGHT), "");
    if (!head && !tied)
        return missing(b, name_of(b, at_head, WEIGHT),
                       ", and tie_word_embeddings is not true");
    if (!embed)
        m->embed = m->lm_head;
    if (part_is_in(&m->config, PART_POSITIONS, 0) &&
        bind_linear(b, (struct part_at){ .part = PART_POSITIONS }))
        return -1;
    if (embed && head && tied && head_differs(&m->embed, &m->lm_head))
        err_warn("%s: lm_head.weight is not the embedding, though "
                 "tie_word_embeddings is true: both are used",
                 m->dir.path);
    else if (tied)
        m->lm_head = m->embed;
    if (m->config.form.head_bias) {
        bias = find(b, name_of(b, at_head, BIAS));
        if (!bias)
            return missing(b, b->name.s, "");
        m->lm_head.bias = widen(b, bias, vocab);
        if (!m->lm_head.bias)
            return -1;
    }
    m->embed_scale =
        m->config.form.embed_root
            ? root_of(hidden, m->embed.w.code ? DT_BF16 : m->embed.w.dtype)
            : (float)m->config.embed_scale;
    return 0;
}

/* ---- vision encoders ---- */

/* A tensor of these dimensions. */
static int
bind_rows(struct binder *b, const char *name, const struct st_want *want,
          float **to)
{
    const struct stdir_tensor *t = find(b, name);
    size_t n = 1;

    for (size_t i = 0; i < want->n_dims; i++)
        n *= (size_t)want->shape[i];
    if (!t)
        return missing(b, name, "");
    if (st_want(t->st->path, t->t, want, b->err) || allot(b, t, n, to))
        return -1;
    cvt_to_f32(*to, st_data(t->st, t->t), t->t->dtype, n);
    return 0;
}

/* NAME.weight and NAME.bias, if that is there; 'end' is "." or "_".  out 0: as
 * many as there are, which may be none. */
static int
bind_end(struct binder *b, const char *name, const char *end, struct linear *to,
         size_t out, size_t in)
{
    struct str *s = &b->name;
    const struct stdir_tensor *t;
    bool needed = out > 0;
    int found;

    str_clear(s);
    str_adds(s, name);
    found = bind_weights(b, *end == '.' ? WEIGHT : "_weight", to, out, in);
    if (found <= 0)
        return found < 0 ? -1 : needed ? missing(b, s->s, "") : 0;
    str_clear(s);
    str_addf(s, "%s%sbias", name, end);
    t = find(b, s->s);
    to->bias = t ? widen(b, t, to->out) : NULL;
    return t && !to->bias ? -1 : 0;
}

static int
bind_before(struct binder *b, const char *name, struct norm *norm)
{
    const struct config *c = &b->model->config;
    const size_t n = (size_t)c->hidden_size;
    const struct st_want want = { 1, .shape = { n }, .by = BY };
    const char *const tails[] = { WEIGHT, BIAS };
    float *found[2];

    for (int i = 0; i < 2; i++) {
        str_clear(&b->name);
        str_addf(&b->name, "%s%s", name, tails[i]);
        if (bind_rows(b, b->name.s, &want, &found[i]))
            return -1;
    }
    norm_bind(norm, &c->form.norm, found[0], found[1], 1, n, c->norm_eps);
    return 0;
}

/* The product with patches, whose weights [hidden, 3, p, p] are a matrix. */
static int
bind_patch(struct binder *b)
{
    const struct config *c = &b->model->config;
    size_t p = (size_t)c->vision.patch, d = (size_t)c->hidden_size;
    const struct st_want want = { 4, .shape = { d, 3, p, p }, .by = BY };
    struct linear *to = &b->model->vision.patch;
    const struct stdir_tensor *t;

    str_clear(&b->name);
    str_addf(&b->name, "%s" WEIGHT, c->family->vision->patch);
    t = find(b, b->name.s);
    if (!t)
        return missing(b, b->name.s, "");
    if (st_want(t->st->path, t->t, &want, b->err))
        return -1;
    *to = (struct linear){
        .w = { st_data(t->st, t->t), t->t->dtype, 3 * p * p },
        .out = d,
        .in = 3 * p * p,
    };
    str_clear(&b->name);
    str_addf(&b->name, "%s" BIAS, c->family->vision->patch);
    t = find(b, b->name.s);
    to->bias = t ? widen(b, t, d) : NULL;
    return t && !to->bias ? -1 : 0;
}

static int
bind_vision(struct binder *b)
{
    const struct config *c = &b->model->config;
    const struct config_vision *v = &c->vision;
    const struct family_vision *f = c->family->vision;
    struct model_vision *to = &b->model->vision;
    size_t d = (size_t)c->hidden_size, inner = (size_t)c->intermediate_size;
    size_t n = (size_t)((v->height / v->patch) * (v->width / v->patch)) +
               (f->cls != NULL);
    const struct st_want cls = { f->flat ? 1 : 3, .by = BY,
                                 .shape = { f->flat ? d : 1, 1, d } };
    const struct st_want registers = {
        3, .by = BY, .shape = { 1, (size_t)v->n_registers, d }
    };
    const struct st_want positions = { f->flat ? 2 : 3, .by = BY,
                                       .shape = { f->flat ? n : 1,
                                                  f->flat ? d : n, d } };
    const struct st_want probe = { 3, .by = BY, .shape = { 1, 1, d } };

    if (bind_patch(b) || (f->cls && bind_rows(b, f->cls, &cls, &to->cls)) ||
        (f->positions &&
         bind_rows(b, f->positions, &positions, &to->positions)) ||
        (v->n_registers && bind_rows(b, "embeddings.register_tokens",
                                     &registers, &to->registers)) ||
        (f->before && bind_before(b, f->before, &to->before)))
        return -1;
    if (f->pool == POOL_PROJECTED)
        return bind_end(b, "visual_projection", ".", &to->project, 0, d);
    if (f->pool == POOL_TANH)
        return bind_end(b, "pooler.dense", ".", &to->project, 0, d);
    if (f->pool == POOL_CLS || !v->has_head)
        return 0;
    return bind_rows(b, "head.probe", &probe, &to->probe) ||
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

/* Is it no parameter: a mask, or a scale of a cache's numbers? */
static bool
is_buffer(const char *name)
{
    static const char *const globs[] = {
        "*attn.bias",    "*attention.bias",          "*.masked_bias",
        "*.inv_freq",    "*?.rotary_emb.???_cached", "*.[kv]_scale",
        "*.position_ids"
    };

    for (size_t i = 0; i < sizeof(globs) / sizeof(*globs); i++)
        if (!fnmatch(globs[i], name, 0))
            return true;
    return false;
}

/* Is it of the text's half, or of a head or of training, which images do
 * without? */
static bool
is_beside(const char *name)
{
    static const char *const globs[] = { "text_*", "logit_*", "classifier.*",
                                         "*.mask_token" };

    for (size_t i = 0; i < sizeof(globs) / sizeof(*globs); i++)
        if (!fnmatch(globs[i], name, 0))
            return true;
    return false;
}

/* Vision encoders run by one way, models of tokens by the other. */
static int
refuse_other(const struct config *c, const char *path, bool vision,
             struct err *err)
{
    if (!vision)
        return config_refuse_vision(c->family, path, err);
    return c->family->vision
               ? 0
               : err_set(err, EX_DATAERR,
                         "%s/config.json: model_type \"%s\" is no vision "
                         "encoder, and reads no images",
                         path, c->family->model_type);
}

/* Tensors that nothing has bound: refused inside a layer, else a warning. */
static int
check_unused(const struct binder *b)
{
    const struct model *m = b->model;
    const struct stdir *dir = &m->dir;
    const char *first = NULL;
    size_t n_unused = 0;

    for (size_t i = 0; i < dir->n_tensors; i++) {
        const char *name = dir->tensors[i].t->name;
        size_t layer;

        /* a buffer that older files have follows from config.json */
        if (b->used[i] || is_buffer(name) ||
            (m->config.family->vision && is_beside(name)))
            continue;
        if ((part_in_layer(m->config.family, b->root, name, &layer) ||
             (b->more &&
              part_in_layer(m->config.family, b->more, name, &layer))) &&
            layer < (size_t)m->config.n_layers) {
            return err_set(
                b->err, EX_DATAERR,
                "%s: tensor %s is in a layer that is computed, but %s has no "
                "such weight: it is another model's",
                dir->path, name, m->config.family->model_type);
        }
        first = first ? first : name;
        n_unused++;
    }
    if (m->config.of)
        err_warn("%s: is a %s: its text model runs, as a %s, and %zu tensor%s "
                 "of other parts %s ignored",
                 dir->path, m->config.of, m->config.family->model_type,
                 n_unused, plural(n_unused), n_unused == 1 ? "is" : "are");
    else if (n_unused == 1)
        err_warn("%s: tensor %s is not a weight of this model, ignored",
                 dir->path, first);
    else if (n_unused > 1)
        err_warn("%s: %zu tensors are not weights of this model, ignored "
                 "(the first is %s)",
                 dir->path, n_unused, first);
    return 0;
}

static int
open_model(struct model **model, const char *path, bool vision, struct err *err)
{
    struct model *m = xcalloc(1, sizeof(*m));
    struct binder b = { .model = m, .err = err };
    const struct stdir *dir = &m->dir;
    size_t half;
    int rc = -1;

    *model = NULL;
    if (stdir_check(path, true, err) || config_load(&m->config, path, err) ||
        refuse_other(&m->config, path, vision, err) ||
        stdir_open(&m->dir, path, err) || stdir_map(&m->dir, err))
        goto out;
    part_module(&b.name, m->config.family,
                (struct part_at){ .part = PART_NORM }, 0);
    str_adds(&b.name, WEIGHT);
    b.root = names_root(dir, b.name.s);
    if (!b.root && stdir_find(dir, b.name.s))
        b.root = "";
    m->root = m->config.family->root ? m->config.family->root : "model.";
    if (!b.root)
        b.root = m->root;
    if (m->config.of && *b.root)
        m->root = b.root;
    if (vision) {
        b.root = "";
        b.more = m->root;
    }
    if (m->config.quantization.n_groups &&
        par_open(&m->packed.par, par_default(), err) < 0)
        goto out;
    b.used = xcalloc(dir->n_tensors, sizeof(*b.used));
    m->layers = xcalloc((size_t)m->config.n_layers, sizeof(*m->layers));
    if ((part_is_in(&m->config, PART_EMBED, 0) && bind_ends(&b)) ||
        (vision && bind_vision(&b)) ||
        bind_norm(&b, (struct part_at){ .part = PART_NORM }))
        goto out;
    for (size_t i = 0; i < (size_t)m->config.n_layers; i++)
        if (bind_layer(&b, i))
            goto out;
    if (b.twice[0]) {
        refuse_twice(&b);
        goto out;
    }
    if (check_unused(&b))
        goto out;
    half = (size_t)m->config.rotary_dim / 2;
    m->inv_freq = xcalloc(CONFIG_MAX_ROPES * half, sizeof(*m->inv_freq));
    for (size_t i = 0; i < CONFIG_MAX_ROPES; i++)
        rope_inv_freq(m->inv_freq + i * half, &m->config.rope[i], 2 * half);
    *model = m;
    rc = 0;
out:
    par_close(m->packed.par);
    m->packed.par = NULL;
    str_free(&b.name);
    free(b.used);
    if (rc < 0)
        model_close(m);
    return rc;
}

int
model_open(struct model **model, const char *path, struct err *err)
{
    return open_model(model, path, false, err);
}

int
model_open_vision(struct model **model, const char *path, struct err *err)
{
    return open_model(model, path, true, err);
}

void
model_close(struct model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_owned; i++)
        free(m->owned[i]);
    free(m->owned);
    free(m->inv_freq);
    free(m->rotations);
    for (size_t i = 0; m->layers && i < (size_t)m->config.n_layers; i++)
        free(m->layers[i].experts);
    free(m->layers);
    form_memory_free(&m->packed);
    lora_close(m);
    stdir_close(&m->dir);
    config_free(&m->config);
    free(m);
}

struct linear *
model_linear(struct model *m, const char *name)
{
    struct part_at at;

    return part_find(&at, m->config.family, name) && at.part >= PART_HEAD
               ? part_linear(m, at)
               : NULL;
}
