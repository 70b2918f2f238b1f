/* SPDX-License-Identifier: ISC */
#include "core/model/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/config_impl.h"
#include "core/str.h"

#define MAX_POSITIONS ((int64_t)1 << 30)

int
js_unsupported(const struct js *js, const char *s, const char *known,
               struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: %s \"%s\" is not supported (%s)",
                   js->file, js->path, s, known);
}

int
config_count(const struct config *c, const struct js *root, const char *key,
             int64_t max, int64_t absent, int64_t *v, struct err *err)
{
    struct js js = js_get(root, family_key(c->family, key));
    struct js other = js_get(root, key);

    *v = absent;
    if (!js_absent(&js) && !js_absent(&other) && !json_equal(js.v, other.v))
        return err_set(err, EX_DATAERR,
                       "%s: %s and %s differ (expected one of them)",
                       root->file, js.path, other.path);
    if (js_absent(&js) && absent && absent <= max)
        return 0;
    return js_i64(&js, 1, max, v, err);
}

int
config_range(const struct js *root, const char *key, double min, double max,
             double *v, struct err *err)
{
    struct js js = js_get(root, key);
    char expected[64];
    double got;

    if (js_absent(&js))
        return 0;
    if (js_f64(&js, &got, err))
        return -1;
    if (!(got >= min && got <= max)) {
        snprintf(expected, sizeof(expected), "a number from %g to %g", min,
                 max);
        return js_bad(&js, expected, err);
    }
    *v = got;
    return 0;
}

static int
refuse_family(const struct js *type, struct err *err)
{
    struct str known = { 0 };

    family_list(&known, false);
    str_adds(&known, "; of images: ");
    family_list(&known, true);
    js_unsupported(type, json_string_value(type->v), known.s, err);
    str_free(&known);
    return -1;
}

/*
 * The row of model_type; a class that architectures names must be of it.  Where
 * model_type is of several models together, *root becomes the text_config of
 * one that is known.
 */
static int
parse_family(struct config *c, struct js *root, struct err *err)
{
    struct js js = js_get(root, "model_type");
    struct js classes = js_get(root, "architectures");
    struct js text = js_get(root, "text_config");
    struct js type = js_get(&text, "model_type");
    struct str known = { 0 };
    const struct model_family *f;
    const char *s;
    size_t n;

    if (js_str(&js, &s, &n, err))
        return -1;
    f = c->family = family_find(s);
    if (js_is(&type, JSON_STRING) && family_has_text(s)) {
        c->family = family_find(json_string_value(type.v));
        c->of = c->family ? xstrdup(s) : NULL;
        *root = text;
        return c->family ? 0 : refuse_family(&type, err);
    }
    if (!f)
        return refuse_family(&js, err);
    c->of = f->is_part ? xstrdup(s) : NULL;
    if (js_absent(&classes) || f->vision) /* heads of images are left out */
        return 0;
    if (!js_is(&classes, JSON_ARRAY))
        return js_bad(&classes, "an array", err);
    if (json_array_size(classes.v) == 0)
        return 0;
    js = js_at(&classes, 0);
    if (js_str(&js, &s, &n, err))
        return -1;
    if (!strcmp(s, f->classes[0]) || !strcmp(s, f->classes[1]))
        return 0;
    str_addf(&known, "%s, %s", f->classes[0], f->classes[1]);
    js_unsupported(&js, s, known.s, err);
    str_free(&known);
    return -1;
}

static int
parse_head_dim(struct config *c, const struct js *root, int64_t absent,
               struct err *err)
{
    struct js head_dim = js_get(root, "head_dim");

    if (js_absent(&head_dim) && !absent && c->hidden_size % c->n_heads)
        return js_bad(&head_dim,
                      "a number, as num_attention_heads does not divide "
                      "hidden_size",
                      err);
    if (config_count(c, root, "head_dim", CONFIG_MAX_HEAD_DIM,
                     absent ? absent : c->hidden_size / c->n_heads,
                     &c->head_dim, err))
        return -1;
    if (c->head_dim % 2 || c->head_dim < 2 || c->head_dim > CONFIG_MAX_HEAD_DIM)
        return err_set(err, EX_DATAERR,
                       "%s: head_dim is %lld (expected an even number up to "
                       "%d)",
                       root->file, (long long)c->head_dim, CONFIG_MAX_HEAD_DIM);
    c->v_head_dim = c->head_dim;
    return 0;
}

