/* SPDX-License-Identifier: ISC */
/*
 * tensorutils from C: libtensorutils(3) is the manual, with examples.
 *
 * Handles are opaque, and one thread at a time may use one; different handles
 * are independent.  A function that can fail returns 0, or -1 with 'err' set,
 * which may be NULL.  A NULL, a size that does not fit and a call at the wrong
 * time are such errors.  Nothing is printed, and only small allocations end
 * the program when memory is gone.
 */
#ifndef TENSORUTILS_H
#define TENSORUTILS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TU_API __attribute__((visibility("default")))

/* err.status: whose fault it is.  From 65 on as in <sysexits.h>. */
enum tu_status {
    TU_BAD_CALL = 2,   /* the caller's: an argument, or the order of calls */
    TU_BAD_DATA = 65,  /* a file's: it breaks its format, or is not supported */
    TU_NO_INPUT = 66,  /* there is no such file, or no permission to read it */
    TU_NO_MEMORY = 70, /* memory, address space, threads */
    TU_IO_ERROR = 74   /* a file could be opened, but not read */
};

/* Set by a function that has returned -1, and untouched by the others. */
struct tu_err {
    int status;     /* enum tu_status */
    char what[512]; /* "file: what is wrong (found, expected)", no newline */
};

TU_API const char *tu_version(void); /* "0.1": of the library, not of this */

/*
 * tu_on_warning(): 'fn' gets what a caller should know but can live with, a
 * line as in tu_err, from any thread that calls the library; NULL, as in the
 * beginning: nobody does.
 */
TU_API void tu_on_warning(void (*fn)(const char *what));

/* ---- safetensors ---- */

/* A tensor of an open file; all of it is the file's, until tu_st_close().
 * Later versions may add fields at the end. */
struct tu_tensor {
    const char *name;      /* UTF-8, NUL-terminated */
    size_t name_n;         /* its bytes: a name may hold NULs */
    const char *dtype;     /* "BF16", as in the file */
    size_t n_dims;         /* 0: a scalar */
    const uint64_t *shape; /* [n_dims], outermost first */
    uint64_t n;            /* numbers: the product of shape */
    size_t nbytes;
    const void *data; /* little-endian, C order, at any address, mapped:
                       * see CAVEATS of libtensorutils(3) */
};

/* An entry of __metadata__: UTF-8, NUL-terminated, and may hold NULs. */
struct tu_metadata {
    const char *key, *value;
    size_t key_n, value_n; /* bytes */
};

/*
 * tu_st_open() opens a safetensors file, or a directory with one or with shards
 * and their index, and checks all headers; tensors are sorted by name.
 * tu_st_at() is tensor i, tu_st_find() the one of a name, tu_st_metadata() the
 * value of a key in the first file's __metadata__, tu_st_metadata_at() its
 * entry i, in the file's order; NULL where there is none. Any number of threads
 * may read an open file.
 */
struct tu_st;
TU_API int tu_st_open(struct tu_st **st, const char *path, struct tu_err *err);
TU_API void tu_st_close(struct tu_st *st); /* NULL is fine, as for all */
TU_API size_t tu_st_count(const struct tu_st *st);
TU_API const struct tu_tensor *tu_st_at(const struct tu_st *st, size_t i);
TU_API const struct tu_tensor *tu_st_find(const struct tu_st *st,
                                          const char *name);
TU_API const char *tu_st_metadata(const struct tu_st *st, const char *key);
TU_API const struct tu_metadata *tu_st_metadata_at(const struct tu_st *st,
                                                   size_t i);

/*
 * tu_st_read_f32() reads numbers first .. first + n - 1 of a tensor of 'st' as
 * f32: exact, but for F64 and large integers, which are rounded.  Not of
 * complex numbers, nor of types with less than 8 bits.
 */
TU_API int tu_st_read_f32(const struct tu_st *st, const struct tu_tensor *t,
                          uint64_t first, size_t n, float *to,
                          struct tu_err *err);

/* ---- dumps of activations, saev(5) ---- */

/* What a dump has; later versions may add fields at the end. */
struct tu_dump_info {
    const char *path;     /* of the dump itself, which a directory may hold */
    const char *metadata; /* [metadata_n] metadata.json as it is, then a NUL */
    size_t metadata_n;
    size_t n_imgs;         /* images, or windows of a text */
    size_t n_layers;       /* that are in the dump */
    const int64_t *layers; /* [n_layers] which of the model, in this order */
    size_t n_tokens;       /* of an image: its patches, and CLS */
    size_t n_patches;
    size_t d; /* floats of an activation */
    int cls;  /* token 0 is CLS */
};

