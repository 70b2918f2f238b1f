/*
 * A decoder-only transformer on the CPU: 'model' is weights and configuration,
 * shared and read-only; 'engine' is what runs it, threads and the activations
 * of a chunk of tokens; 'session' is one sequence and its KV cache.
 * llama, mistral, qwen2, qwen3, qwen3_moe: one code path, differences are in
 * 'config'.
 */
#ifndef CORE_MODEL_MODEL_H
#define CORE_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/par.h"
#include "core/str.h"

enum act { ACT_SILU, ACT_GELU_TANH };
enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

struct rope_config {
    enum rope_type type;
    double theta;
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn; scales cos and sin */
    bool truncate;                            /* yarn: whole-number bounds */
    int64_t original_max_positions;           /* llama3, yarn */
};

#define CONFIG_MAX_EOS   16
#define CONFIG_MAX_VOCAB (1 << 24)
#define CONFIG_MAX_KEYS  20

struct config {
    char arch[32]; /* model_type: "qwen3" */
    int64_t hidden_size, intermediate_size;
    int64_t n_layers, n_heads, n_kv_heads, head_dim;
    int64_t vocab_size;
    int64_t max_positions; /* the context: longer is an error */
    float rms_norm_eps;
    enum act act;
    struct rope_config rope;
    bool qk_norm; /* qwen3: RMSNorm of each head of q and k */
    bool need_qkv_bias, need_o_bias, need_mlp_bias; /* demanded by config */
    bool tied;                                      /* tie_word_embeddings */
    int64_t *window; /* [n_layers] sliding window, 0: full */
    /* qwen3_moe */
    bool *sparse;                /* [n_layers] has experts in place of an MLP */
    int64_t n_experts;           /* 0: a model without */
    int64_t n_experts_used;      /* by a token */
    int64_t expert_size;         /* their intermediate size */
    bool norm_topk_prob;         /* the weights of a token's experts sum to 1 */
    int32_t bos;                 /* -1: none */
    int32_t eos[CONFIG_MAX_EOS]; /* generation_config.json before config.json */
    size_t n_eos;
    /* generation_config.json's sampler; what it does not say is neutral, but
     * top_k with do_sample 50, and a temperature under 1e-6 is 0 */
    bool do_sample;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;                            /* 0: off */
    const char *passed_over[CONFIG_MAX_KEYS]; /* its keys that would change a
                                               * text, up to a NULL; static */
};

/*
 * config_load() reads DIR/config.json and, where present,
 * DIR/generation_config.json.  -1 with 'err' set: EX_NOINPUT, EX_DATAERR; what
 * is not supported is refused by its name.  Owner: until config_free().
 */
int config_load(struct config *config, const char *dir, struct err *err);
int config_parse(struct config *config, const char *json, size_t nbytes,
                 const char *generation_json, size_t generation_nbytes,
                 struct err *err); /* generation_json may be NULL */
void config_free(struct config *config);

struct model;
struct engine;
struct session;

/*
 * model_open() maps a Hugging Face model folder and binds every weight,
 * checking names and shapes against the configuration (EX_DATAERR).  No
 * weight is converted or copied, norms and biases (small) excepted.
 * Owner: the caller, until model_close(), after its engines.
 */
int model_open(struct model **model, const char *dir, struct err *err);
void model_close(struct model *model);
const struct config *model_config(const struct model *model);

/*
 * Lookup tables, as lut(5) describes them.  tables_open() lets those layers of
 * the model run on the folder's tables whose names match one of the globs
 * 'layers', separated by commas (NULL: all), with or without "model."; engines
 * are opened after it.  A fused table stands for its parts.
 * -1 with 'err' set, as lut_open() does; EX_DATAERR for a table that is of no
 * layer, of another shape, or the second of a layer.
 * Owner: the caller, until tables_close(), after the engines.
 */
struct tables;
struct tables_options {
    const char *layers;
    double ratio; /* of the inputs that are compensated, by the layer itself */
    bool report;  /* run the layers as well, and compare */
};
int tables_open(struct tables **tables, struct model *model, const char *dir,
                const struct tables_options *options, struct err *err);
void tables_close(struct tables *tables); /* NULL is fine */
size_t tables_count(const struct tables *tables);

/* tables_stored(): how many hold the weights to compensate with; the others
 * take the model's. */
size_t tables_stored(const struct tables *tables);

/* tables_report() appends a line for each table, of all rows so far. */
void tables_report(const struct tables *tables, struct str *tsv);

/*
 * lora_open() adds a low-rank adapter to linear layers of the model,
 * y += s (x A^T) B^T: a folder of PEFT, or FILE, FILE@LAYER with the stacked
 * experts of a layer, as moe-sft has them.  Some may be opened; engines are
 * opened after them.
 * -1 with 'err' set, as stdir_open() does; EX_DATAERR for a tensor that is of
 * no linear layer or does not fit it, for an adapter without tensors, and for
 * what PEFT can do but this cannot, by name.
 * Owner: the model.
 */
int lora_open(struct model *model, const char *path, struct err *err);

/* lora_count() is the number of linear layers' parts in all adapters. */
size_t lora_count(const struct model *model);

/*
 * How exact the linear layers are: all in f32, or with their inputs rounded to
 * bf16.  Then the tokens of prompts go through gemm_bf16(), which rounds F16
 * and F32 weights, too, others through gemm_exact(): each token's bits depend
 * on which of the two it is.  Experts take both through gemm_exact().
 */
