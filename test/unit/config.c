/* SPDX-License-Identifier: ISC */
/*
 * config.json and generation_config.json, key by key: what each means is
 * from Hugging Face's configuration classes, the numbers by hand.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/js.h"
#include "core/model/config.h"
#include "core/out.h"
#include "core/str.h"
#include "test/unit/tap.h"

/* A whole small model; each test changes keys of it. */
static const char *const base[][2] = {
    { "model_type", "\"llama\"" },  { "hidden_size", "64" },
    { "intermediate_size", "172" }, { "num_hidden_layers", "4" },
    { "num_attention_heads", "8" }, { "num_key_value_heads", "4" },
    { "vocab_size", "512" },        { "max_position_embeddings", "1024" },
    { "rms_norm_eps", "1e-5" },     { "hidden_act", "\"silu\"" },
};

/* base with 'changes' ("key": value, ...) in place of what it has; a key
 * whose change is not JSON ("-") is left out. */
static void
put_json(struct str *s, const char *changes)
{
    char sep = '{';

    for (size_t i = 0; i < sizeof(base) / sizeof(*base); i++) {
        char key[64];

        snprintf(key, sizeof(key), "\"%s\":", base[i][0]);
        if (strstr(changes, key))
            continue;
        snprintf(key, sizeof(key), "-%s", base[i][0]);
        if (strstr(changes, key))
            continue;
        str_addf(s, "%c\"%s\":%s", sep, base[i][0], base[i][1]);
        sep = ',';
    }
    if (*changes && *changes != '-')
        str_addf(s, ",%s", changes);
    str_addc(s, '}');
}

/* config_load() of these texts, in "config.json" and, unless that is NULL,
 * "generation_config.json" here. */
static int
load(struct config *c, const char *json, const char *generation,
     struct err *err)
{
    remove("generation_config.json");
    if (out_put("config.json", OUT_FORCE | OUT_NO_SYNC, json, strlen(json),
                err) < 0 ||
        (generation &&
         out_put("generation_config.json", OUT_FORCE | OUT_NO_SYNC, generation,
                 strlen(generation), err) < 0))
        return -1;
    if (config_load(c, ".", err) == 0)
        return 0;
    if (!strncmp(err->what, "./", 2))
        memmove(err->what, err->what + 2, strlen(err->what + 2) + 1);
    return -1;
}

static int
parse(struct config *c, const char *changes, const char *generation,
      struct err *err)
{
    struct str s = { 0 };
    int rc;

    put_json(&s, changes);
    rc = load(c, s.s, generation, err);
    str_free(&s);
    return rc;
}

/* Parses, and checks 'good', which looks at the config 'c'. */
#define GIVES(changes, generation, name, good)                    \
    do {                                                          \
        struct config c;                                          \
        struct err err = { 0 };                                   \
        int rc = parse(&c, changes, generation, &err);            \
                                                                  \
        tap_ok(rc == 0 && (good), "%s%s%s", name, rc ? ": " : "", \
               rc ? err.what : "");                               \
        if (!rc)                                                  \
            config_free(&c);                                      \
    } while (0)

static int
near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void
test_shape(void)
{
    GIVES("", NULL, "head_dim is hidden_size / num_attention_heads when absent",
          c.head_dim == 8 && c.n_kv_heads == 4);
    GIVES("\"head_dim\":null", NULL, "or null", c.head_dim == 8);
    GIVES("\"head_dim\":128", NULL, "head_dim is its own key",
          c.head_dim == 128);
    GIVES("\"head_dim\":16,\"num_attention_heads\":6,"
          "\"num_key_value_heads\":3",
          NULL, "with it, heads need not divide hidden_size",
          c.head_dim == 16 && c.n_heads == 6);
    GIVES("-num_key_value_heads", NULL, "no num_key_value_heads: one a head",
          c.n_kv_heads == 8);
    GIVES("-rms_norm_eps", NULL, "rms_norm_eps is 1e-6 when absent",
          c.norm_eps == 1e-6f);
    GIVES("-max_position_embeddings", NULL, "llama's context is 2048 if absent",
          c.max_positions == 2048);
    GIVES("-hidden_act", NULL, "hidden_act is silu when absent",
          c.form.act == ACT_SILU);
    GIVES("\"hidden_act\":\"gelu_pytorch_tanh\"", NULL, "gelu_pytorch_tanh",
          c.form.act == ACT_GELU_TANH);
    GIVES("\"tie_word_embeddings\":true", NULL, "tie_word_embeddings", c.tied);
    GIVES("", NULL, "embeddings are not tied unless it says so", !c.tied);
    GIVES("\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"]",
          NULL, "qwen3 normalizes heads", c.form.qk_norm);
    GIVES("\"model_type\":\"qwen2\",\"architectures\":[\"Qwen2Model\"]", NULL,
          "qwen2 does not",
          !c.form.qk_norm && !strcmp(c.family->model_type, "qwen2"));
}

