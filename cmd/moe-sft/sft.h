/*
 * What the files of moe-sft share: base weights, adapters, batches, results
 * and caches as files, and the verbs.
 */
#ifndef MOE_SFT_SFT_H
#define MOE_SFT_SFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/peft.h"
#include "core/format/stdir.h"
#include "core/hash.h"
#include "core/model/moe.h"
#include "core/outdir.h"
#include "core/str.h"

/* Exit status of training whose loss is not a number. */
#define SFT_NOT_FINITE 76

/*
 * Base weights, mapped: stacked (gate_proj, up_proj [E, I, H], down_proj
 * [E, H, I]; with or without a prefix and ".weight"; I8 beside gate_proj_scale
 * and so on, as quantize writes them), or of a layer of a
 * Hugging Face folder (model.layers.N.mlp.experts.E.gate_proj.weight, ..).
 * layer: -1 where there is one layer only; else it must be named.
 * base_open(): -1 with 'err' set: as stdir_open(); EX_DATAERR names the
 * tensor, what was found and what was expected.  base_open_in() is the same for
 * tensors that are open, and mapped, for longer than the base.
 * Owner: the caller, until base_close().
 */
enum base_matrix { BASE_GATE, BASE_UP, BASE_DOWN, BASE_N };
extern const char *const base_names[BASE_N]; /* "gate_proj", .. */

struct base {
    const char *path; /* the caller's */
    struct stdir *own;
    const struct stdir *dir; /* own, or base_open_in()'s */
    int64_t layer;           /* -1: stacked, without a number */
    size_t n_experts, hidden, intermediate;
    struct moe_base weights;
    struct gemm_matrix *matrices; /* [BASE_N, n_experts] */
    float *scale[BASE_N];         /* of I8: [n_experts, rows]; else NULL */
    /* tensors are PREFIX gate_proj SUFFIX, or PREFIX E.gate_proj SUFFIX */
    bool stacked;
    char *prefix;
    const char *suffix;
    /* of the folder's config.json, where it says so; else 0 */
    size_t top_k;
    bool norm_topk_prob;
    bool qwen; /* model_type has the router that batch_route() knows */
    struct gemm_matrix router; /* mlp.gate.weight [E, H]; data NULL: none */
};
int base_open(struct base *base, const char *path, int64_t layer,
              struct err *err);
int base_open_in(struct base *base, const struct stdir *dir, const char *path,
                 int64_t layer, struct err *err);
bool base_has_layers(const struct stdir *dir); /* experts of more than one? */
void base_close(struct base *base);            /* a zeroed struct is fine */

/* base_tensor_name() appends a tensor's name; 'expert' where not stacked. */
void base_tensor_name(const struct base *base, enum base_matrix m,
                      size_t expert, struct str *name);

size_t base_nbytes(const struct base *base); /* of all weights, in the file */

/*
 * base_mode() is the mode that was asked for, or where it is -1 that of the
 * weights: -1 with 'err' set (TU_USAGE) for bf16 of int8 weights.
 * base_want_float() refuses int8 (EX_DATAERR).
 */
int base_mode(const struct base *base, int asked, enum moe_mode *mode,
              struct err *err);
int base_want_float(const struct base *base, struct err *err);

/* base_digest() adds all of the weights and their shapes to 'hash'. */
void base_digest(const struct base *base, struct hash *hash);

/*
 * An adapter: our file (gate_lora_a .. down_lora_b, sizes in __metadata__), or
 * a layer of a PEFT folder (-1: base's, or the only one there is), whose
 * experts without an adapter have zeros; it must fit 'base' if that is given.
 * adapter_open() reads it into memory, bf16 (F16 and F32 are rounded);
 * adapter_map() leaves the numbers in the file, as they are.
 * Owner: the caller, until adapter_close().
 */
