/* SPDX-License-Identifier: ISC */
#include "core/model/parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/model.h"
#include "core/model/names.h"

/* Sizes, by config.json. */
enum dim {
    NORM,
    VOCAB,
    POSITIONS,
    HIDDEN,
    HEAD_Q,
    HEAD_K,
    HEAD_V,
    Q,
    KV,
    O,
    Q_LOW,
    KV_LOW,
    KV_ALL,
    KV_BOTH,
    HEADS,
    QKV,
    INNER,
    INNER2,
    CHANNELS,
    VALUES,
    QKVZ,
    VALUE_HEADS,
    BA,
    EXPERTS,
    EXPERT,
    SHARED,
    ONE
};

/* Which layers have it, or which models. */
enum presence {
    ALWAYS,
    TOKENS,
    LEARNED,
    PRE_NORM,
    MLP_NORM,
    POST_NORM,
    QK_NORM,
    MLA,
    MLA_Q,
    SINKS,
    Q_WHOLE,
    GDN,
    GDN_FUSED,
    GDN_SPLIT,
    ATTENDS,
    SPLIT,
    FUSED,
    GATED,
    GATE_UP,
    UNGATED,
    DENSE,
    SPARSE,
    WITH_SHARED,
    SHARED_WEIGHED
};

#define LAYER     "layers.{i}."
#define ATTN      LAYER "self_attn."
#define MLP       LAYER "mlp."
#define LINEAR    LAYER "linear_attn."
#define EACH      MLP "experts.{e}."
#define ALL       MLP "shared_experts."
#define IN(s, of) offsetof(struct s, of)
#define BIAS(of)  offsetof(struct config, form.of##_bias)