static void
test_biases(void)
{
    GIVES("", NULL, "no bias is demanded",
          !c.form.qkv_bias && !c.form.o_bias && !c.form.mlp_bias);
    GIVES("\"attention_bias\":true", NULL,
          "attention_bias demands those of q, k, v and o",
          c.form.qkv_bias && c.form.o_bias && !c.form.mlp_bias);
    GIVES("\"mlp_bias\":true", NULL, "mlp_bias demands the others",
          !c.form.qkv_bias && c.form.mlp_bias);
    GIVES("\"model_type\":\"qwen2\"", NULL,
          "qwen2 has biases but no key that demands them", !c.form.qkv_bias);
}

static void
test_rope(void)
{
    GIVES("", NULL, "rope: theta is 10000 when absent",
          c.rope->type == ROPE_DEFAULT && c.rope->theta == 10000);
    GIVES("\"rope_theta\":1000000,\"rope_scaling\":null,"
          "\"torch_dtype\":\"bfloat16\"",
          NULL, "rope: the older spelling", c.rope->theta == 1e6);
    GIVES("\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"},"
          "\"dtype\":\"bfloat16\"",
          NULL, "rope: the newer spelling", c.rope->theta == 5e5);
    GIVES("\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":5e5}", NULL,
          "rope: rope_parameters wins", c.rope->theta == 5e5);
    GIVES("\"rope_parameters\":{},\"rope_scaling\":{\"type\":\"linear\","
          "\"factor\":2}",
          NULL, "rope: an empty one is none", c.rope->type == ROPE_LINEAR);
    GIVES("\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"linear\","
          "\"factor\":2.0},\"rope_scaling\":{\"factor\":2,\"type\":"
          "\"linear\"}",
          NULL, "rope: two that say the same",
          c.rope->type == ROPE_LINEAR && c.rope->theta == 5e5);
    GIVES("\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2},"
          "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,"
          "\"rope_theta\":5e5}",
          NULL, "rope: of two, the one that has the base",
          c.rope->type == ROPE_LINEAR && c.rope->theta == 5e5);
    GIVES("\"model_type\":\"smollm3\",\"architectures\":[],"
          "\"layer_types\":null,\"use_sliding_window\":true,"
          "\"sliding_window\":5,\"no_rope_layers\":[1,0,1,0]",
          NULL, "smollm3: windows are of the layers that do not rotate",
          !c.window[0] && c.window[1] == 5 && !c.window[2] &&
              c.rotation[0] == 0 && c.rotation[1] == ROTATION_NONE);
    GIVES("\"model_type\":\"phi3\",\"architectures\":[],"
          "\"rope_scaling\":{\"type\":\"longrope\",\"factor\":4.0,"
          "\"original_max_position_embeddings\":16,"
          "\"short_factor\":[1,1,1,1],\"long_factor\":[2,2,2,2]}",
          NULL, "longrope: factor is before the ratio of the contexts",
          near(c.rope[1].attention_factor, sqrt(1.5)) &&
              c.rope[1].factors[3] == 2 && c.rope[0].factors[3] == 1);
    GIVES("\"model_type\":\"gemma3_text\",\"architectures\":[],"
          "\"rope_scaling\":{\"rope_type\":\"default\"},\"rope_parameters\":{"
          "\"full_attention\":{\"rope_theta\":7},"
          "\"sliding_attention\":{\"rope_theta\":5}}",
          NULL, "rope: a rope_scaling of nothing leaves a table of each kind",
          c.rope[0].theta == 7 && c.rope[1].theta == 5);
    GIVES("\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", NULL,
          "rope: type is the older rope_type",
          c.rope->type == ROPE_LINEAR && c.rope->factor == 2);
    GIVES("\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,"
          "\"low_freq_factor\":1,\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":8192}",
          NULL, "rope: llama3",
          c.rope->type == ROPE_LLAMA3 && c.rope->factor == 32 &&
              c.rope->high_freq_factor == 4 &&
              c.rope->original_max_positions == 8192 &&
              c.max_positions == 1024);
    GIVES("\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
          "\"original_max_position_embeddings\":512.0}",
          NULL, "rope: yarn's defaults, and its context",
          c.rope->type == ROPE_YARN && c.rope->beta_fast == 32 &&
              c.rope->beta_slow == 1 && c.rope->truncate &&
              near(c.rope->attention_factor, 0.1 * log(4) + 1) &&
              c.max_positions == 2048);
    GIVES("\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40,"
          "\"original_max_position_embeddings\":8,\"mscale\":0.5,"
          "\"mscale_all_dim\":1.0,\"truncate\":false}",
          NULL, "rope: yarn's mscale",
          !c.rope->truncate &&
              near(c.rope->attention_factor,
                   (0.05 * log(40) + 1) / (0.1 * log(40) + 1)));
}

