/*
 * What the files behind model.h share: weights as they lie in the mapped
 * file, rotary positions, and attention over the KV cache.
 */
#ifndef HF_INFER_ENGINE_H
#define HF_INFER_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/hf-infer/model.h"
#include "core/dtype.h"
#include "core/format/stdir.h"
#include "core/js.h"

/* The KV cache is cut into blocks at fixed positions; attention sums block by
 * block, so that no sum depends on how a prompt came in. */
#define KV_BLOCK 64

/* A linear layer: y = w x + bias. */
struct linear {
    const void *w; /* [rows, cols] in the mapped file, at any address */
    enum dtype dtype;
    size_t rows, cols;
    const float *bias; /* [rows], or NULL */
};

struct layer {
    const float *attn_norm, *mlp_norm; /* [hidden] */
    const float *q_norm, *k_norm;      /* [head_dim], or NULL */
    struct linear q, k, v, o, gate, up, down;
};

struct model {
    struct config config;
    struct stdir dir;
    struct linear embed, lm_head; /* the same w when tied */
    const float *norm;            /* [hidden] */
    struct layer *layers;         /* [n_layers] */
    double *inv_freq;             /* [head_dim / 2] */
    float **owned;                /* [n_owned] widened norms and biases */
    size_t n_owned;
};

/*
 * rope_parse() reads rope_parameters, or rope_scaling and rope_theta, from a
 * config.json.  -1 with 'err' set (EX_DATAERR).
 */
int rope_parse(struct rope_config *rope, const struct js *root,
               struct err *err);

/* js_unsupported(): EX_DATAERR 'FILE: PATH "S" is not supported (KNOWN)'. */
int js_unsupported(const struct js *js, const char *s, const char *known,
                   struct err *err);

/* rope_inv_freq() fills inv_freq [head_dim / 2]: radians a position. */
void rope_inv_freq(double *inv_freq, const struct rope_config *rope,
                   size_t head_dim);

/* rope_table() fills both tables [half] for one position, scaled by the
 * type's attention factor. */
void rope_table(float *cosines, float *sines, const struct rope_config *rope,
                const double *inv_freq, size_t half, size_t position);

/*
 * One call of attention: n queries at positions first .. first + n - 1, whose
 * keys and values are in the cache already.
 */
struct attention {
    size_t n_heads, n_kv_heads, head_dim;
    size_t window; /* 0: none */
    size_t first, n;
    const float *q; /* [n, n_heads, head_dim], rotated */
    float *out;     /* [n, n_heads, head_dim] */
    /* Block b holds positions b * KV_BLOCK on.  At 'layer' floats into it:
     * keys [n_kv_heads, KV_BLOCK, head_dim], then
     * values [n_kv_heads, head_dim, KV_BLOCK], zero where not yet filled. */
    float *const *blocks;
    size_t layer;
    float *scratch; /* [threads, attention_scratch()] */
};

/* attention_scratch() is the number of floats each thread needs. */
size_t attention_scratch(const struct config *config);

/* attention_run() is causal softmax attention.  Each query is summed in an
 * order fixed by its position alone. */
void attention_run(struct par *par, const struct attention *a);

#endif