static const struct {
    const char *name; /* {i}: a layer's number, {e}: an expert's */
    size_t at;        /* in struct model, layer or, of an expert, mlp */
    enum dim out, in; /* in NORM: it is one, of 'out' */
    enum presence presence;
    size_t bias; /* in struct config, whether it must be there; 0: never */
} parts[N_PARTS] = {
    /* in the order of enum model_part, as llama calls them */
    { "embed_tokens", IN(model, embed), VOCAB, HIDDEN, TOKENS, 0 },
    { "embed_positions", IN(model, positions), POSITIONS, HIDDEN, LEARNED, 0 },
    { "lm_head", IN(model, lm_head), VOCAB, HIDDEN, TOKENS, BIAS(head) },
    { "norm", IN(model, norm), HIDDEN, NORM, ALWAYS, 0 },
    { LAYER "input_layernorm", IN(layer, attn_norm), HIDDEN, NORM, PRE_NORM,
      0 },
    { LAYER "post_attention_layernorm", IN(layer, mlp_norm), HIDDEN, NORM,
      MLP_NORM, 0 },
    { LAYER "post_self_attn_layernorm", IN(layer, attn_post), HIDDEN, NORM,
      POST_NORM, 0 },
    { LAYER "post_mlp_layernorm", IN(layer, mlp_post), HIDDEN, NORM, POST_NORM,
      0 },
    { ATTN "q_norm", IN(layer, q_norm), HEAD_Q, NORM, QK_NORM, 0 },
    { ATTN "k_norm", IN(layer, k_norm), HEAD_K, NORM, QK_NORM, 0 },
    { ATTN "q_a_layernorm", IN(layer, q_a_norm), Q_LOW, NORM, MLA_Q, 0 },
    { ATTN "kv_a_layernorm", IN(layer, kv_a_norm), KV_LOW, NORM, MLA, 0 },
    { ATTN "sinks", IN(layer, sinks), HEADS, NORM, SINKS, 0 },
    { LINEAR "norm", IN(layer, gdn.norm), HEAD_V, NORM, GDN, 0 },
    { ATTN "qkv_proj", IN(layer, qkv), QKV, HIDDEN, FUSED, BIAS(qkv) },
    { MLP "gate_up_proj", IN(layer, mlp.gate_up), INNER2, HIDDEN, GATE_UP,
      BIAS(mlp) },
    { ATTN "q_a_proj", IN(layer, q_a), Q_LOW, HIDDEN, MLA_Q, BIAS(qkv) },
    { ATTN "q_b_proj", IN(layer, q_b), Q, Q_LOW, MLA_Q, 0 },
    { ATTN "kv_a_proj_with_mqa", IN(layer, kv_a), KV_ALL, HIDDEN, MLA,
      BIAS(qkv) },
    { ATTN "kv_b_proj", IN(layer, kv_b), KV_BOTH, KV_LOW, MLA, 0 },
    { LINEAR "in_proj_qkvz", IN(layer, gdn.qkvz), QKVZ, HIDDEN, GDN_FUSED, 0 },
    { LINEAR "in_proj_ba", IN(layer, gdn.ba), BA, HIDDEN, GDN_FUSED, 0 },
    { LINEAR "in_proj_qkv", IN(layer, gdn.qkv), CHANNELS, HIDDEN, GDN_SPLIT,
      0 },
    { LINEAR "in_proj_z", IN(layer, gdn.z), VALUES, HIDDEN, GDN_SPLIT, 0 },
    { LINEAR "in_proj_b", IN(layer, gdn.b), VALUE_HEADS, HIDDEN, GDN_SPLIT, 0 },
    { LINEAR "in_proj_a", IN(layer, gdn.a), VALUE_HEADS, HIDDEN, GDN_SPLIT, 0 },
    { LINEAR "out_proj", IN(layer, gdn.out), HIDDEN, VALUES, GDN, 0 },
    { ATTN "q_proj", IN(layer, q), Q, HIDDEN, Q_WHOLE, BIAS(qkv) },
    { ATTN "k_proj", IN(layer, k), KV, HIDDEN, SPLIT, BIAS(qkv) },
    { ATTN "v_proj", IN(layer, v), KV, HIDDEN, SPLIT, BIAS(qkv) },
    { ATTN "o_proj", IN(layer, o), HIDDEN, O, ATTENDS, BIAS(o) },
    { MLP "gate_proj", IN(layer, mlp.gate), INNER, HIDDEN, GATED, BIAS(mlp) },
    { MLP "up_proj", IN(layer, mlp.up), INNER, HIDDEN, UNGATED, BIAS(mlp) },
    { MLP "down_proj", IN(layer, mlp.down), HIDDEN, INNER, DENSE, BIAS(mlp) },
    { MLP "gate", IN(layer, router), EXPERTS, HIDDEN, SPARSE, BIAS(router) },
    { MLP "shared_expert_gate", IN(layer, shared_router), ONE, HIDDEN,
      SHARED_WEIGHED, 0 },
    { ALL "gate_proj", IN(layer, mlp.gate), SHARED, HIDDEN, WITH_SHARED, 0 },
    { ALL "up_proj", IN(layer, mlp.up), SHARED, HIDDEN, WITH_SHARED, 0 },
    { ALL "down_proj", IN(layer, mlp.down), HIDDEN, SHARED, WITH_SHARED, 0 },
    { EACH "gate_proj", IN(mlp, gate), EXPERT, HIDDEN, SPARSE, 0 },
    { EACH "up_proj", IN(mlp, up), EXPERT, HIDDEN, SPARSE, 0 },
    { EACH "down_proj", IN(mlp, down), HIDDEN, EXPERT, SPARSE, 0 },
};

/* ---- names ---- */

static const char *
name_of(const struct model_family *f, enum model_part part)
{
    for (const struct family_name *n = f ? f->names : NULL; n && n->name; n++)
        if (n->part == (int)part)
            return n->name;
    return parts[part].name;
}

/* The bytes of a pattern, or of the module's 'up' above it. */
static size_t
pattern_n(const char *name, int up)
{
    size_t n = strlen(name);

    for (; up > 0; up--)
        while (name[--n] != '.')
            ;
    return n;
}