static void
test_latents(void)
{
    GIVES("\"model_type\":\"deepseek_v3\",\"num_key_value_heads\":8,"
          "\"moe_intermediate_size\":32,\"rope_scaling\":{\"type\":\"yarn\","
          "\"factor\":40,\"mscale\":1,\"mscale_all_dim\":1.0,"
          "\"original_max_position_embeddings\":4096}",
          NULL, "latents: DeepSeek-V3's sizes, and mscale^2 on scores",
          c.head_dim == 192 && c.v_head_dim == 128 && c.rotary_dim == 64 &&
              c.q_rank == 1536 && c.kv_rank == 512 && c.form.pairs &&
              near(c.rope->attention_factor, 1) &&
              near(c.attn_scale, pow(0.1 * log(40) + 1, 2) / sqrt(192)));
}

/* Frequencies by hand: head_dim 4 has the pairs theta^0 and theta^-1/2. */
static void
test_frequencies(void)
{
    double f[2];
    struct rope_config r = { .theta = 10000, .factor = 2 };

    rope_inv_freq(f, &r, 4);
    tap_ok(near(f[0], 1) && near(f[1], 0.01), "rope: default frequencies");
    r.type = ROPE_LINEAR;
    rope_inv_freq(f, &r, 4);
    tap_ok(near(f[0], 0.5) && near(f[1], 0.005), "rope: linear ones");
    /* Wavelengths 6.28 and 628 in a context of 100: kept, and stretched. */
    r = (struct rope_config){
        ROPE_LLAMA3,           .theta = 10000,
        .factor = 8,           .low_freq_factor = 1,
        .high_freq_factor = 4, .original_max_positions = 100
    };
    rope_inv_freq(f, &r, 4);
    tap_ok(near(f[0], 1) && near(f[1], 0.01 / 8), "rope: llama3 ones");
    /* 1 / 200 pi turns: a third of the way from 0.5 to 2 of these. */
    r.original_max_positions = 1;
    r.low_freq_factor = 0.5 / (200 * M_PI);
    r.high_freq_factor = 2 / (200 * M_PI);
    rope_inv_freq(f, &r, 4);
    tap_ok(near(f[1], 0.01 / 8 * 2 / 3 + 0.01 / 3), "rope: llama3's ramp");
}

/* Far positions: an angle of 32767 has 9 bits of a float behind the point. */
static void
test_far_positions(void)
{
    const size_t positions[] = { 1, 513, 20000, 32767, 1000000, 1 << 30 };
    const struct rope_config r = { .theta = 1e6, .attention_factor = 1.25 };
    double f[64], worst = 0;
    float c[64], s[64];

    rope_inv_freq(f, &r, 128);
    for (size_t k = 0; k < sizeof(positions) / sizeof(*positions); k++) {
        rope_table(c, s, &r, f, 64, positions[k]);
        for (size_t i = 0; i < 64; i++) {
            long double angle = (long double)positions[k] * (long double)f[i];
            long double dc = (long double)c[i] / 1.25L - cosl(angle);
            long double ds = (long double)s[i] / 1.25L - sinl(angle);

            worst = isnan(dc + ds) ? (double)INFINITY
                                   : fmax(worst, (double)hypotl(dc, ds));
        }
    }
    tap_ok(worst < 1e-7, "rope: tables are as near at position 2^30: %g",
           worst);
    /* cos and sin of 10^6 and 10^4, from a table */
    rope_inv_freq(f, &(struct rope_config){ .theta = 1e4 }, 4);
    rope_table(c, s, &(struct rope_config){ .attention_factor = 1 }, f, 2,
               1000000);
    tap_ok(c[0] == 0.936752128f && s[0] == -0.349993502f &&
               fabs((double)c[1] + 0.952155368) < 1e-7 &&
               fabs((double)s[1] + 0.305614389) < 1e-7,
           "rope: cos and sin of 10^6 and 10^4");
}