/* The sizes; a text_config leaves out what its class has anyway. */
static int
parse_sizes(struct config *c, const struct js *root, struct err *err)
{
    const struct family_sizes none = { 0 };
    const struct family_sizes *d = c->of ? &c->family->sizes : &none;
    struct js kv = js_get(root, "num_key_value_heads");
    int64_t inner;

    if (config_count(c, root, "hidden_size", CONFIG_MAX_WIDTH, d->hidden,
                     &c->hidden_size, err))
        return -1;
    inner = c->form.learned ? 4 * c->hidden_size
            : c->family->experts && c->family->experts->everywhere
                ? 1
                : d->intermediate;
    if (config_count(c, root, "intermediate_size", CONFIG_MAX_WIDTH, inner,
                     &c->intermediate_size, err) ||
        config_count(c, root, "num_hidden_layers", CONFIG_MAX_LAYERS, d->layers,
                     &c->n_layers, err) ||
        config_count(c, root, "vocab_size", CONFIG_MAX_VOCAB, d->vocab,
                     &c->vocab_size, err) ||
        config_count(c, root, "num_attention_heads", CONFIG_MAX_HEADS, d->heads,
                     &c->n_heads, err) ||
        config_count(c, root, "num_key_value_heads", CONFIG_MAX_HEADS,
                     d->kv_heads ? d->kv_heads : c->n_heads, &c->n_kv_heads,
                     err))
        return -1;
    if (c->n_heads % c->n_kv_heads)
        return js_bad(&kv, "a divisor of num_attention_heads", err);
    if (c->form.mla && c->n_heads != c->n_kv_heads)
        return js_bad(&kv, "num_attention_heads: heads have keys of their own",
                      err);
    if (!c->form.mla && parse_head_dim(c, root, d->head_dim, err))
        return -1;
    return config_count(c, root, "max_position_embeddings", MAX_POSITIONS,
                        c->family->max_positions, &c->max_positions, err);
}

static int
parse_word(struct config *c, const struct family_key *k, const struct js *js,
           struct err *err)
{
    struct str known = { 0 };
    const char *s;
    size_t n;

    if (js_absent(js))
        return 0;
    if (js_str(js, &s, &n, err))
        return -1;
    for (int i = 0; k->words[i]; i++) {
        if (!strcmp(s, k->words[i])) {
            if (k->at)
                memcpy((char *)c + k->at, &i, sizeof(i));
            str_free(&known);
            return 0;
        }
        str_addf(&known, "%s%s", i ? ", " : "", k->words[i]);
    }
    js_unsupported(js, s, known.s, err);
    str_free(&known);
    return -1;
}

/* Keys that a family has alone. */
static int
parse_keys(struct config *c, const struct family_key *k, const struct js *root,
           struct err *err)
{
    for (; k && k->key; k++) {
        struct js js = js_get(root, k->key);
        bool flag = k->absent != 0;
        double v = js.v ? 0 : k->absent;
        double nowhere;
        void *to = k->at ? (char *)c + k->at : (char *)&nowhere;

        if (k->kind == KEY_WORD && parse_word(c, k, &js, err))
            return -1;
        if (k->kind == KEY_COUNT) {
            *(int64_t *)to = js.v ? 0 : (int64_t)k->absent;
            if (!js_absent(&js) &&
                js_i64(&js, (int64_t)k->min, (int64_t)k->max, to, err))
                return -1;
        }
        if (k->kind >= KEY_COUNT)
            continue;
        if (k->kind == KEY_NUMBER || k->kind == KEY_INVERSE) {
            if (config_range(root, k->key, k->min, k->max, &v, err))
                return -1;
            *(double *)to = k->kind == KEY_INVERSE && v > 0 ? 1 / v : v;
            continue;
        }
        if (js_bool_or(root, k->key, flag, &flag, err))
            return -1;
        if (k->kind == KEY_ONLY && flag != (k->absent != 0))
            return js_bad(&js, k->absent != 0 ? "true" : "false", err);
        if (k->kind == KEY_FLAG || k->kind == KEY_NOT)
            *(bool *)to = flag != (k->kind == KEY_NOT);
        if (k->kind == KEY_KEEPS && !flag)
            memset(to, 0, sizeof(enum residual)); /* as all enums */
    }
    return 0;
}