static void
add_name(struct str *to, struct part_at at, const char *pattern, size_t n)
{
    for (const char *p = pattern; p < pattern + n; p++)
        if (*p == '{') {
            str_addf(to, "%zu", p[1] == 'e' ? at.expert : at.layer);
            p += 2;
        } else {
            str_add(to, p, 1);
        }
}

void
part_name(struct str *to, const struct model_family *f, struct part_at at)
{
    if (at.part != PART_HEAD)
        str_adds(to, f && f->root ? f->root : "model.");
    part_module(to, f, at, 0);
}

const char *
part_word(const struct model_family *f, enum model_part part)
{
    return strrchr(name_of(f, part), '.') + 1;
}

/* What follows the n bytes of a pattern that the name begins with, or NULL. */
static const char *
scan(struct part_at *at, const char *pattern, size_t n, const char *name)
{
    for (const char *p = pattern; p < pattern + n; p++) {
        char *end;

        if (*p != '{') {
            if (*p != *name++)
                return NULL;
            continue;
        }
        if (*name < '0' || *name > '9' ||
            (*name == '0' && name[1] >= '0' && name[1] <= '9'))
            return NULL;
        *(p[1] == 'e' ? &at->expert : &at->layer) = strtoul(name, &end, 10);
        name = end;
        p += 2;
    }
    return name;
}

void
part_module(struct str *to, const struct model_family *f, struct part_at at,
            int up)
{
    const char *name = name_of(f, at.part);

    add_name(to, at, name, pattern_n(name, up));
}

bool
part_is_module(struct part_at *at, const struct model_family *f, int up,
               const char *name)
{
    const char *pattern = name_of(f, at->part);
    const char *end =
        scan(at, pattern, pattern_n(pattern, up), names_short(name));

    return end && !*end;
}

bool
part_find(struct part_at *at, const struct model_family *f, const char *name)
{
    for (int p = 0; p < N_PARTS; p++) {
        *at = (struct part_at){ .part = (enum model_part)p };
        if (part_is_module(at, f, 0, name))
            return true;
    }
    return false;
}

size_t
part_find_stack(struct part_at *at, const struct model_family *f,
                const char *name)
{
    const struct family_stack *stack = family_stack(f);

    for (size_t n = 1; stack && n <= 2; n++) {
        const char *end = str_ends(name, n > 1 ? stack->gate_up : stack->down);
        bool found;
        char *module;

        if (!end || end == name || end[-1] != '.')
            continue;
        module = xstrndup(name, (size_t)(end - name) - 1);
        at->part = n > 1 ? PART_EXPERT_GATE : PART_EXPERT_DOWN;
        found = part_is_module(at, f, 2, module);
        free(module);
        if (found)
            return n;
    }
    return 0;
}

bool
part_in_layer(const struct model_family *f, const char *root, const char *name,
              size_t *layer)
{
    const char *pattern = name_of(f, PART_DOWN);
    size_t n = strlen(root), n_pattern = strcspn(pattern, "}") + 2;
    struct part_at at = { 0 };
    bool yes =
        !strncmp(name, root, n) && scan(&at, pattern, n_pattern, name + n);

    *layer = at.layer;
    return yes;
}

/* ---- sizes ---- */

bool
part_is_in(const struct config *c, enum model_part part, size_t layer)
{
    const struct model_form *f = &c->form;
    bool dense = !c->sparse[layer], gdn = c->mixer[layer] == MIXER_GDN;
    bool split = !gdn && f->qkv == FUSED_NOT;
    const bool has[] = {
        [ALWAYS] = true,
        [TOKENS] = c->vocab_size > 0,
        [LEARNED] = f->learned,
        [PRE_NORM] = f->norm.places & NORM_PRE,
        [MLP_NORM] =
            f->norm.places & NORM_PRE && f->residual != RESIDUAL_ONE_NORM,
        [POST_NORM] = f->norm.places & NORM_POST || f->layer_scale,
        [QK_NORM] = !gdn && f->qk_norm != QK_NONE,
        [MLA] = f->mla,
        [MLA_Q] = f->mla && c->q_rank,
        [SINKS] = f->sinks,
        [Q_WHOLE] = split && !(f->mla && c->q_rank),
        [GDN] = gdn,
        [GDN_FUSED] = gdn && f->fused_gdn,
        [GDN_SPLIT] = gdn && !f->fused_gdn,
        [ATTENDS] = !gdn,
        [SPLIT] = split && !f->mla,
        [FUSED] = !gdn && f->qkv != FUSED_NOT,
        [GATED] = dense && !f->plain_mlp && !f->gate_up,
        [GATE_UP] = dense && f->gate_up,
        [UNGATED] = dense && !f->gate_up,
        [DENSE] = dense,
        [SPARSE] = !dense,
        [WITH_SHARED] = !dense && c->shared_size,
        [SHARED_WEIGHED] = !dense && c->shared_size && f->weighs_shared,
    };

    return has[parts[part].presence];
}