#define MOE                                           \
    "\"model_type\":\"qwen3_moe\",\"num_experts\":6," \
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"

#define GLM                                               \
    "\"model_type\":\"glm4_moe\",\"n_routed_experts\":8," \
    "\"num_experts_per_tok\":4,\"moe_intermediate_size\":32"

#define SPARSE(s0, s1, s2, s3)                                            \
    (c.sparse[0] == (s0) && c.sparse[1] == (s1) && c.sparse[2] == (s2) && \
     c.sparse[3] == (s3))

static void
test_experts(void)
{
    GIVES("", NULL, "experts: llama has none",
          c.n_experts == 0 && SPARSE(false, false, false, false));
    GIVES(MOE, NULL, "experts: on every layer, not normalized, if not said",
          c.n_experts == 6 && c.n_experts_used == 2 && c.expert_size == 32 &&
              !c.router.normalize && c.form.qk_norm &&
              SPARSE(true, true, true, true));
    GIVES(MOE ",\"decoder_sparse_step\":2,\"mlp_only_layers\":null,"
              "\"norm_topk_prob\":true",
          NULL, "experts: decoder_sparse_step counts from 1",
          c.router.normalize && SPARSE(false, true, false, true));
    GIVES(MOE ",\"decoder_sparse_step\":2,\"mlp_only_layers\":[3,0]", NULL,
          "experts: mlp_only_layers takes some of these away",
          SPARSE(false, true, false, false));
    GIVES("\"model_type\":\"qwen3_moe\",\"num_local_experts\":4,"
          "\"num_experts_per_tok\":4,\"moe_intermediate_size\":32",
          NULL, "experts: num_local_experts is the newer name",
          c.n_experts == 4);
    GIVES("\"model_type\":\"qwen2_moe\",\"num_experts\":6,"
          "\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
          "\"shared_expert_intermediate_size\":48",
          NULL, "experts: qwen2_moe has a shared one, as wide as it says",
          c.shared_size == 48 && c.widest_mlp == 48 && c.form.qkv_bias &&
              c.form.weighs_shared && !c.router.normalize);
    GIVES("\"model_type\":\"gpt_oss\",\"hidden_act\":\"silu\","
          "\"swiglu_limit\":7.0",
          NULL, "experts: gpt_oss's are the softmax of the largest, clamped",
          c.n_experts == 128 && c.n_experts_used == 4 &&
              c.router.score == ROUTER_TOP && c.form.act == ACT_CLAMPED &&
              c.form.o_bias && c.window[0] == 128 && c.window[1] == 0);
    GIVES(GLM ",\"n_shared_experts\":2,\"first_k_dense_replace\":3", NULL,
          "experts: glm4_moe's first layers have none",
          c.shared_size == 64 && SPARSE(false, false, false, true) &&
              c.router.corrected && c.router.normalize &&
              c.router.scaling > 0.99 && !c.form.weighs_shared);
    GIVES(GLM ",\"n_shared_experts\":null,\"n_group\":4,\"topk_group\":2,"
              "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\"",
          NULL, "experts: groups of them, and none that is shared",
          c.shared_size == 0 && c.router.n_groups == 4 &&
              c.router.n_top_groups == 2);
}

#define WINDOWS(w0, w1, w2, w3)                                           \
    (c.window[0] == (w0) && c.window[1] == (w1) && c.window[2] == (w2) && \
     c.window[3] == (w3))

