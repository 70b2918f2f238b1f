#include "core/model/model.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/linear_file.h"
#include "core/model/lora.h"
#include "core/model/names.h"

#define BY " by config.json" /* what expects a shape */

#define TIED_ROWS 64 /* compared of two matrices that should be one, twice */

/* The tensors of a model that is being opened, and which were asked for. */
struct binder {
    struct model *model;
    const char *prefix; /* names_root() */
    bool *used;         /* [dir.n_tensors] */
    struct err *err;
};

static const struct stdir_tensor *
find(struct binder *b, const char *name)
{
    const struct stdir *dir = &b->model->dir;
    const struct stdir_tensor *t = stdir_find(dir, name);

    if (t)
        b->used[t - dir->tensors] = true;
    return t;
}

static int
missing(struct binder *b, const char *name, const char *why)
{
    return err_set(b->err, EX_DATAERR, "%s: tensor %s is missing%s",
                   b->model->dir.path, name, why);
}

/* A norm or a bias, widened to f32; NULL with 'err' set. */
static const float *
widen(struct binder *b, const struct stdir_tensor *t, size_t n)
{
    const struct st_want want = { .n_dims = 1, .shape = { n }, .by = BY };
    struct model *m = b->model;
    float *v;

    if (st_want(t->st->path, t->t, &want, b->err))
        return NULL;
    v = mem_try(n, sizeof(*v), t->t->name, b->err);
    if (!v)
        return NULL;
    cvt_to_f32(v, st_data(t->st, t->t), t->t->dtype, n);
    m->owned = xrealloc(m->owned, m->n_owned + 1, sizeof(*m->owned));
    m->owned[m->n_owned++] = v;
    return v;
}

static int
bind_norm(struct binder *b, struct norm *norm, const char *name, size_t n)
{
    const struct stdir_tensor *t = find(b, name);

    if (!t)
        return missing(b, name, "");
    norm->weight = widen(b, t, n);
    norm->n = n;
    norm->eps = b->model->config.rms_norm_eps;
    return norm->weight ? 0 : -1;
}

/* What one linear layer of a block is called and has. */
struct linear_spec {
    const char *name; /* "self_attn.q_proj" */
    struct linear *to;
    size_t out, in;
    bool need_bias;
    const struct linear *first; /* the same in layer 0; NULL: an expert's */
};

static int
bind_linear(struct binder *b, const struct linear_spec *spec, size_t layer)
{
    char name[128];
    const struct stdir_tensor *t;

    snprintf(name, sizeof(name), "%slayers.%zu.%s.weight", b->prefix, layer,
             spec->name);
    t = find(b, name);
    if (!t)
        return missing(b, name, "");
    if (linear_file_bind(spec->to, t, spec->out, spec->in, BY, b->err))
        return -1;
    if (!spec->first)
        return 0;
    snprintf(name, sizeof(name), "%slayers.%zu.%s.bias", b->prefix, layer,
             spec->name);
    t = find(b, name);
    if (!t && spec->need_bias)
        return missing(b, name, ", but config.json says there is a bias");
    if (!t && layer && spec->first->bias)
        return missing(b, name, ", but layer 0 has it");
    if (!t)
        return 0;
    if (layer && !spec->first->bias)
        return err_set(b->err, EX_DATAERR,
                       "%s: %s is there, but layer 0 has no such bias",
                       t->st->path, name);
    spec->to->bias = widen(b, t, spec->out);
    return spec->to->bias ? 0 : -1;
}

