/* SPDX-License-Identifier: ISC */
/*
 * The linear layers of a model that may have an adapter, in each of its
 * layers: their short names, and the family's, as in PEFT's target_modules.
 */
#ifndef CORE_MODEL_TRAIN_LM_TARGET_H
#define CORE_MODEL_TRAIN_LM_TARGET_H

#include <stddef.h>

#include "core/model/config.h"
#include "core/model/parts.h"
#include "core/str.h"

/* In the order of everything that lists them.  Of fused matrices, that of q, k
 * and v is LM_Q, that of gate and up LM_GATE; then there is no other of
 * these.  Of MLA LM_Q is q_a_proj, LM_K kv_a_proj_with_mqa, LM_V kv_b_proj. */
enum lm_target {
    LM_Q,
    LM_K,
    LM_V,
    LM_O,
    LM_GATE,
    LM_UP,
    LM_DOWN,
    LM_Q_B,    /* MLA's q_b_proj */
    LM_IN_QKV, /* Gated DeltaNet's in_proj_qkvz or _qkv, _z, _ba or _b, _a */
    LM_IN_Z,
    LM_IN_B,
    LM_IN_A,
    LM_OUT, /* and its out_proj */
    LM_N_TARGETS
};

/* Sets have bit 1 << LM_Q, ..; what a model does not have may be in them. */
#define LM_ALL_TARGETS ((1u << LM_N_TARGETS) - 1)

/* lm_target_part() is which part of this model that is, outside of experts, in
 * the layers that have it; N_PARTS: it has no such matrix.  lm_target_name():
 * "q", .., "qkv", "gate_up", as in --targets. */
enum model_part lm_target_part(const struct config *config, enum lm_target t);
const char *lm_target_name(const struct config *config, enum lm_target t);

/* lm_target_find() is the set of the targets that a word of n bytes names: by
 * lm_target_name(), or as PEFT does by the end of a module's name in a layer,
 * such as GPT-2's "c_proj", which are two, or "attn.c_proj".  0: none. */
unsigned lm_target_find(const struct config *config, const char *word,
                        size_t n);

/* lm_target_modules() appends the words that name these targets and no other,
 * each in quotes, or whatever 'quote' is, and ", " between them. */
void lm_target_modules(struct str *to, const struct config *config,
                       unsigned targets, const char *quote);

#endif