static void
test_windows(void)
{
    GIVES("\"sliding_window\":5", NULL, "window: llama has none",
          WINDOWS(0, 0, 0, 0));
    GIVES("\"model_type\":\"mistral\",\"sliding_window\":5", NULL,
          "window: mistral's is on all layers", WINDOWS(5, 5, 5, 5));
    GIVES("\"model_type\":\"mistral\",\"sliding_window\":null", NULL,
          "window: mistral without", WINDOWS(0, 0, 0, 0));
    GIVES("\"model_type\":\"mistral\"", NULL,
          "window: mistral's where none is said",
          WINDOWS(4096, 4096, 4096, 4096));
    GIVES("\"model_type\":\"qwen2\",\"sliding_window\":5,"
          "\"max_window_layers\":1",
          NULL, "window: qwen2 needs use_sliding_window", WINDOWS(0, 0, 0, 0));
    GIVES("\"model_type\":\"qwen2\",\"sliding_window\":5,"
          "\"max_window_layers\":3,\"use_sliding_window\":true",
          NULL, "window: qwen2's is on layers from max_window_layers on",
          WINDOWS(0, 0, 0, 5));
    GIVES(MOE ",\"sliding_window\":5,\"max_window_layers\":4", NULL,
          "window: qwen3_moe needs use_sliding_window", WINDOWS(0, 0, 0, 0));
    GIVES(MOE ",\"sliding_window\":5,\"max_window_layers\":4,"
              "\"use_sliding_window\":true",
          NULL, "window: qwen3_moe's is then on all layers",
          WINDOWS(5, 5, 5, 5));
    GIVES("\"model_type\":\"qwen3\",\"sliding_window\":null,"
          "\"max_window_layers\":0,\"use_sliding_window\":true",
          NULL, "window: null is none", WINDOWS(0, 0, 0, 0));
    GIVES("\"model_type\":\"qwen3\",\"sliding_window\":6,"
          "\"max_window_layers\":4,\"use_sliding_window\":true,"
          "\"layer_types\":[\"full_attention\",\"sliding_attention\","
          "\"full_attention\",\"sliding_attention\"]",
          NULL, "window: layer_types decides", WINDOWS(0, 6, 0, 6));
}

static void
test_generation(void)
{
    GIVES("", NULL, "generation: neutral when there is no file",
          !c.do_sample && c.temperature == 1 && c.top_p == 1 && c.top_k == 0 &&
              c.min_p == 0 && c.repetition_penalty == 1 && c.bos == -1 &&
              c.n_eos == 0);
    GIVES("\"eos_token_id\":7,\"bos_token_id\":1", NULL, "eos may be a number",
          c.n_eos == 1 && c.eos[0] == 7 && c.bos == 1);
    GIVES("\"eos_token_id\":[7,9]", NULL, "or a list",
          c.n_eos == 2 && c.eos[1] == 9);
    GIVES("\"eos_token_id\":[7,9],\"bos_token_id\":1",
          "{\"eos_token_id\":3,\"bos_token_id\":null}",
          "generation_config.json wins, where it says something",
          c.n_eos == 1 && c.eos[0] == 3 && c.bos == 1);
    GIVES("\"eos_token_id\":7", "{\"eos_token_id\":null,\"top_k\":null}",
          "and null says nothing", c.n_eos == 1 && c.eos[0] == 7);
    GIVES("", "{\"do_sample\":true}",
          "generation: transformers leaves out a top_k of 50",
          c.do_sample && c.top_k == 50 && !c.n_passed_over);
    GIVES("", "{\"do_sample\":true,\"top_k\":null}",
          "generation: a top_k of null is none", c.top_k == 0);
    GIVES("",
          "{\"num_beams\":1,\"typical_p\":1.0,\"bad_words_ids\":null,"
          "\"sequence_bias\":{},\"no_repeat_ngram_size\":3,\"new\":0,"
          "\"token_healing\":false,\"use_cache\":true}",
          "generation: what is passed over",
          c.n_passed_over == 2 &&
              !strcmp(c.passed_over[0], "no_repeat_ngram_size") &&
              !strcmp(c.passed_over[1], "new"));
    GIVES("", "{\"do_sample\":true,\"temperature\":0}",
          "generation: temperature 0 is not sampling", !c.do_sample);
    GIVES("", "{\"do_sample\":true,\"temperature\":1e-9}",
          "generation: colder than --temperature may be is 0",
          !c.do_sample && c.temperature == 0);
    GIVES("",
          "{\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,"
          "\"top_p\":0.95,\"min_p\":0.1,\"repetition_penalty\":1.05}",
          "generation: every key",
          c.do_sample && c.temperature == 0.6 && c.top_k == 20 &&
              c.top_p == 0.95 && c.min_p == 0.1 &&
              c.repetition_penalty == 1.05);
}