/*
 * tu_dump_open() opens a dump, or the one that a directory holds, and checks
 * its metadata and shards as saev-read does.  tu_dump_info() says what it is.
 * tu_dump_images() points at image img < n_imgs and those after it in its file,
 * *images [*n, n_layers, n_tokens, d], *n >= 1, f32 little-endian, mapped.
 * tu_dump_ids() points at the token ids of a dump of text, *ids [n_imgs,
 * n_tokens], little-endian, mapped, each 0 or more, or -1 where padded; at NULL
 * where the dump has none.  All of these are the dump's, until tu_dump_close().
 * Any number of threads may use a dump and its rows, and so may children after
 * fork(2).
 */
struct tu_dump;
TU_API int tu_dump_open(struct tu_dump **dump, const char *path,
                        struct tu_err *err);
TU_API void tu_dump_close(struct tu_dump *dump);
TU_API const struct tu_dump_info *tu_dump_info(const struct tu_dump *dump);
TU_API int tu_dump_images(struct tu_dump *dump, size_t img,
                          const float **images, size_t *n, struct tu_err *err);
TU_API int tu_dump_ids(struct tu_dump *dump, const int32_t **ids,
                       struct tu_err *err);

enum tu_tokens {
    TU_CLS,   /* CLS alone, of a dump that has it */
    TU_IMAGE, /* all but CLS */
    TU_ALL
};
#define TU_ALL_LAYERS INT64_MIN
enum { TU_SKIP_PADDING = 1 }; /* not what follows a document in its window */

/* What a row is of. */
struct tu_place {
    int64_t img, patch; /* patch -1: CLS */
    int64_t layer;      /* as in the dump's layers */
};

/*
 * tu_rows_open() takes some tokens of a layer of the dump, or of all, as rows
 * of d floats, in the order image, layer, token; flags: 0 or TU_SKIP_PADDING,
 * which reads a few rows of each image.  The dump must stay open until
 * tu_rows_close().  tu_rows_count() is how many rows there are.
 * tu_rows_gather() copies the rows index [n], in any order and as often as they
 * are there, to 'to' [n, d], f32 of this machine; tu_rows_places() says what
 * they are of, to [n].
 */
struct tu_rows;
TU_API int tu_rows_open(struct tu_rows **rows, struct tu_dump *dump,
                        enum tu_tokens tokens, int64_t layer, int flags,
                        struct tu_err *err);
TU_API void tu_rows_close(struct tu_rows *rows);
TU_API size_t tu_rows_count(const struct tu_rows *rows);
TU_API int tu_rows_gather(const struct tu_rows *rows, const uint64_t *index,
                          size_t n, float *to, struct tu_err *err);
TU_API int tu_rows_places(const struct tu_rows *rows, const uint64_t *index,
                          size_t n, struct tu_place *to, struct tu_err *err);

/* ---- sparse autoencoders, sae(5) ---- */

/* Which latents are active: of those over 0 */
enum tu_activation {
    TU_TOPK,      /* the k largest of a row */
    TU_BATCHTOPK, /* the same; k is the mean of the rows it was trained on */
    TU_JUMPRELU,  /* those over their thresholds */
    TU_RELU       /* all */
};

/* What an SAE is; later versions may add fields at the end. */
struct tu_sae_info {
    const char *path; /* of the file with its tensors */
    const char *hook; /* where in a model its inputs are; NULL: it does not
                       * say */
    size_t n, d;      /* latents; numbers of a row */
    enum tu_activation activation;
    size_t k;                /* 0: it does not say */
    int centered;            /* it encodes x - decoder_bias */
    const float *thresholds; /* [n], or NULL */
};

/*
 * tu_sae_open() opens an SAE in any form that sae-train reads, refuses what it
 * refuses, and computes with n_threads threads, 0: all CPUs of this process.
 * tu_sae_info() says what it is, until tu_sae_close().
 * tu_sae_weights() copies its tensors as f32: encoder, decoder [n, d],
 * encoder_bias [n], decoder_bias [d]; of one that scales activations by norms,
 * those of the same SAE without.
 * tu_sae_encode() makes z [n_rows, n] of x [n_rows, d]: pre-activations of the
 * active latents, 0 of the others, NaN in a row with one that is not finite;
 * tu_sae_decode() makes x [n_rows, d] of any z.  The bits are sae-train's, and
 * a row's depend on nothing but its numbers.  Both work in a child after
 * fork(2), too, with threads of its own.
 */