struct adapter_part {
    const void *data; /* in a mapped file; NULL: zeros */
    const struct st *st;
    enum dtype dtype;
};
struct adapter {
    size_t n_experts, hidden, intermediate, rank;
    float alpha;
    int64_t layer;              /* -1: not said */
    uint16_t *m[MOE_N_LORA];    /* as struct moe_lora; NULL: mapped */
    struct adapter_part *parts; /* [MOE_N_LORA, n_experts]; NULL: in memory */
    struct stdir dir;           /* what the parts lie in, if it is its own */
    int dtype; /* of the file's tensors, F32 where they have several; -1: of no
                * file */
};
int adapter_new(struct adapter *a, const struct base *base, size_t rank,
                float alpha, struct err *err); /* zeros */
int adapter_open(struct adapter *a, const char *path, const struct base *base,
                 struct err *err);
int adapter_map(struct adapter *a, const char *path, int64_t layer,
                const struct base *base, struct err *err);

/* adapter_layer() is the layer that our file says it is of; -1: none. */
int adapter_layer(const char *path, int64_t *layer, struct err *err);

/*
 * An open PEFT folder, of which adapter_map_layer() maps one layer after the
 * other: they last no longer than the folder.  peft_files_layers() lists those
 * that have adapters of experts, in order; the caller frees it.
 * peft_files_warn() counts the tensors that no layer so far has taken.
 */
struct peft_files {
    struct peft config;
    struct stdir dir;
    size_t n_used;
};
int peft_files_open(struct peft_files *p, const char *path, struct err *err);
int64_t *peft_files_layers(const struct peft_files *p, size_t *n);
int adapter_map_layer(struct adapter *a, struct peft_files *p, int64_t layer,
                      const struct base *base, struct err *err);
void peft_files_warn(const struct peft_files *p);
void peft_files_close(struct peft_files *p); /* a zeroed struct is fine */
void adapter_close(struct adapter *a);       /* a zeroed struct is fine */
struct moe_lora adapter_lora(const struct adapter *a);
void adapter_digest(const struct adapter *a, struct hash *hash);

/* adapter_size() are the numbers of an expert's matrix; adapter_f32() widens
 * them from the file of a mapped adapter. */
size_t adapter_size(const struct adapter *a, enum moe_lora_matrix m);
void adapter_f32(const struct adapter *a, enum moe_lora_matrix m, size_t expert,
                 float *to);

/* adapter_unchanged() is st_unchanged() of every file that a mapped adapter has
 * been read from: to be asked when its last number has been. */
int adapter_unchanged(const struct adapter *a, struct err *err);

/* adapter_parts() makes parts without data, for sizes that it checks;
 * adapter_take() says where 'n' experts' matrices lie from 'first' on. */
int adapter_parts(struct adapter *a, struct err *err);
void adapter_take(struct adapter *a, enum moe_lora_matrix m, size_t first,
                  size_t n, const struct st *st, const struct st_tensor *t);

/* adapter_meta() sets the sizes as metadata of a file; adapter_put() writes
 * an expert's matrix into a tensor from that expert's place on, -1 all of them,
 * as numbers of adapter_dtype(): the file's that is mapped, else BF16. */
struct stw;
void adapter_meta(const struct adapter *a, struct stw *w);
enum dtype adapter_dtype(const struct adapter *a);
int adapter_put(const struct adapter *a, struct stw *w, int tensor,
                enum moe_lora_matrix m, int64_t expert, struct err *err);
void adapter_put_alpha(const struct adapter *a, struct str *text); /* "32" */
size_t adapter_nbytes(const struct adapter *a);

/* adapter_write() writes our file, 'flags' as out_open(). */
int adapter_write(const struct adapter *a, const char *path, int flags,
                  struct err *err);

/* What PEFT calls the six: "gate_proj.lora_A.weight", .. */
extern const char *const peft_tails[MOE_N_LORA];

/* adapter_write_peft() writes DIR/adapter_model.safetensors and
 * DIR/adapter_config.json, whole or not at all, of adapters in order of their
 * layers. */
int adapter_write_peft(const struct adapter *const *adapters, size_t n,
                       const char *dir, int flags, struct err *err);

/* adapter_config() is an operator's configuration for base, adapter and k. */
struct moe_config adapter_config(const struct adapter *a, size_t top_k);

