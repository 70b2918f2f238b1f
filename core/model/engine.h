/*
 * What the files behind model.h share: weights as they lie in the mapped
 * file, rotary positions, the KV cache, a chunk on its way through the layers.
 */
#ifndef CORE_MODEL_ENGINE_H
#define CORE_MODEL_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/format/stdir.h"
#include "core/js.h"
#include "core/kernel/gemm.h"
#include "core/model/model.h"
#include "core/model/table.h"

/* A linear layer: y = w x + bias, and what its adapters add. */
struct lora;
struct linear {
    const void *w; /* [rows, cols] in the mapped file, at any address */
    enum dtype dtype;
    size_t rows, cols;
    const float *bias;          /* [rows], or NULL */
    const struct tabled *table; /* instead of w, from this column of its
                                 * outputs on; or NULL */
    size_t table_col;
    struct lora *lora; /* the first of its adapters' parts, or NULL */
};

/* An adapter's part for one linear layer: y += scale * b (a x), all in f32. */
struct lora {
    struct linear a, b; /* [rank, in], [out, rank] */
    float scale;
    struct lora *next; /* of the same layer */
};

/* An open adapter.  Parts stay where they are: layers point at them. */
struct adapter {
    struct stdir dir;
    struct lora *parts; /* [n_parts] */
    size_t n_parts;
    struct adapter *next;
};

struct mlp {
    struct linear gate, up, down;
};

struct layer {
    const float *attn_norm, *mlp_norm; /* [hidden] */
    const float *q_norm, *k_norm;      /* [head_dim], or NULL */
    struct linear q, k, v, o;
    struct mlp mlp;       /* or: */
    struct linear router; /* [n_experts, hidden] */
    struct mlp *experts;  /* [n_experts]; NULL: there is an MLP */
};

struct model {
    struct config config;
    struct stdir dir;
    struct linear embed, lm_head; /* the same w when tied */
    const float *norm;            /* [hidden] */
    struct layer *layers;         /* [n_layers] */
    double *inv_freq;             /* [head_dim / 2] */
    const struct tables *tables;  /* that some layers run on, or NULL */
    struct adapter *adapters;     /* the last one first, or NULL */
    size_t lora_rank;             /* the largest */
    float **owned;                /* [n_owned] widened norms and biases */
    size_t n_owned;
};

/* model_linear() is the linear layer of a name, as in a file but without
 * ".weight"; NULL if there is none. */
struct linear *model_linear(struct model *m, const char *name);

/*
 * rope_parse() reads rope_parameters, or rope_scaling and rope_theta, from a
 * config.json.  -1 with 'err' set (EX_DATAERR).
 */
int rope_parse(struct rope_config *rope, const struct js *root,
               struct err *err);

/* js_unsupported(): EX_DATAERR 'FILE: PATH "S" is not supported (KNOWN)'. */
int js_unsupported(const struct js *js, const char *s, const char *known,
                   struct err *err);

/* config_range() reads a number in [least, most]; *v is kept where it is
 * absent. */
int config_range(const struct js *root, const char *key, double least,
                 double most, double *v, struct err *err);

/* config_ends() reads the ids that begin and end a text: what this file says
 * replaces what was said before. */
int config_ends(struct config *c, const struct js *root, struct err *err);

/* config_sampler() reads generation_config.json, or fills in what is neutral
 * where that is absent. */
int config_sampler(struct config *c, const struct js *root, struct err *err);

/* rope_inv_freq() fills inv_freq [head_dim / 2]: radians a position. */
void rope_inv_freq(double *inv_freq, const struct rope_config *rope,
                   size_t head_dim);

/* rope_table() fills both tables [half] for one position, scaled by the
 * type's attention factor. */
void rope_table(float *cosines, float *sines, const struct rope_config *rope,
                const double *inv_freq, size_t half, size_t position);

/* The KV cache is cut into blocks at fixed positions; attention sums block by
 * block, so that no sum depends on how a prompt came in. */
#define KV_BLOCK 64

/*
 * One sequence's keys and values.  A token's slot is its position, but for
 * those that session_compress() made fewer.  Block b holds slots b * KV_BLOCK
 * on, of all layers; a layer's part of it is
 * keys [n_kv_heads, head_dim, KV_BLOCK], then
 * values [n_kv_heads, KV_BLOCK, head_dim]: as mix() wants them, little-endian.
 * Nobody reads what was not put: a cache is used again as it is.
 */
struct kv {
    size_t n_layers, n_heads, head_dim; /* KV heads */
    enum dtype dtype;                   /* F32, F16 or BF16 */
    char **blocks;
    size_t n_blocks;
};

/* kv_grow() makes room for n_tokens in all.  On failure (-1, EX_SOFTWARE)
 * what there was remains. */
int kv_grow(struct kv *kv, size_t n_tokens, struct err *err);

/* kv_get() reads n keys and values of a head, [n, head_dim] each, from slot 0
 * on; kv_set() writes them. */
void kv_get(const struct kv *kv, size_t layer, size_t head, size_t n, float *k,
            float *v);
void kv_set(struct kv *kv, size_t layer, size_t head, size_t n, const float *k,
            const float *v);

/* kv_put() stores one token's keys and values, [n_heads, head_dim] each.
 * Threads: any number, for different slots. */
void kv_put(struct kv *kv, size_t layer, size_t slot, const float *k,
            const float *v);

/* kv_keys() and kv_values() are a head's part of a block: valid until the
 * cache grows. */
const void *kv_keys(const struct kv *kv, size_t layer, size_t head,
                    size_t block);
const void *kv_values(const struct kv *kv, size_t layer, size_t head,
                      size_t block);