struct tu_sae;
TU_API int tu_sae_open(struct tu_sae **sae, const char *path, int n_threads,
                       struct tu_err *err);
TU_API void tu_sae_close(struct tu_sae *sae);
TU_API const struct tu_sae_info *tu_sae_info(const struct tu_sae *sae);
TU_API int tu_sae_weights(const struct tu_sae *sae, float *encoder,
                          float *encoder_bias, float *decoder,
                          float *decoder_bias, struct tu_err *err);
TU_API int tu_sae_encode(struct tu_sae *sae, const float *x, size_t n_rows,
                         float *z, struct tu_err *err);
TU_API int tu_sae_decode(struct tu_sae *sae, const float *z, size_t n_rows,
                         float *x, struct tu_err *err);

/* ---- what latents did in some rows, sae-look(5) ---- */

/* What a RUN is of; later versions may add fields at the end. */
struct tu_look_info {
    const char *path;        /* of the RUN */
    const char *sae;         /* as it was given */
    const char *hook;        /* NULL: the SAE does not say */
    size_t n_latents, d;     /* of the SAE */
    uint64_t rows, left_out; /* that count, and the others */
    uint64_t sequences;      /* with a row that counts */
    size_t n_tokens;         /* of a sequence: row r is token r % n_tokens */
    size_t before, after;    /* places of an example around its row */
    int per_row;             /* an example is a row, not a sequence */
};

/*
 * tu_look_open() opens a RUN of sae-look scan or merge, and refuses what
 * sae-look list refuses.  tu_look_info() says what it is of.
 * tu_look_tensor() sets *tensor to the one of a name in sae-look(5), as
 * "top_value", or to NULL where the RUN has none; its numbers are aligned and
 * in this machine's order.  The first time that acts or ids are asked for,
 * those of all examples are checked, as sae-look show does; all else was when
 * it was opened.
 * tu_look_label() sets label i of those in labels.tsv, [*nbytes], not
 * NUL-terminated, and returns its latent; -1: there are not so many.
 * All of these are the RUN's, until tu_look_close().  Any number of threads may
 * use a RUN, and so may children after fork(2).
 */
struct tu_look;
TU_API int tu_look_open(struct tu_look **look, const char *path,
                        struct tu_err *err);
TU_API void tu_look_close(struct tu_look *look);
TU_API const struct tu_look_info *tu_look_info(const struct tu_look *look);
TU_API int tu_look_tensor(struct tu_look *look, const char *name,
                          const struct tu_tensor **tensor, struct tu_err *err);
TU_API int64_t tu_look_label(const struct tu_look *look, size_t i,
                             const char **label, size_t *nbytes);

/* ---- lookup tables of linear layers, lut(5) ---- */

/* What a table is; later versions may add fields at the end. */
struct tu_table_info {
    const char *path;  /* of the file with its tensors, next to metadata.json */
    const char *layer; /* with "model." */
    size_t n, in, out; /* latents; numbers of an input, of an output */
    size_t k;          /* active at most */
    int centered;      /* it encodes x - decoder_bias */
    int has_bias;      /* the layer's own is in outputs */
    const float *thresholds; /* [n]; NULL: the k largest are active */
};

/*
 * tu_table_open() opens the table of a layer, with or without "model." in its
 * name, in a directory of tables, and checks it as lut-apply does; n_threads as
 * of an SAE.  tu_table_info() says what it is, until tu_table_close().
 * Of x [n_rows, in] tu_table_apply() makes y [n_rows, out], the layer's output
 * without compensation, tu_table_reconstruct() the inputs that the active
 * latents stand for, [n_rows, in], and tu_table_encode() z [n_rows, n], as of
 * an SAE.  The bits are lut-apply's.  All work in a child after fork(2).
 */
struct tu_table;
TU_API int tu_table_open(struct tu_table **table, const char *dir,
                         const char *layer, int n_threads, struct tu_err *err);
