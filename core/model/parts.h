/* SPDX-License-Identifier: ISC */
/*
 * The parts of a model that have weights, norms and linear layers: what files
 * call them, their sizes, and where struct model has them.  One table for
 * binding a model's tensors, for layers that are found by name, and for names
 * that are written.
 * Source: the modules of Hugging Face transformers' model classes.
 */
#ifndef CORE_MODEL_PARTS_H
#define CORE_MODEL_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/model/config.h"
#include "core/str.h"

struct model;

/* In the order in which a model's are bound. */
enum model_part {
    PART_EMBED,
    PART_POSITIONS,
    PART_HEAD,
    PART_NORM,
    PART_ATTN_NORM, /* from here on, of each layer */
    PART_MLP_NORM,
    PART_ATTN_POST,
    PART_MLP_POST,
    PART_Q_NORM,
    PART_K_NORM,
    PART_Q_A_NORM,
    PART_KV_A_NORM,
    PART_SINKS,    /* a norm, as it is a vector */
    PART_GDN_NORM, /* of each value head */
    PART_QKV,
    PART_GATE_UP,
    PART_Q_A,
    PART_Q_B,
    PART_KV_A,
    PART_KV_B,
    PART_GDN_QKVZ,
    PART_GDN_BA,
    PART_GDN_QKV,
    PART_GDN_Z,
    PART_GDN_B,
    PART_GDN_A,
    PART_GDN_OUT,
    PART_Q,
    PART_K,
    PART_V,
    PART_O,
    PART_GATE,
    PART_UP,
    PART_DOWN,
    PART_ROUTER,
    PART_SHARED_ROUTER, /* what an expert of all tokens is weighed by */
    PART_SHARED_GATE,
    PART_SHARED_UP,
    PART_SHARED_DOWN,
    PART_EXPERT_GATE, /* from here on, of each expert */
    PART_EXPERT_UP,
    PART_EXPERT_DOWN,
    N_PARTS
};

/* layer and expert, which is a head where each has a norm of its own, are 0 for
 * a part that is of none. */
struct part_at {
    enum model_part part;
    size_t layer, expert;
};

/* Names are a family's; NULL is llama.
 * part_name() appends "model.layers.3.self_attn.q_proj", part_word() is the
 * last word of it, of any layer. */
struct model_family;
void part_name(struct str *to, const struct model_family *family,
               struct part_at at);
const char *part_word(const struct model_family *family, enum model_part part);

/* part_find(): which part has this name, with or without its root?  Numbers are
 * as part_name() writes them, of any model.  part_in_layer(): is a name, with
 * its root before it, one inside of a layer? */
bool part_find(struct part_at *at, const struct model_family *family,
               const char *name);
bool part_in_layer(const struct model_family *family, const char *root,
                   const char *name, size_t *layer);

/* part_module() appends the name of the module that is 'up' levels above a
 * part, without its root: of PART_UP in layer 3, "layers.3.mlp.up_proj",
 * "layers.3.mlp", "layers.3".  part_is_module(): is a name, with or without its
 * root, that of at->part?  It sets the numbers. */
void part_module(struct str *to, const struct model_family *family,
                 struct part_at at, int up);
bool part_is_module(struct part_at *at, const struct model_family *family,
                    int up, const char *name);

/* part_find_stack(): does a tensor of this name have a part of all experts?  1,
 * down; 2, gate and then up: at->part is the first, of at->layer; 0: none. */
size_t part_find_stack(struct part_at *at, const struct model_family *family,
                       const char *name);

/* part_is_in(): has the layer this part, a whole model it?  part_size() is
 * [out, in] of a linear layer, [out] of a norm with 'in' sets of weights, 1 or
 * one for each head; part_needs_bias(): does config.json demand one? */
bool part_is_in(const struct config *c, enum model_part part, size_t layer);
void part_size(const struct config *c, enum model_part part, size_t *out,
               size_t *in);
bool part_needs_bias(const struct config *c, enum model_part part);

/* part_norm(), part_linear() are where a model has it, NULL where it is of the
 * other kind, or not in this model; norms have a place in each layer. */
struct norm *part_norm(struct model *m, struct part_at at);
struct linear *part_linear(struct model *m, struct part_at at);

#endif
