/* SPDX-License-Identifier: ISC */
/*
 * What --acts-meta writes, read by the code that reads it for saev-write; and
 * the layers that a SPEC means.
 */
#include <string.h>

#include "cmd/hf-infer/acts.h"
#include "core/format/saev.h"
#include "test/unit/tap.h"

static struct config config = { .n_layers = 12, .hidden_size = 60 };

/* Are these the layers?  They end with -2. */
static int
has(const struct acts_spec *spec, const int64_t *layers)
{
    size_t n = 0;

    for (; layers[n] != -2; n++)
        if (n >= spec->n || spec->places[n].layer != layers[n])
            return 0;
    return n == spec->n;
}

static void
test_spec(void)
{
    static const struct {
        const char *text;
        enum tap_point point;
        int64_t layers[16];
    } cases[] = {
        { "resid:0", TAP_RESID, { 0, -2 } },
        { "resid:-1", TAP_RESID, { -1, -2 } },
        { "resid:-1-2", TAP_RESID, { -1, 0, 1, 2, -2 } },
        { "resid:11,-1,3-5", TAP_RESID, { 11, -1, 3, 4, 5, -2 } },
        { "mlp:all", TAP_MLP, { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -2 } },
        { "attn:10-11", TAP_ATTN, { 10, 11, -2 } },
        { "in:v_proj:1-1,0", TAP_IN_QKV, { 1, 0, -2 } },
        { "in:o_proj:2", TAP_IN_O, { 2, -2 } },
        { "in:up_proj:2", TAP_IN_GATE_UP, { 2, -2 } },
        { "in:down_proj:2", TAP_IN_DOWN, { 2, -2 } },
        { "layers.3,layers.1", TAP_RESID, { 3, 1, -2 } },
        { "embed_tokens,resid:1-2,4,layers.0",
          TAP_RESID,
          { -1, 1, 2, 4, 0, -2 } },
        { "model.layers.2.mlp.up_proj,layers.3.mlp.gate_proj",
          TAP_IN_GATE_UP,
          { 2, 3, -2 } },
        { "blocks.5.hook_mlp_out", TAP_MLP, { 5, -2 } },
    };
    static const char *const bad[] = {
        "",
        "resid",
        "resid:",
        "resid:12",
        "resid:-2",
        "resid:-1--1",
        "resid:0,0",
        "resid:1-",
        "resid:all,",
        "mlp:-1",
        "mlp:-1-2",
        "in:q_proj",
        "q_proj:0",
        "in:q_proj:",
        "resid:0-2,1",
        "resid:99999999999999999999",
        "resid: 1",
        "resid:+1",
        "in:resid:0",
        "RESID:0",
        "layers.12",
        "layers.1,layers.1",
        "layers.1,resid:1",
        "layers.1.mlp.up_proj,layers.1.mlp.gate_proj",
        "layers.1,2",
        "layers.1,",
        "layers.1.mlp.up_proj.weight",
    };
    struct acts_spec spec;
    struct err err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int rc = acts_spec_parse(&spec, cases[i].text, &config, &err);

        tap_ok(rc == 0 && spec.places->point == cases[i].point &&
                   has(&spec, cases[i].layers),
               "spec: %s", cases[i].text);
        acts_spec_free(&spec);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        tap_ok(acts_spec_parse(&spec, bad[i], &config, &err) < 0 &&
                   err.status == TU_USAGE && !strncmp(err.what, "--acts", 6),
               "spec: \"%s\" is refused", bad[i]);
        acts_spec_free(&spec);
    }
}

/* What down_proj of experts reads is many things. */
static void
test_sparse(void)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        { "in:down_proj:0,2", true },
        { "in:down_proj:0-2", false },
        { "in:down_proj:all", false },
        { "in:gate_proj:all", true },
        { "mlp:1", true },
    };
    bool sparse[3] = { false, true, false };
    const struct config c = { .n_layers = 3, .sparse = sparse };
    struct acts_spec spec;
    struct err err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int rc = acts_spec_parse(&spec, cases[i].text, &c, &err);

        tap_ok(rc == (cases[i].good ? 0 : -1), "spec, layer 1 has experts: %s",
               cases[i].text);
        tap_ok(rc == 0 || (err.status == TU_USAGE &&
                           strstr(err.what, "layer 1 has experts")),
               "and is refused so: %s", rc ? err.what : "");
        acts_spec_free(&spec);
    }
}

static void
test_meta(bool known, size_t n_tokens)
{
    struct run run = { .dir = "models/\"caf\303\251\"//", .config = &config };
    char isa[] = ", \"isa\": \"scalar\"";
    struct acts a = { .run = &run,
                      .docs.name = "a\nb\\",
                      .n_tokens = n_tokens,
                      .n_expected = known ? 7 : 0,
                      .sources.text.s = isa,
                      .sha256 = "00" };
    struct acts_dump d = { .dim = 60 };
    struct saev saev = { 0 };
    struct str s = { 0 };
    struct err err = { 0 };
    int rc = acts_spec_parse(&d.spec, "resid:3,-1", &config, &err);

    acts_meta(&s, &a, &d);
    if (rc == 0)
        rc = saev_parse(&saev, s.s, s.n, "meta.json", SAEV_INPUT, &err);
    tap_ok(rc == 0, "metadata: saev_parse() takes them %s", err.what);
    tap_ok(rc == 0 && saev.version == SAEV_1 && !strcmp(saev.family, "llama") &&
               !strcmp(saev.ckpt, "models/\\\"caf\\u00e9\\\"") &&
               saev.n_layers == 2 && saev.layers[0] == 3 &&
               saev.layers[1] == -1 && saev.n_tokens == n_tokens &&
               !saev.cls_token && saev.d == 60 && saev.n_imgs_known == known &&
               (!known || saev.n_imgs == 7) && saev.shard_imgs >= 1,
           "metadata: windows of %zu tokens, %s", n_tokens,
           known ? "counted" : "not counted");
    saev_free(&saev);
    acts_spec_free(&d.spec);
    str_free(&s);
}

int
main(void)
{
    config.family = family_find("llama");
    test_spec();
    test_sparse();
    test_meta(true, 64);
    test_meta(false, 1);
    test_meta(true, 5000000); /* more than the usual budget of a shard */
    return tap_done();
}
