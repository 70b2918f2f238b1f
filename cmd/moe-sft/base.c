/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/peft.h"
#include "core/format/st.h"
#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/bind.h"
#include "core/model/config.h"
#include "core/model/config_file.h"
#include "core/model/model.h"
#include "core/model/names.h"
#include "core/model/parts.h"

#define MAX_LAYERS (1 << 12) /* as of a model's config.json */

const char *
base_word(enum base_matrix m)
{
    return part_word(NULL, PART_EXPERT_GATE + (int)m);
}

/* What is found of gate_proj tensors, of which one layer's are wanted. */
struct search {
    const struct model_family *family; /* or NULL */
    const struct st_tensor *tensor;    /* the first of the layer */
    struct expert_name name;
    const char *suffix; /* of its name */
    bool joined;        /* it has gate and up of all experts */
    int64_t last;       /* highest number of an expert */
    size_t n_prefixes;  /* different ones, of the layer or of any */
    const char *other;  /* a tensor of another prefix */
    int64_t low, high;  /* layers that are found */
    int64_t end;        /* the first layer that predicts a token more */
};

/* What follows a tensor's name up to the end of 'word', if that is all but a
 * suffix. */
static const char *
suffix_of(struct expert_name *name, const struct st_tensor *t, const char *word)
{
    static const char *const suffixes[] = { "", ".weight", ".weight_packed",
                                            ".qweight", "_blocks" };

    for (const char *p = word ? t->name : NULL; p && (p = strstr(p, word));
         p++) {
        const char *end = p + strlen(word);

        for (size_t i = 0; i < 5; i++)
            if (!strcmp(end, suffixes[i]) && names_expert(name, t, p))
                return end;
    }
    return NULL;
}

static void
search_start(struct search *s, const struct model_family *family,
             const struct stdir *dir)
{
    struct expert_name name;

    *s = (struct search){ family, .last = -1, .low = -1, .high = -1,
                          .end = INT64_MAX };
    for (size_t i = 0; i < dir->n_tensors; i++)
        if (names_expert(&name, dir->tensors[i].t, "eh_proj.weight") &&
            name.layer >= 0 && name.layer < s->end)
            s->end = name.layer;
}

static void
look_at(struct search *s, const struct st_tensor *t, int64_t layer)
{
    const struct family_stack *stack =
        s->family ? family_stack(s->family) : NULL;
    struct expert_name name;
    const char *suffix = suffix_of(&name, t, base_word(BASE_GATE));
    bool joined = false;

    if (!suffix && s->family)
        suffix = suffix_of(&name, t, part_word(s->family, PART_EXPERT_GATE));
    if (!suffix && stack) {
        suffix = suffix_of(&name, t, stack->gate_up);
        joined = true;
    }
    /* a layer without experts has a gate_proj, too: of two dims */
    if (!suffix ||
        (name.expert < 0 && t->n_dims != (*suffix == '_' ? 4 : 3) &&
         name.prefix_n > 0) ||
        (joined && ((*suffix && *suffix != '_') || name.layer < 0)) ||
        name.layer >= s->end || !strncmp(t->name, "mtp.", 4))
        return;
    if (name.layer >= 0) {
        s->low = s->low < 0 || name.layer < s->low ? name.layer : s->low;
        s->high = name.layer > s->high ? name.layer : s->high;
    }
    if (layer >= 0 && name.layer >= 0 && name.layer != layer)
        return;
    if (!s->tensor) {
        s->tensor = t;
        s->name = name;
        s->suffix = suffix;
        s->joined = joined;
        s->n_prefixes = 1;
        s->last = name.expert;
    } else if (s->name.prefix_n == name.prefix_n &&
               !memcmp(s->tensor->name, t->name, name.prefix_n)) {
        s->last = name.expert > s->last ? name.expert : s->last;
    } else {
        s->n_prefixes++;
        s->other = t->name;
    }
}