void kv_free(struct kv *kv);

struct session {
    struct engine *engine;
    size_t max_tokens, n; /* n: tokens fed */
    size_t gone;          /* of their slots in the cache: session_compress() */
    struct kv kv;
};

/* Consecutive tokens of one sequence: rows row .. row + n - 1 of a chunk, at
 * positions first .. first + n - 1, in slots slot .. slot + n - 1. */
struct span {
    struct session *session;
    const int32_t *ids;
    size_t row, n, first, slot;
    bool generated; /* see COMPUTE_BF16 */
};

/* A token's place. */
struct row {
    struct session *session;
    size_t position, slot;
    int32_t id;
};

struct engine {
    const struct model *model;
    struct par *par;
    struct gemm *gemm;
    struct engine_options options;
    const struct tap *tap; /* or NULL */

    /* the chunk that is run */
    struct span *spans; /* [n_spans], in the order of their rows */
    size_t n_spans;
    struct row *rows; /* [n_rows] */
    size_t n_rows;
    size_t *wanted; /* [n_wanted] rows whose logits are asked for, ascending */
    size_t n_wanted;

    float *scratch; /* what follows lies in it; [chunk, ...] */
    size_t scratch_floats;
    float *x, *h;             /* hidden: the residual stream; a step */
    float *q, *attended;      /* n_heads, head_dim */
    float *k, *v;             /* n_kv_heads, head_dim */
    float *gate, *up;         /* intermediate, of MLP or experts */
    float *cosines, *sines;   /* head_dim / 2 */
    float *attention_scratch; /* [threads, attention_scratch()] */
    /* COMPUTE_BF16: the input of a linear layer, rounded, and in f32 again */
    uint16_t *rounded;            /* [chunk, gemm_ld_bf16(widest input)] */
    float *widened;               /* [chunk, widest input] */
    struct experts_work *experts; /* NULL: the model has none */
    float *low;                   /* chunk, lora_rank: between a and b */
    /* where the model has tables */
    struct table_work *table_work;
    float *table_y; /* [2, chunk, table_out]: a table's, the layer's */
    size_t table_out;
};

/*
 * chunk_run() puts the engine's chunk, whose keys and values have room, through
 * all layers, and writes the wanted rows' logits, [n_wanted, vocab_size].
 */
void chunk_run(struct engine *engine, float *logits);

/* One of the linear layers that share an input, and where it goes. */
struct apply {
    const struct linear *linear;
    float *y; /* [rows, linear->rows] */
    bool add; /* to what is there: the residual stream */
};

#define MAX_APPLY 3

/* linear_apply() puts all rows of the chunk through n layers;
 * linear_rows() puts rows x [n_rows] through them, prompts' or not;
 * router_rows() puts all rows of the chunk through one, exactly;
 * linear_logits() puts the normalized rows x [n_rows] through the last one. */
void linear_apply(struct engine *engine, const struct apply *to, size_t n,
                  const float *x);
void linear_rows(struct engine *engine, const struct apply *to, size_t n,
                 const float *x, size_t n_rows);
void router_rows(struct engine *engine, const struct apply *to, const float *x);
void linear_logits(struct engine *engine, float *logits, const float *x,
                   size_t n_rows);

/* mlp_activate() makes act(gate) * up of n numbers, in 'gate'. */
void mlp_activate(const struct config *config, float *gate, const float *up,
                  size_t n);

/*
 * experts_apply() puts all rows x of the chunk, [rows, hidden], through the
 * experts that the layer's router chooses for each; the result is valid until
 * the next call.  Outputs of a token's experts are added in the order of their
 * ids, so that its bits depend on nothing else.
 */
const float *experts_apply(struct engine *engine, const struct layer *layer,
                           const float *x);
int experts_work_open(struct engine *engine, struct err *err);
void experts_work_close(struct engine *engine);

/*
 * tables_apply() puts all rows of the chunk through the tables among n layers,
 * and leaves those that have none in 'rest' [n]; returns how many.  An engine
 * has what it needs for that between the other two.
 */
size_t tables_apply(struct engine *engine, const struct apply *to, size_t n,
                    const float *x, struct apply *rest);
/* tables_floats() is what that takes for each row. */
size_t tables_floats(const struct tables *tables);
int tables_work_open(struct engine *engine, struct err *err);
void tables_work_close(struct engine *engine);

/* lora_apply() adds what adapters say of rows x [n_rows], before anything else
 * is added to them: to->add is false. */
void lora_apply(struct engine *engine, const struct apply *to, const float *x,
                size_t n_rows);

/* lora_bind() makes the adapter's next part that of a linear layer. */
int lora_bind(struct model *model, struct adapter *adapter, struct linear *to,
              const struct lora *part, struct err *err);

/* lora_peft() binds all tensors of a PEFT folder. */
int lora_peft(struct model *model, struct adapter *adapter, const char *dir,
              struct err *err);
void lora_close(struct model *model);

/* One call of attention: the spans' queries, whose keys and values are in the
 * cache already. */
struct attention {
    size_t n_heads, n_kv_heads, head_dim;
    size_t window; /* 0: none */
    size_t layer;
    const struct span *spans;
    size_t n_spans;
    const float *q; /* [rows, n_heads, head_dim], rotated */
    float *out;     /* [rows, n_heads, head_dim] */
    float *scratch; /* [threads, attention_scratch()] */
};

/* attention_scratch() is the number of floats each thread needs. */
size_t attention_scratch(const struct config *config);

/* attention_run() is causal softmax attention.  Each query is summed in an
 * order fixed by its position alone. */
void attention_run(struct par *par, const struct attention *a);

#endif
