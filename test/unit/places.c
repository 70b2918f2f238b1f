/* SPDX-License-Identifier: ISC */
/*
 * Names of places: each spelling by hand, as sae(5) has them, and back.
 */
#include <string.h>

#include "core/model/places.h"
#include "test/unit/tap.h"

enum form { HOOK, SHORT, LENS };

/* Is this the place's name, in a model or in none? */
static bool
says(enum form form, const struct place *p, const struct config *c,
     const char *want)
{
    struct str s = { 0 };
    bool yes;

    if (form == HOOK)
        place_hook(&s, p, c ? c->family : NULL, false);
    else if (form == SHORT)
        place_short(&s, p);
    else
        place_lens(&s, p, c);
    yes = s.n == strlen(want) && !memcmp(s.s, want, s.n);
    str_free(&s);
    return yes;
}

/* Each spelling, its place, and the place's names in llama. */
static const struct {
    const char *name;
    enum tap_point point;
    int64_t layer;
    const char *hook, *brief, *lens;
} spelled[] = {
    { "embed_tokens", TAP_EMBED, -1, "embed_tokens", "embed:-1", "hook_embed" },
    { "model.embed_tokens", TAP_EMBED, -1, "embed_tokens", "embed:-1",
      "hook_embed" },
    { "hook_embed", TAP_EMBED, -1, "embed_tokens", "embed:-1", "hook_embed" },
    { "transformer.wte", TAP_EMBED, -1, "embed_tokens", "embed:-1",
      "hook_embed" },
    { "gpt_neox.embed_in", TAP_EMBED, -1, "embed_tokens", "embed:-1",
      "hook_embed" },
    { "blocks.0.hook_resid_pre", TAP_RESID, -1, "embed_tokens", "resid:-1",
      "hook_embed" },
    { "blocks.0.hook_in", TAP_RESID, -1, "embed_tokens", "resid:-1",
      "hook_embed" },
    { "model.layers.0.input", TAP_RESID, -1, "embed_tokens", "resid:-1",
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
    { "blocks.3.attn.hook_out", TAP_ATTN, 3, "layers.3.self_attn", "attn:3",
      "blocks.3.hook_attn_out" },
    { "blocks.3.hook_attn_out", TAP_ATTN_OUT, 3, "blocks.3.hook_attn_out",
      "attn_out:3", "blocks.3.hook_attn_out" },
    { "blocks.3.hook_resid_mid", TAP_RESID_MID, 3, "blocks.3.hook_resid_mid",
      "resid_mid:3", "blocks.3.hook_resid_mid" },
    { "blocks.3.ln2.hook_in", TAP_RESID_MID, 3, "blocks.3.hook_resid_mid",
      "resid_mid:3", "blocks.3.hook_resid_mid" },
    { "layers.2.mlp", TAP_MLP, 2, "layers.2.mlp", "mlp:2",
      "blocks.2.hook_mlp_out" },
    { "model.layers.2.mlp.output", TAP_MLP, 2, "layers.2.mlp", "mlp:2",
      "blocks.2.hook_mlp_out" },
    { "blocks.2.mlp.hook_out", TAP_MLP, 2, "layers.2.mlp", "mlp:2",
      "blocks.2.hook_mlp_out" },
    { "blocks.2.hook_mlp_out", TAP_MLP_OUT, 2, "blocks.2.hook_mlp_out",
      "mlp_out:2", "blocks.2.hook_mlp_out" },
    { "h.2.mlp", TAP_MLP, 2, "layers.2.mlp", "mlp:2", "blocks.2.hook_mlp_out" },
    { "h.11", TAP_RESID, 11, "layers.11", "resid:11",
      "blocks.11.hook_resid_post" },
    { "transformer.h.11", TAP_RESID, 11, "layers.11", "resid:11",
      "blocks.11.hook_resid_post" },
    { "blocks.11.hook_out", TAP_RESID, 11, "layers.11", "resid:11",
      "blocks.11.hook_resid_post" },
    { "model.layers.22.output", TAP_RESID, 22, "layers.22", "resid:22",
      "blocks.22.hook_resid_post" },
    { "model.layers.22.input", TAP_RESID, 21, "layers.21", "resid:21",
      "blocks.21.hook_resid_post" },
    { "h.4.attn", TAP_ATTN, 4, "layers.4.self_attn", "attn:4",
      "blocks.4.hook_attn_out" },
    { "gpt_neox.layers.4.attention", TAP_ATTN, 4, "layers.4.self_attn",
      "attn:4", "blocks.4.hook_attn_out" },
    { "h.4.attn.c_attn", TAP_IN_QKV, 4, "layers.4.self_attn.q_proj",
      "in:q_proj:4", "-" },
    { "gpt_neox.layers.4.attention.dense", TAP_IN_O, 4,
      "layers.4.self_attn.o_proj", "in:o_proj:4", "blocks.4.attn.hook_z" },
    { "model.layers.4.self_attn.o_proj.input", TAP_IN_O, 4,
      "layers.4.self_attn.o_proj", "in:o_proj:4", "blocks.4.attn.hook_z" },
    { "h.4.mlp.c_fc", TAP_IN_GATE_UP, 4, "layers.4.mlp.up_proj", "in:up_proj:4",
      "blocks.4.mlp.hook_in" },
    { "h.4.mlp.c_proj", TAP_IN_DOWN, 4, "layers.4.mlp.down_proj",
      "in:down_proj:4", "blocks.4.mlp.hook_post" },
    { "layers.4.mlp.dense_4h_to_h", TAP_IN_DOWN, 4, "layers.4.mlp.down_proj",
      "in:down_proj:4", "blocks.4.mlp.hook_post" },
    { "model.layers.1.self_attn.q_proj", TAP_IN_QKV, 1,
      "layers.1.self_attn.q_proj", "in:q_proj:1", "-" },
    { "layers.1.self_attn.k_proj", TAP_IN_QKV, 1, "layers.1.self_attn.k_proj",
      "in:k_proj:1", "-" },
    { "layers.1.self_attn.qkv_proj", TAP_IN_QKV, 1, "layers.1.self_attn.q_proj",
      "in:q_proj:1", "-" },
    { "blocks.7.attn.hook_z", TAP_IN_O, 7, "layers.7.self_attn.o_proj",
      "in:o_proj:7", "blocks.7.attn.hook_z" },
    { "layers.1.mlp.up_proj", TAP_IN_GATE_UP, 1, "layers.1.mlp.up_proj",
      "in:up_proj:1", "blocks.1.mlp.hook_in" },
    { "model.layers.1.mlp.gate_up_proj", TAP_IN_GATE_UP, 1,
      "layers.1.mlp.gate_proj", "in:gate_proj:1", "-" },
    { "blocks.5.mlp.hook_post", TAP_IN_DOWN, 5, "layers.5.mlp.down_proj",
      "in:down_proj:5", "blocks.5.mlp.hook_post" },
};

static void
test_find(void)
{
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
        "norms",
        "layers.3.input_layernorm",
        "blocks.3",
        "blocks.3.mlp",
        "blocks.3.hook_embed",
        "layers.3.hook_resid_post",
        "hook_resid_mid",
        "blocks.0.ln2.hook_normalized",
        "layers.3.mlp.up_proj.output",
        "layers.3.mlp.input",
        "layers.3.output.output",
        "embed_tokens.input",
        "model.layers.3.post_attention_layernorm.output",
        "model.layers.3.pre_feedforward_layernorm.output",
        "h.03",
        "h.3.attn.bias",
        "wpe",
        "blocks.99999999999999999999.hook_resid_pre",
        "resid:3",
        "qkv_proj",
    };
    struct place p;

    for (size_t i = 0; i < sizeof(spelled) / sizeof(*spelled); i++)
        tap_ok(place_find(&p, spelled[i].name) && p.point == spelled[i].point &&
                   p.layer == spelled[i].layer &&
                   says(HOOK, &p, NULL, spelled[i].hook) &&
                   says(SHORT, &p, NULL, spelled[i].brief) &&
                   says(LENS, &p, NULL, spelled[i].lens),
               "%s is %s, %s", spelled[i].name, spelled[i].hook,
               spelled[i].brief);
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
        { "model.layers.0.linear_attn.out_proj.weight",
          " (expected layers.0.linear_attn.out_proj)" },
        { "transformer.h.1.attn.c_attn.bias", " (expected h.1.attn.c_attn)" },
        { "layers.3.mlp.up_proj.output", "" },
        { "embed:-1", " (expected embed_tokens)" },
        { "embed:0", "" },
        { "resid_mid:2", " (expected blocks.2.hook_resid_mid)" },
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
        "blocks.0.hook_resid_mid",
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
        "blocks.1.hook_resid_mid",
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
        good = good && i < n && says(HOOK, &p, &c, want[i]) &&
               place_find(&found, want[i]);
        place_settle(&found, &c);
        good = good && found.point == p.point && found.layer == p.layer;
    }
    tap_ok(good && i == n, "all places of a model, in their order");
}

