/*
 * lut-precompute's own parts: the command line, where SAEs and linear layers
 * come from, the products, the files.  A function that can fail returns -1
 * with 'err' set; only main.c prints and exits.
 */
#ifndef LUT_PRECOMPUTE_H
#define LUT_PRECOMPUTE_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/format/lut.h"
#include "core/format/stdir.h"
#include "core/format/stw.h"
#include "core/hash.h"
#include "core/kernel/gemm.h"
#include "core/tty.h"

struct cmd {
    const char *model, *sae, *output; /* -m -s -o */
    const char *index;                /* --index: nothing else is done */
    const char *layers;               /* globs with commas between; or NULL */
    bool fuse_qkv, fuse_gate_up;
    enum dtype dtype;   /* of the tables */
    size_t k;           /* 0: the SAE's own */
    int keep_centering; /* 1: --centering explicit */
    bool store_weights, resume, verify, dry_run, verbose, quiet;
    int out_flags; /* OUT_FORCE or 0 */
    int n_threads;
    uint64_t part, n_parts; /* --shard; n_parts 0: all layers */
};

/* A matrix of a mapped file, [rows, cols]; a vector has one row. */
struct matrix {
    const void *data; /* NULL: there is none */
    enum dtype dtype; /* BF16, F16, F32 */
    size_t rows, cols;
    bool by_col; /* lies as [cols, rows] in the file */
};

/* matrix_nbytes() is its size in the file. */
size_t matrix_nbytes(const struct matrix *m);

/* matrix_rows() widens rows first .. first + n - 1 to f32, 'ld' floats apart.
 * 'par' may be NULL. */
void matrix_rows(struct par *par, const struct matrix *m, size_t first,
                 size_t n, float *to, size_t ld);

/*
 * target.c: the linear layers of a model folder.
 */
struct part {
    char *name;         /* "model.layers.0.self_attn.q_proj" */
    struct matrix w;    /* [out of it, in] */
    struct matrix bias; /* [1, out of it], or none */
};

struct target {
    char *name;
    const char *op; /* its last word, in name */
    size_t in, out;
    size_t n_parts;
    struct part parts[LUT_MAX_PARTS];
    bool has_bias;
};

struct model {
    struct stdir dir;
    size_t n_layers;
    json_t *config; /* model_config of metadata.json */
    char *name;     /* source_model */
};

int model_open(struct model *m, const char *path, struct err *err);
void model_close(struct model *m); /* a zeroed struct is fine */

/* base_name() is a path's last word, for the caller to free; of "" and "." that
 * of the folder they mean.  NULL with 'err' set: nothing is there. */
char *base_name(const char *path, struct err *err);

/* target_open() finds a single or fused layer by its full name: 1, or 0 where
 * the model has none; -1 with 'err' set. */
int target_open(struct target *t, const struct model *m, const char *name,
                struct err *err);
void target_close(struct target *t);

/*
 * sae.c: SAE checkpoints, by the names of their tensors and their config.
 */
struct sae {
    char *path; /* the safetensors file */
    struct st st;
    size_t n, in;
    size_t k;                                   /* 0: it does not say */
    bool centered;                              /* encodes x - decoder_bias */
    bool unsure;                                /* of that: nothing says it */
    struct matrix encoder_weight, encoder_bias; /* [n, in], [1, n] */
    struct matrix decoder_weight, decoder_bias; /* [n, in], [1, in] */
};

/* sae_open() takes what sae_is_one() or sae_path() says is one. */
int sae_open(struct sae *sae, const char *path, struct err *err);
void sae_close(struct sae *sae); /* a zeroed struct is fine */

/* sae_is_one(): 1 if that is a checkpoint, 0 if a folder with one for each
 * layer, or -1 with 'err' set where that cannot be told (EX_NOINPUT).
 * sae_path() is that of a layer's there, NULL if there is none, or with 'err'
 * set. */
int sae_is_one(const char *path, struct err *err);
char *sae_path(const char *folder, const char *layer, struct err *err);

/* sae_config.c: what the files beside a checkpoint say. */
enum layout { SPARSIFY, SIX, SAELENS, DICTIONARY };
struct sae_config {
    size_t k;
    bool centered, unsure;
    bool ignore_threshold; /* a tensor that is not used when encoding */
};
int sae_config(struct sae_config *config, enum layout layout,
               const struct sae *sae, struct err *err);

/* sae_beside(): are there files in a folder that say that inputs are
 * transformed?  -1, with their name. */
int sae_beside(const char *folder, struct err *err);

/*
 * plan.c: which layers are made, each from which SAE.
 */
struct work {
    char *layer, *sae; /* full name; path of a checkpoint */
};

struct plan {
    size_t n;
    struct work *work; /* [n], in the order of the model */
};

/* plan_make() lists the layers that have an SAE and are asked for.  -1 with
 * 'err' set: EX_NOINPUT, EX_DATAERR, TU_USAGE (--layers).  Owner: the caller,
 * until plan_free(). */
int plan_make(struct plan *plan, const struct cmd *cmd, const struct model *m,
              struct err *err);
void plan_free(struct plan *plan);

/*
 * beside.c: a file is written while the next rows of it are made.
 */
struct writer {
    struct par_worker *worker; /* NULL: nothing is done beside */
    struct stw *w;
    int tensor; /* the piece that is being written */
    const void *data;
    size_t nbytes, offset;
    int rc; /* of it */
    struct err err;
};

/* writer_put() waits for the piece before, then writes one that stays as it is
 * until the next call returns.  writer_wait(): until all is written.  Each: 0,
 * or -1 with 'err' of any piece before. */