/* In Hugging Face's classes a sliding_window of null is none. */
static int
parse_windows(struct config *c, const struct js *root, struct err *err)
{
    const struct model_family *family = c->family;
    struct js js = js_get(root, "sliding_window");
    struct js types = js_get(root, "layer_types");
    struct js first_layer = js_get(root, "max_window_layers");
    int64_t window = 0, first = 0;
    bool by_layer = family->window >= WINDOW_BY_LAYER;
    bool use =
        family->window == WINDOW_ALWAYS || family->window == WINDOW_PERIOD;
    int64_t period = family->period;
    const char *s;
    size_t n;

    c->window = xcalloc((size_t)c->n_layers, sizeof(*c->window));
    if (family->window == WINDOW_NEVER)
        return 0;
    if (!use && js_bool_or(root, "use_sliding_window", false, &use, err))
        return -1;
    if (!js.v) /* only where the class has no default it must be said */
        window = family->absent_window;
    if (use && !window && !js_is(&js, JSON_NULL) &&
        (js.v || family->window >= WINDOW_IF_USED) &&
        js_i64(&js, 1, MAX_POSITIONS, &window, err))
        return -1;
    /* which rotation a layer has follows from its window */
    if (c->form.rope == ROPE_TWO && !window)
        return js_bad(&js, "a number", err);
    if (family->window == WINDOW_LISTED && window && js_absent(&types))
        return js_bad(&types, "an array, as use_sliding_window is true", err);
    if (!by_layer || js_absent(&types)) {
        if (family->window == WINDOW_BY_LAYER && !family->period && window &&
            js_i64(&first_layer, 0, CONFIG_MAX_LAYERS, &first, err))
            return -1;
        if (family->window == WINDOW_PERIOD &&
            config_count(c, root, "sliding_window_pattern", CONFIG_MAX_LAYERS,
                         period, &period, err))
            return -1;
        for (int64_t i = first; i < c->n_layers; i++)
            if (family->window != WINDOW_PERIOD || (i + 1) % period)
                c->window[i] = window;
        return 0;
    }
    /* one name a layer, which says whether its window is on */
    if (config_layer_types(c, &types, err))
        return -1;
    for (int64_t i = 0; i < c->n_layers; i++) {
        js = js_at(&types, (size_t)i);
        if (js_str(&js, &s, &n, err))
            return -1;
        if (!strcmp(s, "full_attention"))
            continue;
        if (strcmp(s, "sliding_attention") != 0)
            return js_unsupported(&js, s, "full_attention, sliding_attention",
                                  err);
        if (!window)
            return js_bad(&js,
                          "full_attention, as use_sliding_window or "
                          "sliding_window is off",
                          err);
        c->window[i] = window;
    }
    return 0;
}

/* A token's experts must be in the groups that are not masked. */
static int
check_groups(const struct router_kind *r, int64_t n, int64_t n_used,
             const struct js *root, struct err *err)
{
    struct js groups = js_get(root, "n_group");
    struct js top = js_get(root, "topk_group");
    int64_t of_group = r->n_groups ? n / r->n_groups : 0;

    if (r->groups == GROUPS_NONE)
        return 0;
    if (of_group * r->n_groups != n ||
        of_group < (r->groups == GROUPS_BEST_TWO ? 2 : 1))
        return js_bad(&groups, "a divisor of the number of experts", err);
    if (r->n_top_groups > r->n_groups || r->n_top_groups * of_group < n_used)
        return js_bad(
            &top, "at most n_group, and enough for num_experts_per_tok", err);
    return 0;
}

int
config_routing(struct config_routing *r, const struct js *root, int64_t most,
               struct err *err)
{
    static const char *const names[] = { "num_experts", "num_local_experts",
                                         "n_routed_experts" };
    struct js used = js_get(root, "num_experts_per_tok");
    struct js type = js_get(root, "model_type");
    const struct family_experts *experts;
    struct config c = { 0 };
    const char *name = "";
    struct js js;
    size_t n, i = 0;

    *r = (struct config_routing){ 0 };
    do
        js = js_get(root, names[i]);
    while (js_absent(&js) && ++i < sizeof(names) / sizeof(*names));
    if (!js_absent(&js) &&
        js_i64(&js, 1, ROUTER_MAX_EXPERTS, &r->n_experts, err))
        return -1;
    if (r->n_experts)
        most = r->n_experts;
    if (!js_absent(&used) && js_i64(&used, 1, most, &r->n_experts_used, err))
        return -1;
    if (!js_absent(&type) && js_str(&type, &name, &n, err))
        return -1;
    c.family = family_find(name);
    experts = c.family ? c.family->experts : NULL;
    if (!experts)
        return 0;
    c.router = experts->router;
    if (parse_keys(&c, experts->keys, root, err) ||
        (r->n_experts &&
         check_groups(&c.router, r->n_experts, r->n_experts_used, root, err)))
        return -1;
    r->known = c.router.groups == GROUPS_NONE || r->n_experts;
    r->router = c.router;
    return 0;
}