/* What each family's files call a place means the same without a model. */
static void
test_families(void)
{
    bool sparse[3] = { false, false, false };

    for (const struct model_family *f = NULL; (f = family_next(f));) {
        struct config c = {
            .family = f, .form = f->form, .n_layers = 3, .sparse = sparse
        };
        struct place p = { .row = SIZE_MAX }, found;
        bool good = true, mid = false;
        size_t n = 0, n_qkv = 0;

        while (place_next(&p, &c)) {
            struct str name = { 0 };

            place_hook(&name, &p, f, false);
            good = good && place_find(&found, name.s);
            place_settle(&found, &c);
            good = good && found.point == p.point && found.layer == p.layer;
            if (!good && n++ == 0)
                printf("# %s\n", name.s);
            n_qkv += p.point == TAP_IN_QKV;
            mid |= p.point == TAP_RESID_MID;
            str_free(&name);
        }
        tap_ok(good && mid == (f->form.residual == RESIDUAL_SEQUENTIAL) &&
                   n_qkv == (f->form.qkv == FUSED_NOT && !f->form.mla ? 9 : 3),
               "%s: names of its modules, once each", f->model_type);
    }
}

/* By E8: which names are one place, and which places are not there. */
static void
test_settle(void)
{
    static const struct {
        const char *name, *other;
        bool llama, sandwich, olmo, learned, scaled;
    } same[] = {
        { "hook_embed", "blocks.0.hook_in", true, true, true, false, true },
        { "blocks.1.hook_attn_out", "layers.1.self_attn", true, false, true,
          true, false },
        { "blocks.1.hook_mlp_out", "layers.1.mlp", true, false, true, true,
          false },
        { "blocks.1.attn.hook_out", "layers.1.self_attn", true, true, true,
          true, true },
        { "blocks.1.hook_mlp_out", "layers.2.mlp", false, false, false, false,
          false },
        { "blocks.1.hook_resid_mid", "layers.1", false, false, false, false,
          false },
    };
    static const struct {
        const char *name;
        bool llama, sandwich, olmo, parallel, plain;
    } there[] = {
        { "blocks.1.hook_resid_mid", true, true, true, false, true },
        { "layers.1.mlp.gate_proj", true, true, true, true, false },
        { "layers.1.mlp.up_proj", true, true, true, true, true },
        { "layers.1.post_mlp_layernorm.output", false, true, false, false,
          false },
    };
    const struct config llama = { .form.norm.places = NORM_PRE };
    const struct config sandwich = { .form.norm.places = NORM_PRE | NORM_POST };
    const struct config olmo = { .form.norm.places = NORM_POST };
    const struct config learned = { .form.learned = true };
    const struct config scaled = { .residual_scale = .5 };
    const struct config parallel = { .form.residual = RESIDUAL_PARALLEL };
    const struct config plain = { .form.plain_mlp = true };
    struct place a, b;

    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
        tap_ok(place_find(&a, same[i].name) && place_find(&b, same[i].other) &&
                   place_same(&a, &b, NULL) == same[i].llama &&
                   place_same(&a, &b, &llama) == same[i].llama &&
                   place_same(&a, &b, &sandwich) == same[i].sandwich &&
                   place_same(&a, &b, &olmo) == same[i].olmo &&
                   place_same(&a, &b, &learned) == same[i].learned &&
                   place_same(&a, &b, &scaled) == same[i].scaled,
               "%s and %s are one place where they should", same[i].name,
               same[i].other);
    for (size_t i = 0; i < sizeof(there) / sizeof(*there); i++) {
        struct str why = { 0 };

        tap_ok(place_find(&a, there[i].name) &&
                   place_missing(&why, &llama, &a) != there[i].llama &&
                   place_missing(&why, &sandwich, &a) != there[i].sandwich &&
                   place_missing(&why, &olmo, &a) != there[i].olmo &&
                   place_missing(&why, &parallel, &a) != there[i].parallel &&
                   place_missing(&why, &plain, &a) != there[i].plain,
               "%s is where it should be", there[i].name);
        str_free(&why);
    }
}

int
main(void)
{
    test_find();
    test_hint();
    test_next();
    test_families();
    test_settle();
    return tap_done();
}