/* Changes that must be refused, and how the message begins. */
static const char *const refused[][2] = {
    { "\"model_type\":\"bert\"",
      "config.json: model_type \"bert\" is not supported (llama, mistral, "
      "qwen2, qwen3, qwen3_moe, " },
    { "-model_type", "config.json: model_type is missing" },
    { "\"model_type\":\"paligemma\",\"text_config\":{\"model_type\":\"gemma\"}",
      "config.json: model_type \"paligemma\" is not supported (llama, " },
    { "\"model_type\":\"gpt2\",\"architectures\":[],\"n_embd\":48",
      "config.json: n_embd and hidden_size differ (expected one of them)" },
    { "\"model_type\":\"gemma3_text\",\"architectures\":[],"
      "\"sliding_window\":null",
      "config.json: sliding_window is null (expected a number)" },
    { "\"model_type\":\"gemma2\",\"architectures\":[],"
      "\"use_bidirectional_attention\":true",
      "config.json: use_bidirectional_attention is true (expected false)" },
    { "\"model_type\":\"gemma\",\"architectures\":[],"
      "\"use_bidirectional_attention\":true",
      "config.json: use_bidirectional_attention is true (expected false)" },
    { "\"model_type\":\"cohere2\",\"architectures\":[],"
      "\"use_qk_norm\":true",
      "config.json: use_qk_norm is true (expected false)" },
    { "\"model_type\":\"qwen3_moe\"", "config.json: num_experts is missing" },
    { "\"model_type\":\"qwen3_moe\",\"num_experts\":4,"
      "\"num_experts_per_tok\":5",
      "config.json: num_experts_per_tok is 5 (expected a whole number from 1 "
      "to 4)" },
    { "\"model_type\":\"qwen3_moe\",\"num_experts\":4,"
      "\"num_experts_per_tok\":2",
      "config.json: moe_intermediate_size is missing" },
    { MOE ",\"mlp_only_layers\":[4]",
      "config.json: mlp_only_layers[0] is 4 (expected" },
    { MOE ",\"mlp_only_layers\":2",
      "config.json: mlp_only_layers is 2 (expected an array)" },
    { MOE ",\"decoder_sparse_step\":0",
      "config.json: decoder_sparse_step is 0 (expected" },
    { MOE ",\"norm_topk_prob\":1", "config.json: norm_topk_prob is 1" },
    { "\"model_type\":\"mixtral\",\"num_experts_per_tok\":9",
      "config.json: num_experts_per_tok is 9 (expected" },
    { "\"model_type\":\"mixtral\",\"num_local_experts\":1",
      "config.json: num_experts_per_tok is missing (expected a whole number" },
    { "\"model_type\":\"qwen2_moe\",\"use_sliding_window\":true,"
      "\"sliding_window\":4",
      "config.json: layer_types is missing (expected an array, as "
      "use_sliding_window is true)" },
    { "\"model_type\":\"gpt_oss\",\"swiglu_limit\":8",
      "config.json: swiglu_limit is 8 (expected a number from 7 to 7)" },
    { GLM ",\"scoring_func\":\"softmax\"",
      "config.json: scoring_func \"softmax\" is not supported (sigmoid)" },
    { GLM ",\"routed_scaling_factor\":0",
      "config.json: routed_scaling_factor is 0 (expected" },
    { GLM ",\"moe_layer_freq\":2",
      "config.json: moe_layer_freq is 2 (expected a whole number from 1" },
    { GLM ",\"n_group\":3", "config.json: n_group is 3 (expected a divisor" },
    { GLM ",\"n_group\":4",
      "config.json: topk_group is missing (expected at most n_group, and "
      "enough for num_experts_per_tok)" },
    { MOE ",\"use_sliding_window\":true",
      "config.json: sliding_window is missing" },
    { "\"architectures\":[\"LlamaForTokenClassification\"]",
      "config.json: architectures[0] \"LlamaForTokenClassification\" is not "
      "supported (LlamaForCausalLM, LlamaModel)" },
    { "\"hidden_act\":\"relu2\"",
      "config.json: hidden_act \"relu2\" is not supported (silu, "
      "gelu, gelu_pytorch_tanh, relu, quick_gelu)" },
    { "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}",
      "config.json: rope_scaling.type \"dynamic\" is not supported (default, "
      "linear, llama3, yarn, longrope)" },
    { "\"rope_parameters\":{\"rope_type\":\"default\"},\"rope_scaling\":{"
      "\"rope_type\":\"linear\",\"factor\":2}",
      "config.json: rope_parameters and rope_scaling differ "
      "(expected one of them)" },
    { "\"rope_parameters\":{\"rope_type\":\"longrope\"}",
      "config.json: rope_parameters.original_max_position_embeddings is "
      "missing" },
    { "\"rope_parameters\":{\"rope_type\":\"longrope\","
      "\"original_max_position_embeddings\":64,\"short_factor\":[1]}",
      "config.json: rope_parameters.short_factor is an array (expected" },
    { "\"model_type\":\"gemma3_text\",\"architectures\":[],"
      "\"rope_parameters\":{\"rope_type\":\"longrope\"}",
      "config.json: rope_parameters \"longrope\" is not supported (default" },
    { "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}",
      "config.json: rope_parameters \"full_attention\" is not supported" },
    { "\"rope_scaling\":{\"factor\":2}",
      "config.json: rope_scaling.rope_type is missing" },
    { "\"rope_scaling\":{\"rope_type\":\"linear\"}",
      "config.json: rope_scaling.factor is missing" },
    { "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}",
      "config.json: rope_scaling.original_max_position_embeddings is missing" },
    { "\"rope_scaling\":{\"rope_type\":\"yarn\","
      "\"original_max_position_embeddings\":64}",
      "config.json: rope_scaling.factor is missing" },
    { "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
      "\"low_freq_factor\":4,\"high_freq_factor\":4,"
      "\"original_max_position_embeddings\":64}",
      "config.json: rope_scaling.high_freq_factor is 4 (expected more than" },
    { "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
      "\"low_freq_factor\":1,\"high_freq_factor\":4}",
      "config.json: rope_scaling.original_max_position_embeddings is missing" },
    { "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0}",
      "config.json: rope_scaling.factor is 0 (expected a number from 1" },
    { "\"rope_theta\":0", "config.json: rope_theta is 0 (expected" },
    { "\"rope_scaling\":\"yarn\"", "config.json: rope_scaling is \"yarn\"" },
    { "\"partial_rotary_factor\":0.5",
      "config.json: partial_rotary_factor is 0.5 (expected 1" },
    { "\"quantization_config\":{\"quant_method\":\"hqq\"}",
      "config.json: quantization_config.quant_method \"hqq\" is not supported "
      "(fp8, compressed-tensors, awq, gptq, mxfp4; or weights in BF16, F16 or "
      "F32)" },
    { "-hidden_size", "config.json: hidden_size is missing" },
    { "\"hidden_size\":1099511627776",
      "config.json: hidden_size is 1099511627776 (expected" },
    { "\"hidden_size\":-64", "config.json: hidden_size is -64 (expected" },
    { "\"hidden_size\":64.5", "config.json: hidden_size is 64.5 (expected" },
    { "\"hidden_size\":\"64\"", "config.json: hidden_size is \"64\"" },
    { "\"intermediate_size\":0", "config.json: intermediate_size is 0" },
    { "\"num_hidden_layers\":1000000000",
      "config.json: num_hidden_layers is 1000000000 (expected" },
    { "\"num_hidden_layers\":0", "config.json: num_hidden_layers is 0" },
    { "\"num_attention_heads\":0", "config.json: num_attention_heads is 0" },
    { "\"num_key_value_heads\":3",
      "config.json: num_key_value_heads is 3 (expected a divisor of" },
    { "\"num_key_value_heads\":0", "config.json: num_key_value_heads is 0" },
    { "\"model_type\":\"deepseek_v3\",\"moe_intermediate_size\":32",
      "config.json: num_key_value_heads is 4 (expected num_attention_heads:" },
    { "\"num_attention_heads\":12",
      "config.json: head_dim is missing (expected a number, as" },
    { "\"num_attention_heads\":128,\"num_key_value_heads\":128,"
      "\"hidden_size\":128",
      "config.json: head_dim is 1 (expected an even number" },
    { "\"head_dim\":0", "config.json: head_dim is 0 (expected" },
    { "\"head_dim\":7", "config.json: head_dim is 7 (expected an even" },
    { "\"vocab_size\":0", "config.json: vocab_size is 0 (expected" },
    { "\"vocab_size\":9223372036854775807",
      "config.json: vocab_size is 9223372036854775807 (expected" },
    { "\"max_position_embeddings\":0",
      "config.json: max_position_embeddings is 0" },
    { "\"rms_norm_eps\":-1", "config.json: rms_norm_eps is -1 (expected" },
    { "\"tie_word_embeddings\":1", "config.json: tie_word_embeddings is 1" },
    { "\"model_type\":\"mistral\",\"sliding_window\":0",
      "config.json: sliding_window is 0 (expected" },
    { "\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
      "\"max_window_layers\":1",
      "config.json: sliding_window is missing" },
    { "\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
      "\"sliding_window\":4",
      "config.json: max_window_layers is missing" },
    { "\"model_type\":\"qwen3\",\"layer_types\":[\"full_attention\"]",
      "config.json: layer_types has 1 names (expected num_hidden_layers, 4)" },
    { "\"model_type\":\"qwen3\",\"layer_types\":[\"full_attention\","
      "\"linear_attention\",\"full_attention\",\"full_attention\"]",
      "config.json: layer_types[1] \"linear_attention\" is not supported" },
    { "\"model_type\":\"qwen3\",\"sliding_window\":4,\"layer_types\":["
      "\"full_attention\",\"sliding_attention\",\"full_attention\","
      "\"full_attention\"]",
      "config.json: layer_types[1] is \"sliding_attention\" (expected" },
    { "\"eos_token_id\":-1", "config.json: eos_token_id is -1 (expected" },
    { "\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]",
      "config.json: eos_token_id has 17 ids (expected at most 16)" },
    { "\"vocab_size\":512,\"vocab_size\":512", "config.json: line " },
};

