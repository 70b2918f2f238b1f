/* SPDX-License-Identifier: ISC */
/*
 * Names of places: each spelling by hand, as sae(5) has them, and back.
 */
#include <string.h>

#include "core/model/places.h"
#include "test/unit/tap.h"

/* Is this what the function appends? */
static bool
says(void (*fn)(struct str *to, const struct place *p), const struct place *p,
     const char *want)
{
    struct str s = { 0 };
    bool yes;

    fn(&s, p);
    yes = s.n == strlen(want) && !memcmp(s.s, want, s.n);
    str_free(&s);
    return yes;
}

static void
test_find(void)
{
    static const struct {
        const char *name;
        enum tap_point point;
        int64_t layer;
        const char *hook, *brief, *lens;
    } good[] = {
        { "embed_tokens", TAP_RESID, -1, "embed_tokens", "resid:-1",
          "hook_embed" },
        { "model.embed_tokens", TAP_RESID, -1, "embed_tokens", "resid:-1",
          "hook_embed" },
        { "hook_embed", TAP_RESID, -1, "embed_tokens", "resid:-1",
          "hook_embed" },
        { "blocks.0.hook_resid_pre", TAP_RESID, -1, "embed_tokens", "resid:-1",
          "hook_embed" },
        { "layers.3", TAP_RESID, 3, "layers.3", "resid:3",
          "blocks.3.hook_resid_post" },
        { "model.layers.10", TAP_RESID, 10, "layers.10", "resid:10",
          "blocks.10.hook_resid_post" },
        { "blocks.4.hook_resid_pre", TAP_RESID, 3, "layers.3", "resid:3",
          "blocks.3.hook_resid_post" },
        { "blocks.3.hook_resid_post", TAP_RESID, 3, "layers.3", "resid:3",
          "blocks.3.hook_resid_post" },
        { "layers.0.self_attn", TAP_ATTN, 0, "layers.0.self_attn", "attn:0",
          "blocks.0.hook_attn_out" },
        { "layers.2.mlp", TAP_MLP, 2, "layers.2.mlp", "mlp:2",
          "blocks.2.hook_mlp_out" },
        { "model.layers.1.self_attn.q_proj", TAP_IN_QKV, 1,
          "layers.1.self_attn.q_proj", "in:q_proj:1", "-" },
        { "layers.1.self_attn.k_proj", TAP_IN_QKV, 1,
          "layers.1.self_attn.k_proj", "in:k_proj:1", "-" },
        { "layers.1.self_attn.qkv_proj", TAP_IN_QKV, 1,
          "layers.1.self_attn.q_proj", "in:q_proj:1", "-" },
        { "blocks.7.attn.hook_z", TAP_IN_O, 7, "layers.7.self_attn.o_proj",
          "in:o_proj:7", "blocks.7.attn.hook_z" },
        { "layers.1.mlp.up_proj", TAP_IN_GATE_UP, 1, "layers.1.mlp.up_proj",
          "in:up_proj:1", "-" },
        { "model.layers.1.mlp.gate_up_proj", TAP_IN_GATE_UP, 1,
          "layers.1.mlp.gate_proj", "in:gate_proj:1", "-" },
        { "blocks.5.mlp.hook_post", TAP_IN_DOWN, 5, "layers.5.mlp.down_proj",
          "in:down_proj:5", "blocks.5.mlp.hook_post" },
    };
    static const char *const bad[] = {
        "",
        "layers",
        "layers.",
        "layers.x",
        "layers.03",
        "layers.-1",
        "layers.3.",
        "layers.3.mlp.",
        "layers.3.mlp.w_proj",
        "layers.3.mlp.up_proj.weight",
        "layers.99999999999999999999",
        "layers.4294967296",
        "m.layers.3",
        "lm_head",
        "norm",
        "layers.3.input_layernorm",
        "blocks.3",
        "blocks.3.mlp",
        "blocks.3.hook_embed",
        "layers.3.hook_resid_post",
        "blocks.0.hook_resid_mid",
        "blocks.99999999999999999999.hook_resid_pre",
        "resid:3",
        "qkv_proj",
    };
    struct place p;

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        tap_ok(place_find(&p, good[i].name) && p.point == good[i].point &&
                   p.layer == good[i].layer &&
                   says(place_hook, &p, good[i].hook) &&
                   says(place_short, &p, good[i].brief) &&
                   says(place_lens, &p, good[i].lens),
               "%s is %s, %s", good[i].name, good[i].hook, good[i].brief);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        tap_ok(!place_find(&p, bad[i]), "\"%s\" is no place", bad[i]);
}

static void
test_hint(void)
{
    static const struct {
        const char *name, *hint;
    } cases[] = {
        { "in:up_proj:1", " (expected layers.1.mlp.up_proj)" },
        { "resid:-1", " (expected embed_tokens)" },
        { "resid:2", " (expected layers.2)" },
        { "model.layers.1.mlp.up_proj.weight",
          " (expected layers.1.mlp.up_proj)" },
        { "layers.0.self_attn.q_proj.bias",
          " (expected layers.0.self_attn.q_proj)" },
        { "model.layers.3.output", " (expected layers.3)" },
        { "mlp:-1", "" },
        { "in:up_proj:1,2", "" },
        { "in:up_proj:", "" },
        { ".weight", "" },
        { "the sofa", "" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct str s = { 0 };

        place_hint(&s, cases[i].name);
        tap_ok(!strcmp(s.s ? s.s : "", cases[i].hint), "hint: %s%s",
               cases[i].name, cases[i].hint);
        str_free(&s);
    }
}

/* Two layers, the second of experts: all hooks, in their order. */
static void
test_next(void)
{
    static const char *const want[] = {
        "embed_tokens",
        "layers.0.self_attn.q_proj",
        "layers.0.self_attn.k_proj",
        "layers.0.self_attn.v_proj",
        "layers.0.self_attn.o_proj",
        "layers.0.self_attn",
        "layers.0.mlp.gate_proj",
        "layers.0.mlp.up_proj",
        "layers.0.mlp.down_proj",
        "layers.0.mlp",
        "layers.0",
        "layers.1.self_attn.q_proj",
        "layers.1.self_attn.k_proj",
        "layers.1.self_attn.v_proj",
        "layers.1.self_attn.o_proj",
        "layers.1.self_attn",
        "layers.1.mlp.gate_proj",
        "layers.1.mlp.up_proj",
        "layers.1.mlp",
        "layers.1",
    };
    bool sparse[2] = { false, true };
    const struct config c = { .n_layers = 2, .sparse = sparse };
    struct place p = { .row = SIZE_MAX }, found;
    size_t n = sizeof(want) / sizeof(*want), i = 0;
    bool good = true;

    for (; place_next(&p, &c); i++) {
        good = good && i < n && says(place_hook, &p, want[i]) &&
               place_find(&found, want[i]) && found.point == p.point &&
               found.layer == p.layer;
    }
    tap_ok(good && i == n, "all places of a model, in their order");
}

int
main(void)
{
    test_find();
    test_hint();
    test_next();
    return tap_done();
}