void
base_tensor_name(const struct base *base, enum base_matrix m, size_t expert,
                 struct str *name)
{
    const struct family_stack *stack =
        base->joined ? family_stack(base->family) : NULL;

    str_adds(name, base->prefix);
    if (base->joined) {
        str_adds(name, m == BASE_DOWN ? stack->down : stack->gate_up);
        return;
    }
    if (!base->stacked)
        str_addf(name, "%zu.", expert);
    str_addf(name, "%s%s",
             base->stacked ? base_word(m)
                           : part_word(base->family, PART_EXPERT_GATE + (int)m),
             base->suffix);
}

/* ---- tensors ---- */

/* The tensor of a stack, or the one with 'tail' after its name. */
static const struct stdir_tensor *
find(const struct base *base, enum base_matrix m, const char *tail,
     struct err *err)
{
    struct str name = { 0 };
    const struct stdir_tensor *t;

    base_tensor_name(base, m, 0, &name);
    str_adds(&name, tail);
    t = stdir_find(&base->dir, name.s);
    if (!t)
        st_missing(base->path, name.s, err);
    str_free(&name);
    return t;
}

/* Stacked weights may be what quantize writes: I8. */
static int
want_stacked(const struct base *base, const struct st_tensor *t,
             const struct st_want *want, struct err *err)
{
    return t->dtype == DT_I8 ? st_want_shape(base->path, t, want, err)
                             : st_want(base->path, t, want, err);
}

/* What an expert's matrix of a stack has besides, [experts, rows], in f32. */
static float *
read_rows(struct base *base, enum base_matrix m, const char *tail,
          struct err *err)
{
    size_t n = m == BASE_DOWN ? base->hidden : base->intermediate;
    const struct st_want want = { .n_dims = 2,
                                  .shape = { base->n_experts, n } };
    const struct stdir_tensor *t = find(base, m, tail, err);
    float *to;

    if (!t || st_want(base->path, t->t, &want, err) < 0)
        return NULL;
    to = mem_try(base->n_experts, n * sizeof(float), t->t->name, err);
    if (!to)
        return NULL;
    base->owned =
        xrealloc(base->owned, base->n_owned + 1, sizeof(*base->owned));
    base->owned[base->n_owned++] = to;
    cvt_to_f32(to, st_data(t->st, t->t), t->t->dtype, base->n_experts * n);
    for (size_t e = 0; e < base->n_experts; e++)
        if (!dtype_finite(to + e * n, DT_F32, n)) {
            err_set(err, EX_DATAERR, "%s: %s of expert %zu has NaN or Inf",
                    base->path, t->t->name, e);
            return NULL;
        }
    return to;
}

/* The experts' matrices [n, k] of stacked weights. */
static int
bind_stack(struct base *base, enum base_matrix m, size_t n, size_t k,
           struct err *err)
{
    const struct st_want stack = { .n_dims = 3,
                                   .shape = { base->n_experts, n, k } };
    struct weight *to = base->matrices + m * base->n_experts;
    const struct stdir_tensor *t = find(base, m, "", err);

    if (!t || want_stacked(base, t->t, &stack, err) < 0)
        return -1;
    if (t->t->dtype == DT_I8 &&
        !(base->scale[m] = read_rows(base, m, "_scale", err)))
        return -1;
    for (size_t e = 0; e < base->n_experts; e++)
        to[e] = (struct weight){ st_data(t->st, t->t), t->t->dtype, k,
                                 base->scale[m], .row = e * n };
    return 0;
}

/* The biases of stacked weights, where they have any. */
static int
find_biases(struct base *base, struct err *err)
{
    if (!base->stacked || base->act == ACT_SILU)
        return 0;
    base->bias = xcalloc(BASE_N * base->n_experts, sizeof(*base->bias));
    for (enum base_matrix m = 0; m < BASE_N; m++) {
        size_t n = m == BASE_DOWN ? base->hidden : base->intermediate;

        const float *bias = read_rows(base, m, "_bias", err);

        if (!bias)
            return -1;
        for (size_t e = 0; e < base->n_experts; e++)
            base->bias[m * base->n_experts + e] = bias + e * n;
    }
    return 0;
}

