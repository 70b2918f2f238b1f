/* SPDX-License-Identifier: ISC */
/*
 * The weights of a decoder-only transformer and its configuration, shared and
 * read-only: engine.h runs it.
 */
#ifndef CORE_MODEL_MODEL_H
#define CORE_MODEL_MODEL_H

#include <stddef.h>

#include "core/err.h"
#include "core/format/stdir.h"
#include "core/model/config.h"
#include "core/model/gdn.h"
#include "core/model/linear.h"
#include "core/model/mlp.h"
#include "core/model/norm.h"

struct adapter;
struct splices;
struct tables;

struct layer {
    struct norm attn_norm, mlp_norm; /* of hidden: what a half reads */
    struct norm attn_post, mlp_post; /* of what it adds */
    struct norm q_norm, k_norm;      /* of each head, or of all */
    struct norm q_a_norm, kv_a_norm; /* of MLA's latents */
    struct norm sinks;               /* its weights are logits of heads */
    struct linear qkv;               /* or: */
    struct linear q, k, v;
    struct linear q_a, q_b, kv_a, kv_b; /* MLA's, of which it has no k, no v */
    struct linear o;
    struct gdn gdn;              /* in place of them */
    struct mlp mlp;              /* with experts: that of all tokens, if any */
    struct linear router;        /* [n_experts, hidden] */
    struct linear shared_router; /* [1, hidden] of that one; .out 0: none */
    float *correction;           /* [n_experts] of its choice, or NULL */
    struct mlp *experts;         /* [n_experts]; NULL: there is an MLP */
};

/* What a vision encoder has before and after its blocks. */
struct model_vision {
    float *cls, *registers, *positions; /* [rows, hidden]; NULL: none */
    struct linear patch;                /* [hidden, 3 patch^2] */
    struct norm before;                 /* of hidden, or NORM_NONE */
    struct linear project;              /* of the features; .out 0: none */
    float *probe; /* [hidden], or NULL: no attention in the end */
    struct linear in, up,
        down; /* of that, in [3 hidden, hidden], which is .. */
    struct linear out;
    struct norm norm;
};

struct model {
    struct config config;
    struct stdir dir;
    bool *used;       /* [dir.n_tensors] which are this model's */
    const char *root; /* of its modules' names: "model.", or a longer one where
                       * it is part of a larger model */
    struct linear embed, lm_head; /* the same w when tied */
    struct linear positions;      /* [max_positions, hidden], or .out 0 */
    float embed_scale;            /* of embeddings; 0: 1 */
    struct norm norm;             /* of hidden */
    struct layer *layers;         /* [n_layers] */
    struct model_vision vision;
    float *rotations; /* [tokens, 2, rotary_dim / 2] of an image: cosines and
                       * sines; NULL: of positions */
    double *inv_freq; /* [CONFIG_MAX_ROPES, rotary_dim / 2] */
    const struct tables *tables;   /* that some layers run on, or NULL */
    const struct splices *splices; /* of activations, or NULL */
    struct adapter *adapters;      /* the last one first, or NULL */
    size_t lora_rank;              /* the largest */
    struct form_memory packed;     /* of weights that are */
    bool stacked;  /* all experts of a layer are in a tensor or two */
    float **owned; /* [n_owned] widened norms and biases */
    size_t n_owned;
};

/*
 * model_open() maps a Hugging Face model directory and binds every weight,
 * checking names and shapes against the configuration (EX_DATAERR): one that
 * is in a layer and not the family's is another model's.  No weight is
 * converted or copied, norms and biases (small) excepted, and packed ones that
 * are in another order than gemm's. Owner: the caller,
 * until model_close(), after its engines.
 */
int model_open(struct model **model, const char *dir, struct err *err);

/* model_open_vision() is of vision encoders, which model_open() refuses, and
 * refuses others.  Of a model of images and text, the text's half is not read.
 */
int model_open_vision(struct model **model, const char *dir, struct err *err);
void model_close(struct model *model);

/* model_linear() is the linear layer of a name, as in a file but without
 * ".weight", and with or without "model."; NULL if there is none. */
struct linear *model_linear(struct model *m, const char *name);

#endif