static int
bind_layer(struct binder *b, size_t i)
{
    const struct config *c = &b->model->config;
    struct layer *l = &b->model->layers[i];
    const struct layer *l0 = &b->model->layers[0];
    size_t hidden = (size_t)c->hidden_size, d = (size_t)c->head_dim;
    size_t nq = (size_t)c->n_heads * d, nkv = (size_t)c->n_kv_heads * d;
    size_t inter = (size_t)c->intermediate_size;
    size_t n_experts = c->sparse[i] ? (size_t)c->n_experts : 0;
    size_t width = (size_t)c->expert_size;
    bool qkv = c->need_qkv_bias, mlp = c->need_mlp_bias;
    const struct linear_spec router = { "mlp.gate", &l->router, n_experts,
                                        hidden,     false,      NULL };
    char name[128];
    const struct {
        const char *name;
        struct norm *to;
        size_t n;
    } norms[] = {
        { "input_layernorm", &l->attn_norm, hidden },
        { "post_attention_layernorm", &l->mlp_norm, hidden },
        { "self_attn.q_norm", &l->q_norm, d },
        { "self_attn.k_norm", &l->k_norm, d },
    };
    const struct linear_spec linears[] = {
        { "self_attn.q_proj", &l->q, nq, hidden, qkv, &l0->q },
        { "self_attn.k_proj", &l->k, nkv, hidden, qkv, &l0->k },
        { "self_attn.v_proj", &l->v, nkv, hidden, qkv, &l0->v },
        { "self_attn.o_proj", &l->o, hidden, nq, c->need_o_bias, &l0->o },
        { "mlp.gate_proj", &l->mlp.gate, inter, hidden, mlp, &l0->mlp.gate },
        { "mlp.up_proj", &l->mlp.up, inter, hidden, mlp, &l0->mlp.up },
        { "mlp.down_proj", &l->mlp.down, hidden, inter, mlp, &l0->mlp.down },
    };

    for (size_t k = 0; k < (c->qk_norm ? 4 : 2); k++) {
        snprintf(name, sizeof(name), "%slayers.%zu.%s.weight", b->prefix, i,
                 norms[k].name);
        if (bind_norm(b, norms[k].to, name, norms[k].n))
            return -1;
    }
    for (size_t k = 0; k < (n_experts ? 4 : 7); k++)
        if (bind_linear(b, &linears[k], i))
            return -1;
    if (n_experts == 0)
        return 0;
    l->experts = xcalloc(n_experts, sizeof(*l->experts));
    if (bind_linear(b, &router, i))
        return -1;
    for (size_t k = 0; k < n_experts; k++) {
        const struct linear_spec specs[] = {
            { "gate", &l->experts[k].gate, width, hidden, false, NULL },
            { "up", &l->experts[k].up, width, hidden, false, NULL },
            { "down", &l->experts[k].down, hidden, width, false, NULL },
        };

        for (size_t j = 0; j < 3; j++) {
            struct linear_spec spec = specs[j];

            snprintf(name, sizeof(name), "mlp.experts.%zu.%s_proj", k,
                     spec.name);
            spec.name = name;
            if (bind_linear(b, &spec, i))
                return -1;
        }
    }
    return 0;
}

/*
 * Are both in the file, and not the same?  Some rows tell, as a head that was
 * trained alone has others everywhere: at equal distances, and the last ones,
 * of tokens that were added.  All would be read from a disk for nothing.
 */
static bool
head_differs(struct binder *b, const struct stdir_tensor *embed,
             const struct stdir_tensor *head)
{
    size_t rows = (size_t)b->model->config.vocab_size;
    size_t cols = (size_t)b->model->config.hidden_size;
    const void *x = st_data(embed->st, embed->t);
    const void *y = st_data(head->st, head->t);

    if (embed == head)
        return false;
    for (size_t i = 0; i < 2 * TIED_ROWS; i++) {
        size_t row = i < TIED_ROWS ? i * rows / TIED_ROWS
                                   : rows - 1 - (i - TIED_ROWS) % rows;

        for (size_t k = row * cols; k < (row + 1) * cols; k++)
            if (dtype_get(embed->t->dtype, x, k) !=
                dtype_get(head->t->dtype, y, k))
                return true;
    }
    return false;
}

/*
 * The first and the last matrix.  Tied, they are one, under either name; two
 * that differ are two all the same, as in transformers 5: 4 took the
 * embedding for both.
 */
static int
bind_ends(struct binder *b)
{
    struct model *m = b->model;
    size_t vocab = (size_t)m->config.vocab_size;
    size_t hidden = (size_t)m->config.hidden_size;
    const struct stdir_tensor *embed, *head;
    char name[64];

    snprintf(name, sizeof(name), "%sembed_tokens.weight", b->prefix);
    embed = find(b, name);
    head = find(b, "lm_head.weight");
    if (!embed && !(head && m->config.tied))
        return missing(b, name, "");
    if (!head && !m->config.tied)
        return missing(b, "lm_head.weight",
                       ", and tie_word_embeddings is not true");
    if (!embed)
        embed = head;
    if (!head)
        head = embed;
    if (linear_file_bind(&m->embed, embed, vocab, hidden, BY, b->err) ||
        linear_file_bind(&m->lm_head, head, vocab, hidden, BY, b->err))
        return -1;
    if (m->config.tied && head_differs(b, embed, head))
        err_warn("%s: lm_head.weight is not the embedding, though "
                 "tie_word_embeddings is true: both are used",
                 m->dir.path);
    else if (m->config.tied)
        m->lm_head = m->embed;
    snprintf(name, sizeof(name), "%snorm.weight", b->prefix);
    return bind_norm(b, &m->norm, name, hidden);
}

/* A number at the start of 'at' below n and what follows it, or NULL. */
static const char *
number_below(const char *at, size_t n, size_t *v)
{
    char *end;

    if (*at < '0' || *at > '9' || (*at == '0' && at[1] >= '0' && at[1] <= '9'))
        return NULL;
    *v = strtoul(at, &end, 10);
    return *v < n ? end : NULL;
}

