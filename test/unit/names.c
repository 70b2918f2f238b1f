/* SPDX-License-Identifier: ISC */
/* Names with and without "model.", and patterns of layers. */
#include "core/model/names.h"
#include "core/model/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/le.h"
#include "test/unit/tap.h"

#define Q "layers.0.self_attn.q_proj"

static void
test_match(void)
{
    static const struct {
        const char *glob, *name;
        bool match;
    } cases[] = {
        { "model." Q, "model." Q, true },
        { Q, "model." Q, true },
        { "layers.*", "model." Q, true },
        { "*.q_proj", Q, true },
        { "model.*", Q, false },
        { "*.k_proj", "model." Q, false },
        { "self_attn.q_proj", "model." Q, false },
        { "layers.[0-2].*", "model." Q, true },
        { "h.0.*", "model.transformer.h.0.mlp.c_fc", true },
        { "transformer.*", "model.transformer.h.0.mlp.c_fc", true },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        tap_ok(names_match(cases[i].glob, cases[i].name) == cases[i].match,
               "names_match: %s %s %s", cases[i].glob,
               cases[i].match ? "matches" : "does not match", cases[i].name);
    tap_ok(!strcmp(names_short("model." Q), Q) && !strcmp(names_short(Q), Q) &&
               !strcmp(names_short("models.x"), "models.x") &&
               !strcmp(names_short("model.gpt_neox.layers.0"), "layers.0") &&
               !strcmp(names_short("model.language_model." Q), Q),
           "names_short: what follows the root, or all of it");
}

static void
test_globs(void)
{
    struct globs globs;

    globs_open(&globs, ",*.q_proj,,layers.1.*,");
    tap_ok(globs.n == 2 && !strcmp(globs.glob[1], "layers.1.*"),
           "globs_open: empty patterns are left out");
    tap_ok(globs_match(&globs, "model." Q) &&
               globs_match(&globs, "model.layers.1.mlp.up_proj") &&
               !globs_match(&globs, "model.layers.0.mlp.up_proj"),
           "globs_match: any of them, with or without \"model.\"");
    globs_use(&globs, "model." Q);
    tap_ok(!strcmp(globs_unused(&globs), "layers.1.*") && !*globs_hint(&globs),
           "globs_unused: the one that no layer has matched");
    globs_use(&globs, "model.layers.1.mlp.up_proj");
    tap_ok(!globs_unused(&globs), "globs_unused: NULL when all have");
    globs_close(&globs);
    globs_open(&globs, "*,layers.0.self_attn.qproj");
    globs_use(&globs, "model.layers.0.mlp.up_proj");
    globs_near(&globs, "model.layers.0.self_attn.q_proj");
    tap_ok(!strcmp(globs_hint(&globs),
                   " (did you mean \"layers.0.self_attn.q_proj\"?)"),
           "globs_hint: the nearest name, without \"model.\" as it was typed");
    globs_close(&globs);
    globs_open(&globs, NULL);
    tap_ok(globs.n == 0 && !globs_match(&globs, Q) && !globs_unused(&globs),
           "globs_open: NULL has no patterns");
    globs_close(&globs);
}

/* A file of two tensors of one F32, opened. */
static int
open_tensors(struct stdir *dir, const char *first, const char *second)
{
    char path[] = "/tmp/names.XXXXXX", header[512], n[8] = { 0 };
    static const char zeros[8];
    int len = snprintf(header, sizeof(header),
                       "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],"
                       "\"data_offsets\":[0,4]},"
                       "\"%s\":{\"dtype\":\"F32\",\"shape\":[1],"
                       "\"data_offsets\":[4,8]}}",
                       first, second);
    struct err err = { 0 };
    int fd = mkstemp(path), rc;

    put_le32(n, (uint32_t)len);
    if (fd < 0 || write(fd, n, 8) != 8 ||
        write(fd, header, (size_t)len) != len || write(fd, zeros, 8) != 8)
        return -1;
    close(fd);
    rc = stdir_open(dir, path, &err);
    unlink(path);
    if (rc)
        printf("# %s\n", err.what);
    return rc;
}

static bool
found(const struct stdir *dir, const char *name, const char *word,
      const char *as)
{
    const struct stdir_tensor *t = names_tensor(dir, name, word);

    return as ? t && !strcmp(t->t->name, as) : !t;
}

static void
test_tensors(void)
{
    struct stdir dir = { 0 };

    tap_ok(!open_tensors(&dir, "model.norm.weight", Q ".weight") &&
               found(&dir, "model.norm", "weight", "model.norm.weight") &&
               found(&dir, "model." Q, "weight", Q ".weight") &&
               found(&dir, Q, "weight", Q ".weight") &&
               found(&dir, "model." Q, "bias", NULL),
           "names_tensor: with or without \"model.\" in the file");
    tap_ok(!strcmp(names_root(&dir, "norm.weight"), "model."),
           "names_root: \"model.\"");
    stdir_close(&dir);
    tap_ok(!open_tensors(&dir, "norm.weight", "lm_head.weight") &&
               !names_root(&dir, "norm.weight"),
           "names_root: none of a file saved from the base class");
    stdir_close(&dir);
    tap_ok(!open_tensors(&dir, "norm.weight", "model.norm.weight") &&
               !strcmp(names_root(&dir, "norm.weight"), "model."),
           "names_root: \"model.\" where there are both");
    stdir_close(&dir);
    tap_ok(
        !open_tensors(&dir, "language_model.model.norm.weight",
                      "transformer." Q ".weight") &&
            !strcmp(names_root(&dir, "norm.weight"), "language_model.model.") &&
            found(&dir, Q, "weight", "transformer." Q ".weight"),
        "names_root: others");
    stdir_close(&dir);
}

/* Names of Hugging Face's Qwen3MoeForCausalLM and, of a norm after a half,
 * Glm4ForCausalLM, there and back. */
static void
test_parts(void)
{
    static const struct {
        const char *name;
        struct part_at at;
    } cases[] = {
        { "lm_head", { PART_HEAD, 0, 0 } },
        { "model.embed_tokens", { PART_EMBED, 0, 0 } },
        { "model." Q, { PART_Q, 0, 0 } },
        { "model.layers.12.post_attention_layernorm",
          { PART_MLP_NORM, 12, 0 } },
        { "model.layers.12.post_mlp_layernorm", { PART_MLP_POST, 12, 0 } },
        { "model.layers.3.mlp.gate", { PART_ROUTER, 3, 0 } },
        { "model.layers.3.mlp.gate_proj", { PART_GATE, 3, 0 } },
        { "model.layers.3.mlp.shared_experts.up_proj",
          { PART_SHARED_UP, 3, 0 } },
        { "model.layers.3.mlp.shared_expert_gate",
          { PART_SHARED_ROUTER, 3, 0 } },
        { "model.layers.3.mlp.experts.107.down_proj",
          { PART_EXPERT_DOWN, 3, 107 } },
    };
    static const char *const none[] = {
        "",
        "model",
        "model.lm_head.x",
        "layers.01.self_attn.q_proj",
        "layers.0.self_attn.q_projx",
        "layers.0.self_attn.q_pro",
        "layers.x.self_attn.q_proj",
        "layers.-1.self_attn.q_proj",
        "layers.0.mlp.experts.1",
        "model.model.norm",
    };
    size_t layer, n_found = 0;
    struct part_at at;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *name = cases[i].name;
        struct str s = { 0 };

        part_name(&s, NULL, cases[i].at);
        tap_ok(!strcmp(s.s, name) && part_find(&at, NULL, name) &&
                   !memcmp(&at, &cases[i].at, sizeof(at)) &&
                   part_find(&at, NULL, names_short(name)) &&
                   !memcmp(&at, &cases[i].at, sizeof(at)),
               "part: %s is %s", name, s.s);
        str_free(&s);
    }
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        n_found += part_find(&at, NULL, none[i]);
    tap_ok(n_found == 0, "part: others are none");
    tap_ok(part_in_layer(NULL, "model.", "model.layers.7.mlp.x", &layer) &&
               layer == 7 &&
               !part_in_layer(NULL, "", "model.layers.7.x", &layer) &&
               !part_in_layer(NULL, "model.", "model.layers.7", &layer),
           "part: what is in a layer");
}

int
main(void)
{
    test_parts();
    test_match();
    test_globs();
    test_tensors();
    return tap_done();
}
