/* SPDX-License-Identifier: ISC */
/* Base weights of one layer's experts, as files have them. */
#ifndef MOE_SFT_BASE_H
#define MOE_SFT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/stdir.h"
#include "core/hash.h"
#include "core/model/form.h"
#include "core/model/moe.h"
#include "core/model/router.h"
#include "core/par.h"
#include "core/str.h"

/*
 * Base weights, mapped: stacked (gate_proj, up_proj [E, I, H], down_proj
 * [E, H, I]; with or without a prefix and ".weight"; I8 with gate_proj_scale
 * and so on, as quantize writes them), or of a layer of a
 * Hugging Face directory (model.layers.N.mlp.experts.E.gate_proj.weight, ..),
 * packed as core/model/form.h knows it or not; with biases where the family
 * has them, stacked as gate_proj_bias [E, I] and so on.
 * layer: -1 for the only one; where there are several, it must be named.
 * base_open(): -1 with 'err' set: as stdir_open(); EX_DATAERR names the
 * tensor, what was found and what was expected; an adapter is refused as one.
 * Owner: the caller, until base_close().
 */
enum base_matrix { BASE_GATE, BASE_UP, BASE_DOWN, BASE_N };
const char *base_word(enum base_matrix m); /* "gate_proj", .. */

struct base {
    const char *path; /* the caller's */
    struct stdir dir;
    int64_t layer; /* -1: stacked, without a number */
    size_t n_experts, hidden, intermediate;
    struct moe_base weights;
    struct weight *matrices;    /* [BASE_N, n_experts] */
    const float *scale[BASE_N]; /* of I8: [n_experts, rows]; else NULL */
    const char *type;           /* of packed weights, "int4 g128"; or NULL */
    struct quantization packed; /* of the directory's config.json */
    struct form_memory memory;
    const struct model_family *family; /* config.json's; or NULL */
    enum act act;                      /* of gate and up */
    const float **bias;                /* [BASE_N, n_experts]; NULL: none */
    float **owned;                     /* [n_owned] what is here in f32 */
    size_t n_owned;
    /* tensors are PREFIX gate_proj SUFFIX, PREFIX E.gate_proj SUFFIX, or of
     * gate and up together PREFIX gate_up_proj */
    bool stacked, joined;
    char *prefix;
    const char *suffix;
    /* of the directory's config.json; 0 where it does not say */
    size_t top_k;
    struct router_kind routing;
    bool routes; /* model_type has a router that batch_route() knows */
    struct gemm_matrix router; /* mlp.gate.weight [E, H]; data NULL: none */
    const float *router_bias;  /* [E], or NULL */
    const float *correction;   /* [E] of its choice, or NULL */
};
int base_open(struct base *base, const char *path, int64_t layer,
              struct err *err);
void base_close(struct base *base); /* a zeroed struct is fine */

/* base_routing() reads what the base's config.json says of routing, for
 * base_open(): -1 with 'err' set. */
int base_routing(struct base *base, struct err *err);

/* base_tensor_name() appends a tensor's name; 'expert' where not stacked. */
void base_tensor_name(const struct base *base, enum base_matrix m,
                      size_t expert, struct str *name);

/* base_weights() is an expert's matrix. */
struct gemm_matrix base_weights(const struct base *base, enum base_matrix m,
                                size_t expert);

size_t base_nbytes(const struct base *base); /* of all weights, in the file */

/*
 * base_mode() is the mode that was asked for, or where it is -1 that of the
 * weights: -1 with 'err' set (TU_USAGE) for bf16 of int8 weights.
 * base_want_float() refuses int8 (EX_DATAERR).
 */
int base_mode(const struct base *base, int asked, enum moe_mode *mode,
              struct err *err);
int base_want_float(const struct base *base, struct err *err);

/*
 * base_check_matrix() looks for NaN and Inf in an expert's weights, as they are
 * after rounding to bf16 if 'rounded': one of them is in the output of every
 * token of that expert.  base_check() does for all.  Scales and biases are
 * checked by base_open().  0, or -1 with 'err' set (EX_DATAERR).
 */
int base_check_matrix(const struct base *base, enum base_matrix m,
                      size_t expert, bool rounded, struct par *par,
                      struct err *err);
int base_check(const struct base *base, struct par *par, struct err *err);

/* base_digest() adds all of the weights and their shapes to 'hash'. */
void base_digest(const struct base *base, struct hash *hash);

#endif