/* Is the tensor inside a layer that is run? */
static bool
in_layer(const struct binder *b, const char *name)
{
    size_t n = strlen(b->prefix), i;
    const char *end = NULL;

    if (!strncmp(name, b->prefix, n) && !strncmp(name + n, "layers.", 7))
        end = number_below(name + n + 7, (size_t)b->model->config.n_layers, &i);
    return end && *end == '.';
}

/* Is it no parameter: a mask, or a scale of a cache's numbers? */
static bool
is_buffer(const char *name)
{
    static const char *const globs[] = { "*attn.bias", "*.masked_bias",
                                         "*.inv_freq", "*.[kv]_scale" };

    for (size_t i = 0; i < sizeof(globs) / sizeof(*globs); i++)
        if (!fnmatch(globs[i], name, 0))
            return true;
    return false;
}

int
model_open(struct model **model, const char *path, struct err *err)
{
    struct model *m = xcalloc(1, sizeof(*m));
    struct binder b = { .model = m, .err = err };
    const struct stdir *dir = &m->dir;
    const char *first = NULL; /* of the unused tensors */
    size_t n_unused = 0, head_dim;
    int rc = -1;

    *model = NULL;
    if (stdir_check(path, true, err) || config_load(&m->config, path, err) ||
        stdir_open(&m->dir, path, err) || stdir_map(&m->dir, err))
        goto out;
    b.prefix = names_root(dir);
    b.used = xcalloc(dir->n_tensors, sizeof(*b.used));
    m->layers = xcalloc((size_t)m->config.n_layers, sizeof(*m->layers));
    if (bind_ends(&b))
        goto out;
    for (size_t i = 0; i < (size_t)m->config.n_layers; i++)
        if (bind_layer(&b, i))
            goto out;
    for (size_t i = 0; i < dir->n_tensors; i++) {
        const char *name = dir->tensors[i].t->name;

        /* a buffer that older files have follows from config.json */
        if (b.used[i] || !fnmatch("*?.rotary_emb.inv_freq", name, 0) ||
            !fnmatch("*?.rotary_emb.cos_cached", name, 0) ||
            !fnmatch("*?.rotary_emb.sin_cached", name, 0))
            continue;
        if (in_layer(&b, name) && !is_buffer(name)) {
            err_set(
                err, EX_DATAERR,
                "%s: tensor %s is in a layer that is computed, but %s has no "
                "such weight: it is another model's",
                dir->path, name, m->config.arch);
            goto out;
        }
        first = first ? first : name;
        n_unused++;
    }
    if (n_unused == 1)
        err_warn("%s: tensor %s is not a weight of this model, ignored",
                 dir->path, first);
    else if (n_unused > 1)
        err_warn("%s: %zu tensors are not weights of this model, ignored "
                 "(the first is %s)",
                 dir->path, n_unused, first);
    head_dim = (size_t)m->config.head_dim;
    m->inv_freq = xcalloc(head_dim / 2, sizeof(*m->inv_freq));
    rope_inv_freq(m->inv_freq, &m->config.rope, head_dim);
    *model = m;
    rc = 0;
out:
    free(b.used);
    if (rc < 0)
        model_close(m);
    return rc;
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
    for (size_t i = 0; m->layers && i < (size_t)m->config.n_layers; i++)
        free(m->layers[i].experts);
    free(m->layers);
    lora_close(m);
    stdir_close(&m->dir);
    config_free(&m->config);
    free(m);
}

struct linear *
model_linear(struct model *m, const char *name)
{
    struct mlp *mlp;
    struct layer *l;
    size_t i;

    if (!strcmp(name, "lm_head"))
        return &m->lm_head;
    name = names_short(name);
    if (strncmp(name, "layers.", 7) != 0)
        return NULL;
    name = number_below(name + 7, (size_t)m->config.n_layers, &i);
    if (!name)
        return NULL;
    l = &m->layers[i];
    if (strncmp(name, ".mlp.", 5) != 0)
        return !strcmp(name, ".self_attn.q_proj")   ? &l->q
               : !strcmp(name, ".self_attn.k_proj") ? &l->k
               : !strcmp(name, ".self_attn.v_proj") ? &l->v
               : !strcmp(name, ".self_attn.o_proj") ? &l->o
                                                    : NULL;
    name += 5;
    mlp = &l->mlp;
    if (l->experts) {
        if (!strcmp(name, "gate"))
            return &l->router;
        if (strncmp(name, "experts.", 8) != 0)
            return NULL;
        name = number_below(name + 8, (size_t)m->config.n_experts, &i);
        if (!name || *name++ != '.')
            return NULL;
        mlp = &l->experts[i];
    }
    return !strcmp(name, "gate_proj")   ? &mlp->gate
           : !strcmp(name, "up_proj")   ? &mlp->up
           : !strcmp(name, "down_proj") ? &mlp->down
                                        : NULL;
}