int writer_put(struct writer *writer, int tensor, const void *data,
               size_t nbytes, size_t offset, struct err *err);
int writer_wait(struct writer *writer, struct err *err);

/*
 * tile.c: a table's tensors, some rows at a time.  Memory is the packed
 * weights of the layer and TILE_BYTES, whatever the number of latents.
 */
#define TILE_BYTES ((size_t)64 << 20)

struct tile_part {
    struct tiles *t;
    size_t col; /* of the table, where a part's columns begin */
};

struct tiles {
    struct gemm *gemm; /* borrowed, as all that is const */
    const struct target *target;
    const struct sae *sae;
    enum dtype dtype;
    bool fold;  /* centring into encoder_bias */
    bool split; /* two bf16 products, which AMX makes faster than one of f32 */
    size_t rows, ld;
    float *f32;         /* [rows, in] */
    uint16_t *hi, *lo;  /* [rows, ld]; lo NULL: f32 is bf16 */
    float *p;           /* [rows, out], where numbers pass through f32 */
    void *rounded[2];   /* [rows, in or out]: one is filled, one written */
    int turn;           /* which is filled */
    atomic_size_t bad;  /* first row of a tile with what dtype cannot hold */
    double *bias, *b64; /* [n] encoder_bias, [in] decoder_bias */
    struct tile_part tile_parts[LUT_MAX_PARTS];
    struct writer writer;
    struct gemm_panels panels[LUT_MAX_PARTS];
    struct gemm_job jobs[LUT_MAX_PARTS];
    size_t packed_nbytes[LUT_MAX_PARTS];
};

int tiles_open(struct tiles *t, const struct cmd *cmd, struct gemm *gemm,
               const struct target *target, const struct sae *sae,
               struct err *err);
void tiles_close(struct tiles *t); /* a zeroed struct is fine */

/* tiles_write() fills all tensors of an open file, and counts operations in
 * 'done'; stops early as sig_stop() says (EX_TEMPFAIL).  'worker' NULL: nothing
 * is done beside. */
struct handles {
    int encoder_weight, encoder_bias, decoder_weight, decoder_bias;
    int products, bias_product;
    int weight_t; /* -1: not stored */
};
int tiles_write(struct tiles *t, struct par_worker *worker, struct stw *w,
                const struct handles *h, struct progress *progress,
                uint64_t *done, struct err *err);

/* tiles_probe() makes products for about half a second: GFLOP/s. */
double tiles_probe(struct tiles *t);

/* f64.c: sums in double, and rounding from double once. */
double dot64(const float *a, const double *b, size_t n);
float f64_round(double v, enum dtype dtype); /* exact in f32 */
void bias_products(struct par *par, const struct target *t, const double *b,
                   double *sums);

/*
 * digest.c: SHA-256 of what a layer's file is made of.
 */
struct source {
    struct hash *hash;
    const struct matrix *parts[2 * LUT_MAX_PARTS];
    size_t n, at, nbytes; /* parts; how far into which it is */
    char hex[HASH_MAX_HEX];
};

struct digests {
    struct source sae, weights;
    struct par_worker *worker; /* that is, or was, at it */
    atomic_bool pause;
};

/*
 * job.c: a layer's file, and its entry in metadata.json.
 */
struct job {
    const struct cmd *cmd;
    const struct model *model;
    const struct target *target;
    const struct sae *sae;
    size_t k;
    struct str path; /* of the file */
    char *lut;       /* __metadata__'s text of the layer */
    struct digests digests;
};

int job_open(struct job *job, struct err *err); /* from the first four */
void job_close(struct job *job);
uint64_t job_nbytes(const struct job *job);

/* job_stopped() fills 'err': sig_stop() has said so. */
int job_stopped(struct err *err);

/*
 * digests_open() begins them, digests_start() has 'worker' (or nobody) go on
 * with them beside, digests_end() makes what is left: 0, or -1 (EX_TEMPFAIL).
 * digests_close() at any time after the first.
 */
void digests_open(struct digests *d, const struct sae *sae,
                  const struct target *target);
void digests_start(struct digests *d, struct par_worker *worker);
int digests_end(struct digests *d, struct par *par, struct err *err);
void digests_close(struct digests *d);

/* Threads of a run. */
struct threads {
    struct par *par;
    struct par_worker *writing, *hashing; /* NULL with -j 1 */
};

/* job_is_there(): 1 if the file is there and of the same sources and options,
 * 0 if there is none; another one is -1 (EX_CANTCREAT) without --force. */
int job_is_there(struct job *job, const struct threads *threads,
                 struct err *err);
int job_write(struct job *job, const struct threads *threads,
              struct tiles *tiles, struct progress *progress, uint64_t *done,
              struct err *err);

/*
 * verify.c: 0, 1 if the file differs from a sample in f64; -1 with 'err'.
 * Prints a line of a table, whose header comes first unless '*header'.
 */
int job_verify(const struct job *job, struct par *par, bool *header,
               struct err *err);

/*
 * index.c: metadata.json from the files.  What it said of layers whose files
 * cannot say it is kept; 'prune': only while the file is there, and a damaged
 * one, which is left out, is an error (EX_DATAERR) when the rest is done.
 */
int index_folder(const char *dir, bool prune, struct err *err);

/* index_check(): may there be an index in DIR?  Asked before the first product:
 * one of routed experts, or a damaged one, is refused. */
int index_check(const char *dir, struct err *err);

/* run.c: run_all() makes all tables of the command line, or prints what
 * --dry-run does: 0, TU_NEGATIVE where --verify finds a difference, or -1 with
 * 'err' set. */
int run_all(const struct cmd *cmd, struct err *err);

#endif
