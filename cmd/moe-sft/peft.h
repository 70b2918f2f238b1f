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
 * PEFT has them of models whose experts are in one tensor; the family then says
 * whether gate's rows and up's take turns there. */
struct model_family;
int adapter_write_peft(const struct expert_adapter *adapters, size_t n,
                       const struct model_family *family, bool stacks,
                       const char *dir, int flags, struct err *err);

/* Adapters of all experts of a layer, as target_parameters has them: of gate,
 * up and down, 1 << BASE_GATE .., some.  Gate and up are one matrix, of the
 * rank of both: A's rows are those of one after the other's, and in B's columns
 * each has its own rows alone, which take turns where the base's do. */
struct peft_stacks {
    const char *root; /* of names: "model." */
    size_t layer, n_experts, rank, hidden, intermediate;
    unsigned parts;
    bool take_turns;
    enum dtype dtype;
    void (*read)(const struct peft_stacks *s, enum moe_lora_matrix m,
                 size_t expert, float *to);
    const void *of; /* read()'s, as is the next */
    size_t first;
};

/* peft_add_stacks() announces the tensors of a layer, peft_put_stacks() writes
 * them, from *tensor on, which becomes the next one.  Less than 0, with 'err'
 * set, as stw_add() and stw_write(). */
int peft_add_stacks(struct stw *w, const struct peft_stacks *s,
                    struct err *err);
int peft_put_stacks(struct stw *w, int *tensor, const struct peft_stacks *s,
                    struct err *err);

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