void
part_size(const struct config *c, enum model_part part, size_t *out, size_t *in)
{
    int64_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const struct config_gdn *g = &c->gdn;
    int64_t values = g->n_v_heads * g->v_dim;
    int64_t channels = 2 * g->n_k_heads * g->k_dim + values;
    bool whole = c->form.qk_norm == QK_WHOLE, own = c->form.qk_norm >= QK_OWN;
    const int64_t sizes[] = {
        [NORM] = own && part == PART_Q_NORM   ? c->n_heads
                 : own && part == PART_K_NORM ? c->n_kv_heads
                                              : 1,
        [VOCAB] = c->vocab_size,
        [POSITIONS] = c->max_positions,
        [HIDDEN] = c->hidden_size,
        [HEAD_Q] = whole ? q : c->head_dim,
        [HEAD_K] = whole ? kv : c->head_dim,
        [HEAD_V] = g->v_dim,
        [Q] = c->form.out_gate ? 2 * q : q,
        [KV] = kv,
        [O] = c->n_heads * c->v_head_dim,
        [Q_LOW] = c->q_rank,
        [KV_LOW] = c->kv_rank,
        [KV_ALL] = c->kv_rank + c->rotary_dim,
        [KV_BOTH] = c->n_heads * (c->nope_dim + c->v_head_dim),
        [HEADS] = c->n_heads,
        [QKV] = q + kv + c->n_kv_heads * c->v_head_dim,
        [INNER] = c->intermediate_size,
        [INNER2] = 2 * c->intermediate_size,
        [CHANNELS] = channels,
        [VALUES] = values,
        [QKVZ] = channels + values,
        [VALUE_HEADS] = g->n_v_heads,
        [BA] = 2 * g->n_v_heads,
        [EXPERTS] = c->n_experts,
        [EXPERT] = c->expert_size,
        [SHARED] = c->shared_size,
        [ONE] = 1,
    };

    *out = (size_t)sizes[parts[part].out];
    *in = (size_t)sizes[parts[part].in];
}

bool
part_needs_bias(const struct config *c, enum model_part part)
{
    size_t at = parts[part].bias;

    return at && *(const bool *)((const char *)c + at);
}

/* ---- places ---- */

static void *
place(struct model *m, struct part_at at, bool is_norm)
{
    char *of = (char *)m;
    struct layer *l;

    if ((parts[at.part].in == NORM) != is_norm ||
        at.layer >= (size_t)m->config.n_layers ||
        (!is_norm && !part_is_in(&m->config, at.part, at.layer)))
        return NULL;
    l = &m->layers[at.layer];
    if (at.part >= PART_EXPERT_GATE) {
        if (!l->experts || at.expert >= (size_t)m->config.n_experts)
            return NULL;
        of = (char *)&l->experts[at.expert];
    } else if (at.part >= PART_ATTN_NORM) {
        of = (char *)l;
    }
    return of + parts[at.part].at;
}

struct norm *
part_norm(struct model *m, struct part_at at)
{
    return place(m, at, true);
}

struct linear *
part_linear(struct model *m, struct part_at at)
{
    return place(m, at, false);
}