TU_API void tu_table_close(struct tu_table *table);
TU_API const struct tu_table_info *tu_table_info(const struct tu_table *table);
TU_API int tu_table_apply(struct tu_table *table, const float *x, size_t n_rows,
                          float *y, struct tu_err *err);
TU_API int tu_table_reconstruct(struct tu_table *table, const float *x,
                                size_t n_rows, float *xhat, struct tu_err *err);
TU_API int tu_table_encode(struct tu_table *table, const float *x,
                           size_t n_rows, float *z, struct tu_err *err);

/* ---- models ---- */

/* What config.json says; later versions may add fields at the end. */
struct tu_model_info {
    char family[32]; /* "qwen3" */
    size_t n_layers, hidden, intermediate;
    size_t n_heads, n_kv_heads, head_dim;
    size_t vocab_size;
    size_t max_positions; /* the context */
    size_t n_experts;     /* of a layer; 0: a model without */
    int32_t bos;          /* -1: none */
    size_t n_eos;
    const int32_t *eos; /* [n_eos] */
};

/*
 * tu_model_open() maps a Hugging Face model directory and checks it against its
 * config.json; tu_model_info() says what it is, until tu_model_close().  Any
 * number of threads may open sessions of a model; it is unmapped when it and
 * they are closed.
 */
struct tu_model;
TU_API int tu_model_open(struct tu_model **model, const char *dir,
                         struct tu_err *err);
TU_API void tu_model_close(struct tu_model *model);
TU_API const struct tu_model_info *tu_model_info(const struct tu_model *model);

enum tu_compute {
    TU_COMPUTE_F32, /* the same bits on every CPU */
    TU_COMPUTE_BF16 /* prompts faster, inputs of linear layers rounded */
};
enum tu_kv { TU_KV_F32, TU_KV_F16, TU_KV_BF16 }; /* of the cache's numbers */

/* Set size to sizeof(struct tu_session_options), and what is not 0. */
struct tu_session_options {
    size_t size;
    int n_threads; /* 0: all CPUs of this process */
    enum tu_compute compute;
    enum tu_kv kv;
    size_t max_tokens; /* 0: the model's context, which is the most; with
                        * longrope original_max_position_embeddings, beyond
                        * which a session has the long factors */
    size_t chunk;      /* tokens that share a pass over the weights; 0: 512 */
};

/*
 * A session is one sequence, with threads of its own; options may be NULL.
 * tu_session_feed() appends n tokens of a text; tu_session_step() one that was
 * generated (with TU_COMPUTE_BF16, generated tokens are computed exactly).
 * 'logits' gets n_floats floats, rows of vocab_size: those of the last tokens;
 * 0, or a multiple of vocab_size up to n of it.
 * After an error nothing is fed.  Bits do not depend on threads, nor on how a
 * sequence is cut.
 * tu_session_count() is how many tokens it has; tu_session_reset() makes them
 * none.
 */
struct tu_session;
TU_API int tu_session_open(struct tu_session **session, struct tu_model *model,
                           const struct tu_session_options *options,
                           struct tu_err *err);
TU_API void tu_session_close(struct tu_session *session);
TU_API int tu_session_feed(struct tu_session *session, const int32_t *ids,
                           size_t n, float *logits, size_t n_floats,
                           struct tu_err *err);
TU_API int tu_session_step(struct tu_session *session, int32_t id,
                           float *logits, size_t n_floats, struct tu_err *err);
TU_API size_t tu_session_count(const struct tu_session *session);
TU_API int tu_session_reset(struct tu_session *session, struct tu_err *err);

/* Points of a layer; in sae(5): resid, attn, mlp, in:q_proj, in:o_proj,
 * in:up_proj, in:down_proj, embed, attn_out, mlp_out, resid_mid. */
enum tu_point {
    TU_RESID,      /* the residual stream after the layer; layer -1: before
                    * the first one */
    TU_ATTN,       /* output of o_proj */
    TU_MLP,        /* output of down_proj, or of a token's experts */
    TU_IN_QKV,     /* input of q_proj, k_proj, v_proj */
    TU_IN_O,       /* input of o_proj */
    TU_IN_GATE_UP, /* input of gate_proj, up_proj */
    TU_IN_DOWN,    /* input of down_proj; not with experts */
    TU_EMBED,      /* layer -1: the embedding, without learned positions */
    TU_ATTN_OUT,   /* what attention adds to the residual stream */
    TU_MLP_OUT,    /* the same of the MLP */
    TU_RESID_MID   /* the residual stream between these; not where they are
                    * parallel */
};

