/* SPDX-License-Identifier: ISC */
/*
 * Adapters as PEFT's directories: writing them.
 * Source: Hugging Face peft 0.20, LoraConfig, save_pretrained() and
 * get_pattern_key().
 */
#ifndef MOE_SFT_PEFT_H
#define MOE_SFT_PEFT_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/moe-sft/adapter.h"
#include "core/err.h"
#include "core/format/peft.h"
#include "core/str.h"

/* adapter_write_peft() writes DIR/adapter_model.safetensors and
 * DIR/adapter_config.json, whole or not at all, of adapters in order of their
 * layers.  'family': whose names the modules have; NULL is llama's.
 * 'stacks': of all experts of a layer together, target_parameters, as
 * PEFT has them of models whose experts are in one tensor. */
struct model_family;
int adapter_write_peft(const struct expert_adapter *const *adapters, size_t n,
                       const struct model_family *family, bool stacks,
                       const char *dir, int flags, struct err *err);

/* What adapter_config.json says of an adapter, but for what is the same for all
 * of ours; NULL is null. */
struct peft_written {
    const char *base_model;
    size_t rank;
    double alpha;
    bool rslora, in_out; /* weights of the base are [in, out] */
    const char *rank_pattern, *alpha_pattern; /* JSON; NULL: {} */
    const char *layers, *targets;             /* JSON: arrays */
    const char *parameters;                   /* JSON: an array, or NULL */
};

/* peft_put_alpha() appends an alpha as Python writes it, an integer without a
 * point.  peft_write_config() writes DIR/adapter_config.json, 'flags' as
 * out_open(). */
void peft_put_alpha(struct str *to, double alpha);
int peft_write_config(const struct peft_written *p, const char *dir, int flags,
                      struct err *err);

#endif