static void
test_refusals(void)
{
    static const char *const generations[][2] = {
        { "{\"temperature\":-1}",
          "generation_config.json: temperature is -1 (expected" },
        { "{\"top_p\":1.5}", "generation_config.json: top_p is 1.5" },
        { "{\"top_k\":-1}", "generation_config.json: top_k is -1" },
        { "{\"repetition_penalty\":0}",
          "generation_config.json: repetition_penalty is 0" },
        { "[]", "generation_config.json: the document is an empty array" },
        { "{", "generation_config.json: line 1" },
    };
    struct config c;
    struct err err = { 0 };

    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        int rc = parse(&c, refused[i][0], NULL, &err);

        tap_ok(rc && err.status == EX_DATAERR &&
                   !strncmp(err.what, refused[i][1], strlen(refused[i][1])),
               "%s", rc ? err.what : refused[i][0]);
        if (!rc)
            config_free(&c);
    }
    for (size_t i = 0; i < sizeof(generations) / sizeof(*generations); i++)
        tap_ok(parse(&c, "", generations[i][0], &err) &&
                   !strncmp(err.what, generations[i][1],
                            strlen(generations[i][1])),
               "%s", err.what);
    tap_ok(load(&c, "", NULL, &err) && err.status == EX_DATAERR,
           "an empty file: %s", err.what);
    tap_ok(config_load(&c, "/nonexistent/directory", &err) &&
               err.status == EX_NOINPUT,
           "no directory: %s", err.what);
}