/*
 * tu_hook() finds the point and layer of a hook name as SAEs have it, sae(5):
 * "layers.3.mlp.up_proj", "blocks.3.hook_resid_post", of any model.  -1: it is
 * none (TU_BAD_CALL).
 */
TU_API int tu_hook(const char *name, enum tu_point *point, int64_t *layer,
                   struct tu_err *err);

/*
 * tu_session_tap() shows 'fn' all that is fed from then on: for each layer up
 * to last_layer rows [n, dim] f32, of tokens first .. first + n - 1.  It is
 * called from the thread that feeds, 'rows' are valid during the call, and it
 * must not use the session: a tu_session_close() in it does nothing but that
 * the feed, when all is fed, is a TU_BAD_CALL.  fn NULL: none. A feed that asks
 * for no logits then runs no layer after last_layer, and until a reset none
 * that needs these is possible.
 */
typedef void tu_tap_fn(void *ctx, int64_t layer, size_t first, size_t n,
                       size_t dim, const float *rows);
TU_API int tu_session_tap(struct tu_session *session, enum tu_point point,
                          int64_t last_layer, tu_tap_fn *fn, void *ctx,
                          struct tu_err *err);

/* ---- tokenizers ---- */

enum {
    TU_TOK_SPECIAL = 1, /* encode: add bos and the like, as the model wants;
                         * decode: keep special tokens */
    TU_TOK_PLAIN = 2    /* encode: text that spells a special token is text */
};

/*
 * tu_tok_open() reads a model directory's tokenizer.json; any number of threads
 * may use it.  tu_tok_encode() makes ids [n] of a text, tu_tok_decode() a text
 * [nbytes] of ids, followed by a NUL: both are the caller's, for tu_free().
 */
struct tu_tok;
TU_API int tu_tok_open(struct tu_tok **tok, const char *dir,
                       struct tu_err *err);
TU_API void tu_tok_close(struct tu_tok *tok);
TU_API int tu_tok_encode(const struct tu_tok *tok, const char *text,
                         size_t nbytes, int flags, int32_t **ids, size_t *n,
                         struct tu_err *err);
TU_API int tu_tok_decode(const struct tu_tok *tok, const int32_t *ids, size_t n,
                         int flags, char **text, size_t *nbytes,
                         struct tu_err *err);
TU_API void tu_free(void *p);

/* ---- LoRA fine-tuning of a layer's experts ---- */

/*
 * For token i and slot j with expert e = expert_ids[i][j], weight w[i][j]:
 *   y = x W^T + s (x A^T) B^T,  s = lora_alpha / lora_rank;  gate, up, down
 *   h = silu(gate(x)) * up(x);  output[i] = sum over j of w * down(h)
 * W is frozen, A and B are trained.  bf16 is uint16_t, at any address; arrays
 * are in C order.  Each struct begins with its own sizeof.
 */
enum tu_moe_mode { TU_MOE_BF16, TU_MOE_INT8 }; /* of the products with W */

struct tu_moe_config {
    size_t size;
    size_t n_experts, top_k; /* top_k: slots of a token */
    size_t hidden, intermediate;
    size_t lora_rank;
    float lora_alpha;
    enum tu_moe_mode mode;
    size_t max_len;         /* tokens of a forward, at most */
    size_t max_cache_depth; /* forwards that wait for a backward; 0: 1 */
    size_t n_parts;         /* tensor parallelism, each on a NUMA node; 0: 1 */
    int n_threads;          /* 0: all CPUs of this process */
    int strict_ids; /* an id outside [0, n_experts) is an error, not a skip */
};

/* Bytes that a config needs, before anything is allocated. */
struct tu_moe_memory {
    size_t size;
    size_t base;    /* packed weights, if all experts get tokens */
    size_t load;    /* TU_MOE_INT8: while weights are quantized */
    size_t slot;    /* what one forward keeps for its backward */
    size_t cache;   /* all of them */
    size_t scratch; /* what else forward and backward need */
    size_t total;
};
TU_API int tu_moe_memory(const struct tu_moe_config *config,
                         struct tu_moe_memory *memory, struct tu_err *err);

struct tu_moe;
TU_API int tu_moe_open(struct tu_moe **moe, const struct tu_moe_config *config,
                       struct tu_err *err);