/*
 * A folder that appears whole or not at all, at any path: folder_open() fails
 * if it is there and 'flags' lack OUT_FORCE (EX_CANTCREAT), else files are made
 * in outdir_path(folder.dir).
 */
struct folder {
    struct outdir *dir;
    char *name;
    int flags;
};
int folder_open(struct folder *f, const char *path, int flags, struct err *err);
int folder_commit(struct folder *f, struct err *err);
void folder_abort(struct folder *f);

/*
 * A batch.  batch_open() reads what is there of 'input' [qlen, H] (BF16, F16
 * or F32, rounded), expert_ids [qlen, k] (I64; I32 is widened), weights
 * [qlen, k] (F32), grad_output [qlen, H] and target [qlen, H]; what 'need'
 * names must be, and fit 'hidden' (0: any).
 * batch_next() reads the next of safetensors files that follow each other in
 * a stream: 1, 0 at its end, or -1 with 'err' set.
 * Owner: the caller, until batch_close().
 */
enum {
    BATCH_INPUT = 1,
    BATCH_ROUTING = 2, /* expert_ids and weights */
    BATCH_GRAD_OUTPUT = 4,
    BATCH_TARGET = 8
};
struct batch {
    char *name; /* for messages */
    size_t qlen, top_k, hidden;
    int64_t *expert_ids;
    float *weights;
    uint16_t *input, *grad_output; /* bf16; NULL: not there */
    float *target;
};
int batch_open(struct batch *b, const char *path, unsigned need, size_t hidden,
               struct err *err);
int batch_next(struct batch *b, int fd, const char *name, unsigned need,
               size_t hidden, struct err *err);
void batch_close(struct batch *b); /* a zeroed struct is fine */
struct moe_batch batch_of(const struct batch *b);

/* batch_parse() is batch_open() of a file in memory: for streams, fuzzers. */
int batch_parse(struct batch *b, const void *file, size_t nbytes,
                const char *name, unsigned need, size_t hidden,
                struct err *err);

/*
 * batch_route() fills expert_ids and weights as the model does, where a batch
 * has none: softmax over x router^T (f32), the top_k largest, lower ids first
 * among equals, divided by their sum if norm_topk_prob.
 * Source: Hugging Face transformers, Qwen3MoeSparseMoeBlock.
 */
int batch_route(struct batch *b, const struct base *base, struct gemm *gemm,
                struct err *err);

/* A layer's sizes where neither options nor files say them. */
enum {
    DEFAULT_EXPERTS = 8,
    DEFAULT_TOP_K = 2,
    DEFAULT_HIDDEN = 2048,
    DEFAULT_INTERMEDIATE = 1408,
    DEFAULT_LENGTH = 512,
};

/*
 * The command line.  A verb's main returns 0, the exit status of its answer
 * (TU_NEGATIVE), or -1 with 'err' set; only main.c prints errors and exits.
 */
struct lora {
    char *path;
    int64_t layer; /* of PATH@LAYER; -1: not given */
};
struct cmd {
    const char *verb;
    const char *base, *lora, *input, *grad, *cache, *output; /* or NULL */
    struct lora *loras; /* [n_loras]: of the verbs that take several */
    size_t n_loras;
    int64_t layer; /* -1: not given */
    int mode;      /* enum moe_mode; -1: not given */
    int64_t n_threads, n_parts;
    int64_t rank, top_k, length, depth;              /* 0: not given */
    int64_t n_experts, hidden, intermediate, rounds; /* 0: not given */
    int64_t samples;                                 /* of check */
    struct train_options *train;                     /* what train alone has */
    double alpha;
    uint64_t seed;
    enum dtype grads; /* of the LoRA gradients: F32 or BF16 */
    bool strict_ids, stacked, json, if_missing, verbose;
    int out_flags;
    char **args;
    int n_args;
};
int info_main(const struct cmd *cmd, struct err *err);
int init_main(const struct cmd *cmd, struct err *err);
int forward_main(const struct cmd *cmd, struct err *err);
int backward_main(const struct cmd *cmd, struct err *err);
int train_main(const struct cmd *cmd, struct err *err);
int check_main(const struct cmd *cmd, struct err *err);
int merge_main(const struct cmd *cmd, struct err *err);
int convert_main(const struct cmd *cmd, struct err *err);
int quantize_main(const struct cmd *cmd, struct err *err);
int bench_main(const struct cmd *cmd, struct err *err);