/* The layer's router, where config.json has said which kind it is. */
static int
bind_router(struct base *base, struct binder *b, size_t layer)
{
    const struct part_at at = { PART_ROUTER, layer, 0 };
    const struct linear *l = &b->model->layers[layer].router;
    int found;

    if (!base->routes)
        return 0;
    if (bind_linear(b, at))
        return -1;
    base->router = (struct gemm_matrix){ .weight = l->w,
                                         .n = base->n_experts,
                                         .k = base->hidden };
    base->router_bias = l->bias;
    if (!base->routing.corrected)
        return 0;
    bind_name(b, at, ".e_score_correction_bias");
    found = bind_bias(b, base->n_experts, &base->correction);
    return found ? found : bind_missing(b, b->name.s, "");
}

/* A layer's experts and router, as those of a model that has no more than them.
 */
static int
bind_layer_of(struct base *base, struct err *err)
{
    size_t layer = (size_t)base->layer, e = base->n_experts;
    struct model m = {
        .dir = base->dir,
        .layers = xcalloc(layer + 1, sizeof(*m.layers)),
        .config = { .family = base->family,
                    .n_layers = base->layer + 1,
                    .hidden_size = (int64_t)base->hidden,
                    .expert_size = (int64_t)base->intermediate,
                    .n_experts = (int64_t)e,
                    .form.router_bias =
                        base->family && base->family->form.router_bias,
                    .sparse = xcalloc(layer + 1, sizeof(*m.config.sparse)),
                    .mixer = xcalloc(layer + 1, sizeof(*m.config.mixer)),
                    .quantization = base->packed },
    };
    struct binder b = { .model = &m, .by_rows = true, .err = err };
    struct mlp *experts = xcalloc(e, sizeof(*experts));
    const char *at = strstr(base->prefix, "layers.");
    char *root = xstrndup(base->prefix, at ? (size_t)(at - base->prefix) : 0);
    int rc;

    b.root = root;
    b.used = xcalloc(base->dir.n_tensors, sizeof(*b.used));
    m.layers[layer].experts = experts;
    m.config.sparse[layer] = true;
    rc = base->joined ? bind_stacks(&b, layer) : 1;
    if (rc == 0)
        bind_missing(&b, b.name.s, "");
    for (size_t i = 0; rc > 0 && !base->joined && i < BASE_N * e; i++) {
        struct part_at part = { PART_EXPERT_GATE + i / e, layer, i % e };

        if (bind_linear(&b, part))
            rc = -1;
    }
    if (rc > 0)
        rc = bind_router(base, &b, layer) < 0 ? -1 : 1;
    for (size_t i = 0; rc > 0 && i < e; i++) {
        base->matrices[i] = experts[i].gate.w;
        base->matrices[e + i] = experts[i].up.w;
        base->matrices[2 * e + i] = experts[i].down.w;
    }
    base->memory = m.packed;
    base->owned = m.owned;
    base->n_owned = m.n_owned;
    if (rc > 0 && experts->gate.bias)
        base->bias = xcalloc(BASE_N * e, sizeof(*base->bias));
    for (size_t i = 0; rc > 0 && base->bias && i < BASE_N * e; i++) {
        const struct mlp *x = &experts[i % e];
        const struct linear *of[] = { &x->gate, &x->up, &x->down };
        const struct linear *l = of[i / e];

        base->bias[i] = l->bias;
        if (!dtype_finite(l->bias, DT_F32, l->out))
            rc = err_set(err, EX_DATAERR,
                         "%s: the bias of %s of expert %zu has NaN or Inf",
                         base->path, base_word((enum base_matrix)(i / e)),
                         i % e);
    }
    str_free(&b.name);
    free(b.used);
    free(root);
    free(experts);
    free(m.config.mixer);
    free(m.config.sparse);
    free(m.layers);
    return rc > 0 ? 0 : -1;
}