enum compute { COMPUTE_F32, COMPUTE_BF16 };

struct engine_options {
    size_t chunk; /* tokens that go through the layers together, 1 or more;
                   * fewer of a model so wide that they take over 512 MiB */
    enum compute compute;
    enum dtype kv; /* of keys and values in the cache: F32, F16 or BF16 */
};

/*
 * engine_open() makes the threads' workspace and room for the activations of
 * a chunk of tokens: the matrices are read once for them.  'par' is borrowed
 * and may be NULL.
 * -1 with 'err' set (EX_SOFTWARE).  One thread at a time may use an engine.
 * Owner: the caller, until engine_close(), after its sessions.
 */
int engine_open(struct engine **engine, const struct model *model,
                struct par *par, const struct engine_options *options,
                struct err *err);
void engine_close(struct engine *engine); /* NULL is fine */

/*
 * session_new() starts an empty sequence of at most 'max_tokens' (a
 * min with config.max_positions is the caller's decision; more is allowed
 * for tests).  The KV cache grows as it is filled, and belongs to the
 * session.
 * Owner: the caller, until session_close().
 */
struct session *session_new(struct engine *engine, size_t max_tokens);
void session_close(struct session *session); /* NULL is fine */

/* session_length() is the number of tokens fed. */
size_t session_length(const struct session *session);

/* session_cached() is the number of keys in the cache, of each head: the
 * session's length, until it is compressed. */
size_t session_cached(const struct session *session);

/*
 * A KV-cache compressor, as kvc(5) describes it.  compressor_open() reads the
 * file and checks that it fits: layers, head_dim, no sliding windows.
 * -1 with 'err' set, as kvc_open() does; EX_DATAERR for a model it is not of.
 * Owner: the caller, until compressor_close().  Read-only after opening.
 */
struct compressor;
int compressor_open(struct compressor **compressor, const char *path,
                    const struct config *config, struct err *err);
void compressor_close(struct compressor *compressor); /* NULL is fine */

/*
 * session_compress() makes the keys and values of all tokens fed so far fewer,
 * where they are enough groups; tokens fed later have the positions they would
 * have had.  Once in a session.
 * 1, 0 (too few), or -1 with 'err' set (EX_SOFTWARE).
 */
int session_compress(struct session *session,
                     const struct compressor *compressor, struct err *err);
void session_reset(struct session *session); /* empty again, memory is kept */

/* n tokens that are appended to a session. */
struct feed {
    struct session *session;
    const int32_t *ids; /* [n] */
    size_t n;
    size_t n_logits; /* of the last so many of them: 0 .. n */
    bool generated;  /* by the model: see COMPUTE_BF16 */
};

/*
 * engine_feed() feeds several sequences at once: their tokens share the passes
 * over the matrices.  A session may be there once.  'logits' takes the rows
 * [vocab_size] f32 that are asked for, in the order of the feeds, without gaps.
 * The bits do not depend on how a sequence is cut into calls, on what else is
 * fed, the chunk, nor on threads.
 * -1 with 'err' set and nothing fed: an id outside the vocabulary, more than
 * max_tokens (EX_DATAERR), memory (EX_SOFTWARE).
 */
int engine_feed(struct engine *engine, const struct feed *feeds, size_t n_feeds,
                float *logits, struct err *err);

/* Points of a block whose activations can be looked at; q_proj, k_proj and
 * v_proj share an input, and so do gate_proj and up_proj. */
enum tap_point {
    TAP_RESID,      /* the residual stream after the block; layer -1: before
                     * the first one, the embedding */
    TAP_ATTN,       /* output of o_proj, before it is added */
    TAP_MLP,        /* output of down_proj, or of all a token's experts,
                     * before it is added */
    TAP_IN_QKV,     /* input of q_proj, k_proj, v_proj: after the norm */
    TAP_IN_O,       /* input of o_proj: the heads side by side */
    TAP_IN_GATE_UP, /* input of gate_proj, up_proj: after the norm */
    TAP_IN_DOWN,    /* input of down_proj: act(gate) * up; not with experts,
                     * which have one each */
};

/* tap_dim() is the size of a point's activations. */
size_t tap_dim(const struct config *config, enum tap_point point);

/*
 * A listener at one point.  'fn' gets rows [n, tap_dim()] f32, the tokens at
 * positions first .. first + n - 1 of a session, layer by layer, from the
 * thread that feeds; they are valid during the call.  Looking changes no bit.
 * Where no logits are asked for, the layers after 'last_layer' are not run: a
 * session fed so cannot give logits later.
 */
struct tap {
    enum tap_point point;
    int64_t last_layer;
    void (*fn)(void *ctx, struct session *session, int64_t layer, size_t first,
               size_t n, const float *rows);
    void *ctx;
};

/* engine_tap() sets the engine's listener, borrowed; NULL: none. */
void engine_tap(struct engine *engine, const struct tap *tap);

/* session_feed() feeds one sequence with a prompt, or a part of it;
 * session_step() with a token that was generated. */
int session_feed(struct session *session, const int32_t *ids, size_t n,
                 float *logits, size_t n_logits, struct err *err);
int session_step(struct session *session, int32_t id, float *logits,
                 struct err *err);

#endif