static int
parse_experts(struct config *c, const struct js *root, struct err *err)
{
    const struct family_experts *d = c->family->experts;
    struct js no_experts = js_get(root, "mlp_only_layers");
    struct config_routing r;
    int64_t step, layer;

    c->sparse = xcalloc((size_t)c->n_layers, sizeof(*c->sparse));
    if (!d)
        return 0;
    if (config_routing(&r, root, ROUTER_MAX_EXPERTS, err))
        return -1;
    c->n_experts = r.n_experts;
    c->router = r.router;
    if ((!c->n_experts &&
         config_count(c, root, "num_experts", ROUTER_MAX_EXPERTS, d->n,
                      &c->n_experts, err)) ||
        config_count(c, root, "num_experts_per_tok", c->n_experts, d->n_used,
                     &c->n_experts_used, err) ||
        check_groups(&c->router, c->n_experts, c->n_experts_used, root, err) ||
        config_count(c, root, "moe_intermediate_size", CONFIG_MAX_WIDTH, 0,
                     &c->expert_size, err) ||
        config_count(c, root, "decoder_sparse_step", CONFIG_MAX_LAYERS, 1,
                     &step, err))
        return -1;
    if (c->n_shared)
        c->shared_size = c->n_shared * c->expert_size;
    for (int64_t i = step - 1; i < c->n_layers; i += step)
        c->sparse[i] = i >= c->first_sparse;
    if (js_absent(&no_experts))
        return 0;
    if (!js_is(&no_experts, JSON_ARRAY))
        return js_bad(&no_experts, "an array", err);
    for (size_t i = 0; i < json_array_size(no_experts.v); i++) {
        struct js js = js_at(&no_experts, i);

        if (js_i64(&js, 0, c->n_layers - 1, &layer, err))
            return -1;
        c->sparse[layer] = false;
    }
    return 0;
}

static int
token_id(const struct js *js, int32_t *id, struct err *err)
{
    int64_t v;

    if (js_i64(js, 0, INT32_MAX, &v, err))
        return -1;
    *id = (int32_t)v;
    return 0;
}

int
config_ends(struct config *c, const struct js *root, struct err *err)
{
    struct js bos = js_get(root, "bos_token_id");
    struct js eos = js_get(root, "eos_token_id");
    size_t n;

    if (!js_absent(&bos) && token_id(&bos, &c->bos, err))
        return -1;
    if (js_absent(&eos))
        return 0;
    c->n_eos = 1;
    if (!js_is(&eos, JSON_ARRAY))
        return token_id(&eos, &c->eos[0], err);
    n = json_array_size(eos.v);
    if (n > CONFIG_MAX_EOS)
        return err_set(err, EX_DATAERR,
                       "%s: eos_token_id has %zu ids (expected at most %d)",
                       eos.file, n, CONFIG_MAX_EOS);
    for (c->n_eos = 0; c->n_eos < n; c->n_eos++) {
        struct js js = js_at(&eos, c->n_eos);

        if (token_id(&js, &c->eos[c->n_eos], err))
            return -1;
    }
    return 0;
}

/* Which of the tables of rotations a layer has. */
static int
parse_rotations(struct config *c, const struct js *root, struct err *err)
{
    struct js list = js_get(root, "no_rope_layers");
    struct js types = js_get(root, "layer_types");
    int64_t period = c->family->period, v;

    c->rotation = xcalloc((size_t)c->n_layers, sizeof(*c->rotation));
    if (c->form.rope == ROPE_LISTED &&
        config_count(c, root, "no_rope_layer_interval", CONFIG_MAX_LAYERS,
                     period, &period, err))
        return -1;
    for (int64_t i = 0; i < c->n_layers; i++) {
        bool none =
            c->form.learned || (c->form.rope == ROPE_WINDOWED && !c->window[i]);

        if (c->form.rope == ROPE_LISTED && js_absent(&list)) {
            none = (i + 1) % period == 0;
        } else if (c->form.rope == ROPE_LISTED) {
            struct js js = js_at(&list, (size_t)i);

            if (js_i64(&js, 0, 1, &v, err))
                return -1;
            none = v == 0;
        }
        if (!none && c->form.rope == ROPE_LISTED && js_absent(&types))
            c->window[i] = 0;
        c->rotation[i] =
            none ? ROTATION_NONE : c->form.rope == ROPE_TWO && c->window[i];
    }
    return rope_parse(c->rope, root, c, err);
}