/* ---- sizes ---- */

/* One layer's experts must have been found. */
static int
check_found(const struct base *base, const struct search *s, int64_t layer,
            struct err *err)
{
    if (s->n_prefixes > 1 && s->low == s->high)
        return err_set(err, EX_DATAERR, "%s: has experts twice: %s and %s",
                       base->path, s->tensor->name, s->other);
    if (s->n_prefixes > 1)
        return err_set(err, TU_USAGE,
                       "%s: has experts of layers %lld to %lld: --layer N "
                       "names one",
                       base->path, (long long)s->low, (long long)s->high);
    if (!s->tensor && s->high >= 0)
        return err_set(err, EX_DATAERR,
                       "%s: has no experts of layer %lld (of layers %lld to "
                       "%lld)",
                       base->path, (long long)layer, (long long)s->low,
                       (long long)s->high);
    if (!s->tensor)
        return err_set(
            err, EX_DATAERR,
            "%s: has no tensor gate_proj, nor "
            "model.layers.N.mlp.experts.E.gate_proj.weight%s",
            base->path,
            stdir_find(&base->dir, moe_lora_names[0])
                ? "; it is an adapter, which -l takes"
            : names_tensor(&base->dir, "model.layers.0.mlp.gate_proj", "weight")
                ? ": its layers have no experts (tune, merge and hf-infer "
                  "take it as a whole model)"
                : "");
    return 0;
}

/* Finds the layer, and its sizes; where it could be several, 'err' names the
 * first and last. */
static int
read_sizes(struct base *base, int64_t layer, struct err *err)
{
    static const struct st_want stack = {
        .n_dims = 3,
        .shape = { ST_OPEN, ST_OPEN, ST_OPEN },
        .open = "experts, intermediate, hidden",
    };
    static const struct st_want one = {
        .n_dims = 2,
        .shape = { ST_OPEN, ST_OPEN },
        .open = "intermediate, hidden",
    };
    struct search s;
    const struct st_tensor *t;
    struct form_tensors form;
    const uint64_t *last;
    char *module;
    int packed;
    bool by_k;

    search_start(&s, base->family, &base->dir);
    for (size_t i = 0; i < base->dir.n_tensors; i++)
        look_at(&s, base->dir.tensors[i].t, layer);
    if (check_found(base, &s, layer, err))
        return -1;
    t = s.tensor;
    base->joined = s.joined;
    base->stacked = s.name.expert < 0 && !s.joined;
    base->prefix = xstrndup(t->name, s.name.prefix_n);
    base->layer = s.name.layer;
    module = xstrndup(t->name, t->name_n - strlen(s.suffix));
    packed = form_look(&form, &base->packed, &base->dir, module, err);
    free(module);
    if (packed < 0 ||
        (!packed && (base->stacked ? want_stacked(base, t, &stack, err)
                     : s.joined    ? st_want(base->path, t, &stack, err)
                                   : st_want(base->path, t, &one, err))))
        return -1;
    base->suffix = packed ? ".weight" : s.suffix;
    last = t->shape + t->n_dims;
    by_k = base->joined && family_stack(base->family)->in_out;
    base->hidden = packed ? form.in : last[by_k ? -2 : -1];
    base->intermediate =
        (packed ? form.out : last[by_k ? -1 : -2]) / (base->joined ? 2 : 1);
    base->type = packed ? form.group->type : NULL;
    base->n_experts = s.name.expert < 0 ? t->shape[0] : (size_t)s.last + 1;
    /* an empty tensor's other sizes may be anything */
    if (t->n_elements == 0)
        return err_set(err, EX_DATAERR, "%s: %s is empty", base->path, t->name);
    if (!base->stacked && base->layer < 0)
        return err_set(err, EX_DATAERR, "%s: %s: is of no layer (layers.N.)",
                       base->path, t->name);
    if (!base->stacked && base->layer >= MAX_LAYERS)
        return err_set(
            err, EX_DATAERR, "%s: %s: is of layer %lld (expected at most %d)",
            base->path, t->name, (long long)base->layer, MAX_LAYERS - 1);
    if (base->n_experts > MOE_MAX_EXPERTS)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu experts (expected at most %d)", base->path,
                       base->n_experts, MOE_MAX_EXPERTS);
    return 0;
}