/*
 * Layers with their adapters, of merge and convert: of all adapters of the
 * command line, each of the layer that it says it is of; of one alone also of
 * the layer that the command line or the base says.  In order of the layers,
 * no two of the same.  Numbers stay in the files.
 * Owner: the caller, until layers_close().
 */
struct layer {
    const char *path; /* as -l has it */
    bool folder;      /* PEFT's, whose last experts may have no adapter */
    struct base base; /* if the command has one */
    struct adapter adapter;
};
struct layers {
    const struct cmd *cmd;
    struct stdir dir; /* the base's */
    bool each;        /* adapters say their layers, not the base */
    struct peft_files *folders;
    size_t n_folders;
    struct layer *list; /* [n] */
    size_t n;
};
int layers_open(struct layers *l, const struct cmd *cmd, struct err *err);
void layers_close(struct layers *l); /* a zeroed struct is fine */

/* lora_add() appends what an argument of -l lists: PATH[@LAYER],.. */
int lora_add(struct cmd *cmd, const char *arg, struct err *err);

/* put_text() writes an answer: to a file, or to standard output (NULL). */
int put_text(const char *path, int flags, const struct str *text,
             struct err *err);

/* check_files(): TU_USAGE where an output is the name of another output or of
 * an input, or would replace the folder of one. */
int check_files(const struct cmd *cmd, struct err *err);

/* can_write(): EX_CANTCREAT for a file that is there and not to be replaced:
 * told before the work is done. */
int can_write(const struct cmd *cmd, const char *path, struct err *err);

/* is_there(): 1 if all outputs are there and sound safetensors, 0, or -1. */
int is_there(const struct cmd *cmd, struct err *err);

/* is_half_done(): is there forward's cache, but no output, as a kill between
 * their names leaves it? */
bool is_half_done(const struct cmd *cmd);

/* run.c: what forward and backward open alike. */
struct run {
    const struct cmd *cmd;
    struct base base;
    struct adapter adapter;
    struct batch batch;
    struct moe *moe;
};
int run_files(struct run *run, const struct cmd *cmd, struct err *err);
int run_moe(struct run *run, size_t top_k, size_t qlen, enum moe_mode mode,
            struct err *err);          /* opens, loads, ready for a forward */
void run_close(struct run *run);       /* a zeroed struct is fine */
extern const char *const mode_names[]; /* "bf16", "int8", NULL */

/* Numbers of this machine's order as a tensor's bytes. */
int write_f32(struct stw *w, int tensor, const float *v, size_t n,
              struct err *err);
int write_i64(struct stw *w, int tensor, const int64_t *v, size_t n,
              struct err *err);

/* write_mapped() is stw_write() of what lies in a mapped file: copied first, as
 * write(2) takes a page that has been cut off for a bad address. */
int write_mapped(struct stw *w, int tensor, const void *data, size_t nbytes,
                 size_t offset, struct err *err);

/*
 * A forward's cache as a file: the batch, gate and up, and digests of all that
 * a backward depends on.  cache_write() writes that of the run's last forward;
 * the caller commits it, or NULL with 'err' set.
 */
#define CACHE_VERSION_KEY "moe_sft_cache" /* of __metadata__ */
struct stw *cache_write(const struct run *run, const char *path,
                        struct err *err);

/*
 * cache_open() reads one, and checks it against the run's base weights and
 * adapter; 'mode' -1: the file's.  -1 with 'err' set (EX_DATAERR) names what
 * differs.
 */
struct cache {
    struct batch batch;
    enum moe_mode mode;
    size_t n_rows;
    uint16_t *gate, *up; /* [n_rows, intermediate] */
};
int cache_open(struct cache *c, const struct run *run, const char *path,
               int mode, struct err *err);
void cache_close(struct cache *c); /* a zeroed struct is fine */

#endif