int
config_act(struct config *c, const struct js *root, struct err *err)
{
    static const struct {
        const char *name;
        enum act act;
    } acts[] = {
        { "silu", ACT_SILU },          { "gelu_pytorch_tanh", ACT_GELU_TANH },
        { "gelu_new", ACT_GELU_TANH }, { "gelu_fast", ACT_GELU_TANH },
        { "gelu", ACT_GELU_ERF },      { "relu", ACT_RELU },
        { "swish", ACT_SILU },         { "quick_gelu", ACT_QUICK_GELU },
    };
    struct js js = js_get(root, family_key(c->family, "hidden_act"));
    const char *name;
    size_t n;

    if (js_absent(&js))
        return 0;
    if (js_str(&js, &name, &n, err))
        return -1;
    for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++)
        if (!strcmp(name, acts[i].name)) {
            c->form.act = acts[i].act;
            return 0;
        }
    return js_unsupported(
        &js, name, "silu, gelu, gelu_pytorch_tanh, relu, quick_gelu", err);
}

static int
parse_model(struct config *c, const struct js *file, struct err *err)
{
    struct js root = *file;
    double eps, stretched;
    bool tied;

    if (!js_is(&root, JSON_OBJECT))
        return js_bad(&root, "an object", err);
    if (quantization_parse(&c->quantization, file, err) ||
        parse_family(c, &root, err))
        return -1;
    c->form = c->family->form;
    c->bos = -1;
    if (c->family->vision)
        return config_vision(c, file, err);
    eps = c->family->norm_eps > 0 ? c->family->norm_eps : 1e-6;
    tied = c->family->tied;
    if (parse_sizes(c, &root, err) ||
        config_range(&root, family_key(c->family, "rms_norm_eps"), 0, 1, &eps,
                     err) ||
        config_act(c, &root, err) ||
        parse_keys(c, c->family->keys, &root, err) ||
        js_bool_or(file, "tie_word_embeddings", tied, &tied, err) ||
        js_bool_or(&root, "tie_word_embeddings", tied, &c->tied, err) ||
        config_mixers(c, &root, err) || parse_windows(c, &root, err) ||
        parse_rotations(c, &root, err) || parse_experts(c, &root, err))
        return -1;
    c->norm_eps = (float)eps;
    for (int64_t i = 0; i < c->n_layers; i++) {
        int64_t width = c->sparse[i] ? c->expert_size : c->intermediate_size;

        if (c->sparse[i] && c->shared_size > width)
            width = c->shared_size;
        c->n_sparse += c->sparse[i];
        c->widest_mlp = width > c->widest_mlp ? width : c->widest_mlp;
    }
    /* YaRN's context is the original one times the factor; files of Qwen keep
     * the unstretched length in max_position_embeddings */
    stretched = (double)c->rope->original_max_positions * c->rope->factor;
    if (c->rope->type == ROPE_YARN && stretched > (double)c->max_positions)
        c->max_positions = (int64_t)fmin(stretched, (double)MAX_POSITIONS);
    return config_ends(c, file, err) || config_ends(c, &root, err) ? -1 : 0;
}

int
config_load(struct config *config, const char *dir, struct err *err)
{
    struct config_file f;
    struct str generation_name = { 0 };
    json_t *generation = NULL;
    struct js sampler;
    struct stat st;
    int rc = config_file_open(&f, dir, err);

    *config = (struct config){ 0 };
    if (rc < 0)
        goto out;
    str_addf(&generation_name, "%.*sgeneration_config.json",
             (int)(f.path.n - strlen("config.json")), f.path.s);
    /* a dangling link is there: loading it fails */
    if (!lstat(generation_name.s, &st) || errno != ENOENT) {
        generation = js_load(generation_name.s, err);
        rc = generation ? 0 : -1;
        if (rc < 0)
            goto out;
    }
    sampler = js_root(generation, generation_name.s);
    rc = parse_model(config, &f.root, err);
    if (rc == 0 && generation && !js_is(&sampler, JSON_OBJECT))
        rc = js_bad(&sampler, "an object", err);
    if (rc == 0)
        rc = config_sampler(config, &sampler, err);
    if (rc < 0)
        config_free(config);
out:
    json_decref(generation);
    str_free(&generation_name);
    config_file_close(&f);
    return rc;
}

void
config_free(struct config *config)
{
    for (size_t i = 0; i < config->n_passed_over; i++)
        free(config->passed_over[i]);
    free(config->passed_over);
    free(config->sparse);
    free(config->mixer);
    free(config->nth);
    free(config->window);
    free(config->rotation);
    for (size_t i = 0; i < CONFIG_MAX_ROPES; i++)
        free(config->rope[i].factors);
    quantization_free(&config->quantization);
    free(config->of);
    *config = (struct config){ 0 };
}
