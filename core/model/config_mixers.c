/* SPDX-License-Identifier: ISC */
/* What mixes a layer's tokens. */
#include <string.h>

#include "core/mem.h"
#include "core/model/config_impl.h"

int
config_layer_types(const struct config *c, const struct js *types,
                   struct err *err)
{
    if (!js_is(types, JSON_ARRAY))
        return js_bad(types, "an array", err);
    if (json_array_size(types->v) == (size_t)c->n_layers)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: %s has %zu names (expected num_hidden_layers, %lld)",
                   types->file, types->path, json_array_size(types->v),
                   (long long)c->n_layers);
}

/* The sizes of Gated DeltaNet, and which layers are it: by layer_types, or all
 * but every so many-th. */
static int
parse_gdn(struct config *c, const struct js *root, struct err *err)
{
    struct config_gdn *g = &c->gdn;
    struct js heads = js_get(root, "linear_num_value_heads");
    struct js types = js_get(root, "layer_types");
    struct js act = js_get(root, "hidden_act");
    int64_t period;
    const char *s;
    size_t n;

    if (config_count(c, root, "linear_num_key_heads", CONFIG_MAX_HEADS, 16,
                     &g->n_k_heads, err) ||
        config_count(c, root, "linear_num_value_heads", CONFIG_MAX_HEADS, 32,
                     &g->n_v_heads, err) ||
        config_count(c, root, "linear_key_head_dim", CONFIG_MAX_HEAD_DIM, 128,
                     &g->k_dim, err) ||
        config_count(c, root, "linear_value_head_dim", CONFIG_MAX_HEAD_DIM, 128,
                     &g->v_dim, err) ||
        config_count(c, root, "linear_conv_kernel_dim", CONFIG_MAX_KERNEL, 4,
                     &g->kernel, err) ||
        config_count(c, root, "full_attention_interval", CONFIG_MAX_LAYERS, 4,
                     &period, err))
        return -1;
    if (c->form.act != ACT_SILU) /* the convolution's, too */
        return js_bad(&act, "silu", err);
    if (g->n_v_heads % g->n_k_heads)
        return js_bad(&heads, "a multiple of linear_num_key_heads", err);
    if (!js_absent(&types) && config_layer_types(c, &types, err))
        return -1;
    for (int64_t i = 0; i < c->n_layers; i++) {
        struct js js = js_at(&types, (size_t)i);

        c->mixer[i] = (i + 1) % period ? MIXER_GDN : MIXER_ATTENTION;
        if (js_absent(&types))
            continue;
        if (js_str(&js, &s, &n, err))
            return -1;
        c->mixer[i] =
            !strcmp(s, "linear_attention") ? MIXER_GDN : MIXER_ATTENTION;
        if (c->mixer[i] == MIXER_ATTENTION && strcmp(s, "full_attention") != 0)
            return js_unsupported(&js, s, "full_attention, linear_attention",
                                  err);
    }
    return 0;
}

int
config_mixers(struct config *c, const struct js *root, struct err *err)
{
    size_t n = (size_t)c->n_layers;
    struct js types = js_get(root, "layer_types");
    int32_t n_keyed = 0;

    c->mixer = xcalloc(n, sizeof(*c->mixer));
    c->nth = xcalloc(n, sizeof(*c->nth));
    if (c->family->has_gdn && parse_gdn(c, root, err))
        return -1;
    for (size_t i = 0; i < n; i++)
        c->nth[i] = c->mixer[i] == MIXER_GDN ? c->n_states++ : n_keyed++;
    return n_keyed ? 0 : js_bad(&types, "a full_attention layer", err);
}

size_t
config_keyed(const struct config *c, size_t nth)
{
    size_t i = 0;

    while (c->mixer[i] == MIXER_GDN || (size_t)c->nth[i] != nth)
        i++;
    return i;
}
