/* SPDX-License-Identifier: ISC */
/* config.json of vision encoders. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/config_impl.h"

#define MAX_IMAGE     8192
#define MAX_REGISTERS 1024

/* image_size, a number or [height, width]. */
static int
parse_image(struct config *c, const struct js *root, struct err *err)
{
    struct js js = js_get(root, "image_size");
    struct js height = js_at(&js, 0), width = js_at(&js, 1);
    struct config_vision *v = &c->vision;
    int64_t channels, smaller_side;

    v->height = c->family->vision->image_size;
    if (js_is(&js, JSON_ARRAY)) {
        if (json_array_size(js.v) != 2)
            return js_bad(&js, "a number, or two", err);
        if (js_i64(&height, 1, MAX_IMAGE, &v->height, err) ||
            js_i64(&width, 1, MAX_IMAGE, &v->width, err))
            return -1;
    } else {
        if (!js_absent(&js) && js_i64(&js, 1, MAX_IMAGE, &v->height, err))
            return -1;
        v->width = v->height;
    }
    smaller_side = v->height < v->width ? v->height : v->width;
    if (config_count(c, root, "patch_size", smaller_side,
                     c->family->vision->patch_size, &v->patch, err) ||
        config_count(c, root, "num_channels", 1024, 3, &channels, err))
        return -1;
    js = js_get(root, "num_channels");
    return channels == 3 ? 0 : js_bad(&js, "3", err);
}

/* The width of the MLP, and its form. */
static int
parse_mlp(struct config *c, const struct js *root, struct err *err)
{
    bool swiglu = false, gated = false;
    bool by_ratio = c->form.layer_scale && c->form.learned; /* DINOv2 */
    struct js js = js_get(root, "mlp_ratio");
    double ratio = 4;

    if (!by_ratio) {
        if (js_bool_or(root, "use_gated_mlp", false, &gated, err))
            return -1;
        c->form.plain_mlp = c->form.learned || !gated;
        return config_count(c, root, "intermediate_size", CONFIG_MAX_WIDTH,
                            c->family->sizes.intermediate,
                            &c->intermediate_size, err);
    }
    if (js_bool_or(root, "use_swiglu_ffn", false, &swiglu, err) ||
        config_range(root, "mlp_ratio", 1e-3, 1024, &ratio, err))
        return -1;
    c->intermediate_size = (int64_t)((double)c->hidden_size * ratio);
    if (c->intermediate_size < 1 || c->intermediate_size > CONFIG_MAX_WIDTH)
        return js_bad(&js, "a ratio that makes 1 to 1048576 rows", err);
    if (swiglu) {
        /* int(x 2 / 3), rounded up to a multiple of 8, as Python has it */
        c->intermediate_size =
            ((int64_t)((double)(c->intermediate_size * 2) / 3) + 7) / 8 * 8;
        c->family = family_next(c->family);
        c->form = c->family->form;
    }
    return 0;
}

/* The object that is this model's. */
static int
find_root(const struct config *c, struct js *root, struct err *err)
{
    struct js js = js_get(root, "vision_config_dict");

    if (!c->family->vision->whole)
        return 0;
    if (js_absent(&js))
        js = js_get(root, "vision_config");
    *root = js;
    return js_absent(&js) || js_is(&js, JSON_OBJECT)
               ? 0
               : js_bad(&js, "an object", err);
}

int
config_vision(struct config *c, const struct js *file, struct err *err)
{
    const struct family_sizes *d = &c->family->sizes;
    struct config_vision *v = &c->vision;
    struct js root = *file, registers, heads, pooler;
    struct js rope = js_get(file, "rope_parameters");
    double eps = c->family->norm_eps > 0 ? c->family->norm_eps : 1e-6;
    size_t n;

    if (find_root(c, &root, err) ||
        config_count(c, &root, "hidden_size", CONFIG_MAX_WIDTH, d->hidden,
                     &c->hidden_size, err) ||
        config_count(c, &root, "num_hidden_layers", CONFIG_MAX_LAYERS,
                     d->layers, &c->n_layers, err) ||
        config_count(c, &root, "num_attention_heads", CONFIG_MAX_HEADS,
                     d->heads, &c->n_heads, err) ||
        parse_image(c, &root, err) || parse_mlp(c, &root, err) ||
        config_range(&root, "layer_norm_eps", 0, 1, &eps, err) ||
        js_bool_or(&root, "vision_use_head", true, &v->has_head, err))
        return -1;
    heads = js_get(&root, "num_attention_heads");
    pooler = js_get(&root, "pooler_act");
    c->n_kv_heads = c->n_heads;
    c->head_dim = c->v_head_dim = c->hidden_size / c->n_heads;
    if (c->hidden_size % c->n_heads || c->head_dim > CONFIG_MAX_HEAD_DIM ||
        (!c->form.learned && c->head_dim % 4))
        return js_bad(&heads,
                      c->form.learned
                          ? "a divisor of hidden_size"
                          : "a divisor of hidden_size, heads of 4 i numbers",
                      err);
    if (c->family->vision->pool == POOL_TANH && !js_absent(&pooler) &&
        (!js_is(&pooler, JSON_STRING) ||
         strcmp(json_string_value(pooler.v), "tanh")))
        return js_bad(&pooler, "tanh", err);
    /* SwiGLU has its own */
    if (!c->form.gate_up && config_act(c, &root, err))
        return -1;
    v->n_registers = c->family->vision->n_registers;
    registers = js_get(&root, "num_register_tokens");
    if (!js_absent(&registers) && (v->n_registers > 0 || !c->form.learned) &&
        js_i64(&registers, 0, MAX_REGISTERS, &v->n_registers, err))
        return -1;
    c->norm_eps = (float)eps;
    c->widest_mlp = c->intermediate_size;
    c->max_positions = INT32_MAX;
    c->rotary_dim = c->form.learned ? 0 : c->head_dim;
    c->rope->theta = c->family->theta;
    c->rope->attention_factor = 1;
    if (config_range(&root, "rope_theta", 1e-3, 1e9, &c->rope->theta, err) ||
        config_range(&rope, "rope_theta", 1e-3, 1e9, &c->rope->theta, err))
        return -1;
    n = (size_t)c->n_layers;
    c->window = xcalloc(n, sizeof(*c->window));
    c->sparse = xcalloc(n, sizeof(*c->sparse));
    c->rotation = xcalloc(n, sizeof(*c->rotation));
    if (c->form.learned)
        memset(c->rotation, ROTATION_NONE, n);
    return config_mixers(c, &root, err);
}