TU_API void tu_moe_close(struct tu_moe *moe); /* waits for what runs */

/* W, bf16, n numbers each: gate and up [n_experts, intermediate, hidden], down
 * [n_experts, hidden, intermediate]. */
struct tu_moe_weights {
    size_t size;
    size_t n; /* n_experts * intermediate * hidden */
    const uint16_t *gate, *up, *down;
};

/* The matrices of an adapter: A [n_experts, lora_rank, in], B [n_experts, out,
 * lora_rank]. */
enum tu_lora {
    TU_GATE_A,
    TU_GATE_B,
    TU_UP_A,
    TU_UP_B,
    TU_DOWN_A,
    TU_DOWN_B,
    TU_N_LORA
};

/* An adapter, bf16, n[i] numbers each. */
struct tu_moe_lora {
    size_t size;
    size_t n[TU_N_LORA];
    const uint16_t *m[TU_N_LORA];
};

/*
 * tu_moe_load() says where the weights are, and must stay: an expert's are
 * packed or quantized when a batch first needs them.  tu_moe_update_lora() says
 * where the adapter is: before the first forward, and when its arrays move. New
 * numbers in the same arrays show in the next forward, with parts, too.
 * tu_moe_warm_up() packs all weights and runs a small batch of zeros.
 */
TU_API int tu_moe_load(struct tu_moe *moe, const struct tu_moe_weights *weights,
                       struct tu_err *err);
TU_API int tu_moe_update_lora(struct tu_moe *moe,
                              const struct tu_moe_lora *lora,
                              struct tu_err *err);
TU_API int tu_moe_warm_up(struct tu_moe *moe, struct tu_err *err);

struct tu_moe_batch {
    size_t size;
    size_t qlen;               /* tokens, 0 .. max_len */
    size_t top_k, hidden;      /* the config's */
    const int64_t *expert_ids; /* [qlen, top_k] */
    const float *weights;      /* [qlen, top_k] */
    const uint16_t *input;     /* [qlen, hidden], bf16 */
};

/* Where a backward writes, overwriting.  Any pointer may be NULL. */
struct tu_moe_grads {
    size_t size;
    size_t qlen;           /* of the forward */
    uint16_t *input;       /* [qlen, hidden], bf16 */
    float *weights;        /* [qlen, top_k] */
    int lora_is_bf16;      /* else f32 */
    size_t n[TU_N_LORA];   /* numbers of these: */
    void *lora[TU_N_LORA]; /* as the matrices */
};

/*
 * tu_moe_forward() writes output [qlen, hidden], f32.  With 'save' it keeps
 * what tu_moe_backward() needs, which takes the last one that is kept.
 *   grad_output [qlen, hidden], bf16
 * tu_moe_depth() is how many are kept; tu_moe_drop() forgets the last one.
 * tu_moe_skipped() counts the slots of the last forward whose id names no
 * expert.
 */
TU_API int tu_moe_forward(struct tu_moe *moe, const struct tu_moe_batch *batch,
                          float *output, int save, struct tu_err *err);
TU_API int tu_moe_backward(struct tu_moe *moe, const uint16_t *grad_output,
                           const struct tu_moe_grads *grads,
                           struct tu_err *err);
TU_API size_t tu_moe_depth(const struct tu_moe *moe);
TU_API int tu_moe_drop(struct tu_moe *moe, struct tu_err *err);
TU_API size_t tu_moe_skipped(const struct tu_moe *moe);

/*
 * The same in a thread of the operator, one after the other: tu_moe_submit_*()
 * return at once, -1 if an argument does not fit; tu_moe_sync() waits for
 * all, and returns the first error, after which nothing was run.  Structs are
 * copied, arrays must stay until then; until then all others are refused.
 */
TU_API int tu_moe_submit_load(struct tu_moe *moe,
                              const struct tu_moe_weights *weights,
                              struct tu_err *err);
TU_API int tu_moe_submit_forward(struct tu_moe *moe,
                                 const struct tu_moe_batch *batch,
                                 float *output, int save, struct tu_err *err);
TU_API int tu_moe_submit_backward(struct tu_moe *moe,
                                  const uint16_t *grad_output,
                                  const struct tu_moe_grads *grads,
                                  struct tu_err *err);
TU_API int tu_moe_sync(struct tu_moe *moe, struct tu_err *err);

#ifdef __cplusplus
}
#endif

#endif