/* Of a file that says nothing else. */
static void
test_routing(void)
{
    static const struct {
        const char *json;
        int rc;
        int64_t n_experts, used;
        bool normalize, known;
    } cases[] = {
        { "{}", 0, 0, 0, false, false },
        { "{\"model_type\":\"qwen3_moe\"}", 0, 0, 0, false, true },
        { "{\"model_type\":\"qwen3\"}", 0, 0, 0, false, false },
        { "{\"model_type\":\"qwen2_moe\"}", 0, 0, 0, false, true },
        { "{\"model_type\":\"mixtral\"}", 0, 0, 0, true, true },
        { "{\"model_type\":\"glm4_moe\"}", 0, 0, 0, true, false },
        { "{\"num_experts\":8,\"num_experts_per_tok\":2,"
          "\"norm_topk_prob\":true}",
          0, 8, 2, false, false },
        { "{\"model_type\":\"qwen3_moe\",\"norm_topk_prob\":true}", 0, 0, 0,
          true, true },
        { "{\"num_local_experts\":8}", 0, 8, 0, false, false },
        { "{\"num_experts_per_tok\":5}", 0, 0, 5, false, false },
        { "{\"num_experts_per_tok\":6}", -1, 0, 0, false, false },
        { "{\"num_experts\":4,\"num_experts_per_tok\":5}", -1, 0, 0, false,
          false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };
        json_t *v = js_parse(cases[i].json, strlen(cases[i].json), "c", &err);
        struct js root = js_root(v, "c");
        struct config_routing r = { 0 };
        int rc = config_routing(&r, &root, 5, &err);

        tap_ok(rc == cases[i].rc &&
                   (rc < 0 || (r.n_experts == cases[i].n_experts &&
                               r.n_experts_used == cases[i].used &&
                               r.router.normalize == cases[i].normalize &&
                               r.known == cases[i].known)),
               "config_routing: %s, at most 5: %s", cases[i].json, err.what);
        json_decref(v);
    }
}

int
main(void)
{
    char dir[] = "/tmp/config.XXXXXX";

    if (!mkdtemp(dir) || chdir(dir) < 0)
        return 1;
    test_shape();
    test_biases();
    test_rope();
    test_latents();
    test_frequencies();
    test_far_positions();
    test_experts();
    test_windows();
    test_generation();
    test_refusals();
    test_routing();
    unlink("config.json");
    unlink("generation_config.json");
    if (chdir("/") == 0)
        rmdir(dir);
    return tap_done();
}