static int
open_tensors(struct stdir *dir, const char *path, struct err *err)
{
    struct str peft = { 0 }, config = { 0 };
    bool is_peft;

    str_addf(&peft, "%s/" PEFT_CONFIG, path);
    str_addf(&config, "%s/config.json", path);
    is_peft = access(peft.s, F_OK) == 0 && file_missing(config.s);
    str_free(&peft);
    str_free(&config);
    if (is_peft)
        return stdir_check(path, true, err); /* an adapter */
    return stdir_open(dir, path, err) < 0 ? -1 : stdir_map(dir, err);
}

int
base_open(struct base *base, const char *path, int64_t layer, struct err *err)
{
    const char *type;
    size_t h, i, e;

    *base = (struct base){ .path = path, .layer = -1 };
    if (open_tensors(&base->dir, path, err) < 0 ||
        config_family(&base->family, path, err) < 0 ||
        quantization_load(&base->packed, path, err) < 0)
        goto fail;
    if (!base->family && base->dir.n_files == 1 && /* as quantize writes it */
        (type = st_meta(base->dir.files, "model_type")))
        base->family = family_find(type);
    if (base->family && base->family->experts)
        base->act = base->family->form.act;
    if (read_sizes(base, layer, err) < 0 || base_routing(base, err) < 0)
        goto fail;
    h = base->hidden;
    i = base->intermediate;
    e = base->n_experts;
    base->matrices = xcalloc(BASE_N * e, sizeof(*base->matrices));
    if (!base->stacked ? bind_layer_of(base, err) < 0
                       : bind_stack(base, BASE_GATE, i, h, err) < 0 ||
                             bind_stack(base, BASE_UP, i, h, err) < 0 ||
                             bind_stack(base, BASE_DOWN, h, i, err) < 0 ||
                             find_biases(base, err) < 0)
        goto fail;
    form_memory_rest(&base->memory);
    base->weights = (struct moe_base){ .gate = base->matrices,
                                       .up = base->matrices + e,
                                       .down = base->matrices + 2 * e,
                                       .bias = base->bias };
    if (base->layer < 0)
        base->layer = layer;
    return 0;
fail:
    base_close(base);
    return -1;
}

void
base_close(struct base *base)
{
    stdir_close(&base->dir);
    for (size_t i = 0; i < base->n_owned; i++)
        free(base->owned[i]);
    free(base->owned);
    free(base->bias);
    free(base->matrices);
    free(base->prefix);
    form_memory_free(&base->memory);
    quantization_free(&base->packed);
    *base = (struct base){ 0 };
}

struct gemm_matrix
base_weights(const struct base *base, enum base_matrix m, size_t expert)
{
    size_t n = base->intermediate, k = base->hidden;

    return (struct gemm_matrix){
        .weight = base->matrices[m * base->n_experts + expert],
        .n = m == BASE_DOWN ? k : n,
        .k = m == BASE_DOWN ? n : k,
    };
}

size_t
base_nbytes(const struct base *base)
{
    struct weight_piece piece[WEIGHT_PIECES];
    size_t all = 0, shared; /* rows of gate and up may be one */

    for (size_t i = 0; i < BASE_N * base->n_experts; i++) {
        const struct gemm_matrix w = base_weights(
            base, (enum base_matrix)(i / base->n_experts), i % base->n_experts);

        shared = w.weight.ld == 2 * w.k ? 2 : 1;
        for (size_t n = weight_pieces(piece, &w.weight, w.n, w.k); n-- > 0;)
            all += piece[n].nbytes / shared;
        all += w.weight.scale ? w.n * sizeof(float) : 0;
    }
    return all;
}
