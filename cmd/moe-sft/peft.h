/*
 * Adapters in PEFT's form: a directory with adapter_config.json and
 * adapter_model.safetensors, a pair of matrices for each linear layer.
 * Source: Hugging Face peft 0.17, LoraConfig, save_pretrained() and
 * get_pattern_key().
 */
#ifndef MOE_SFT_PEFT_H
#define MOE_SFT_PEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "core/err.h"
#include "core/format/peft.h"
#include "core/format/stdir.h"
#include "core/model/moe.h"
#include "core/str.h"

/*
 * An open PEFT directory, of which adapter_map_layer() maps one layer after the
 * other: they are valid until it is closed.  peft_files_layers() lists the
 * layers that have adapters of experts, in order; the caller frees it.
 * peft_files_warn() counts the tensors that are of no layer mapped so far, and
 * calls peft_warn();
 * peft_files_others(): is any A of another layer than an
 * expert's?
 */
struct peft_files {
    struct peft config;
    struct stdir dir;
    size_t n_used;
};
int peft_files_open(struct peft_files *p, const char *path, struct err *err);
int64_t *peft_files_layers(const struct peft_files *p, size_t *n);
int adapter_map_layer(struct expert_adapter *a, struct peft_files *p,
                      int64_t layer, const struct base *base, struct err *err);
int peft_files_warn(struct peft_files *p, const struct stdir *base,
                    const char *under, struct err *err);
bool peft_files_others(const struct peft_files *p);
void peft_files_close(struct peft_files *p); /* a zeroed struct is fine */

/* adapter_write_peft() writes DIR/adapter_model.safetensors and
 * DIR/adapter_config.json, whole or not at all, of adapters in order of their
 * layers. */
int adapter_write_peft(const struct expert_adapter *const *adapters, size_t n,
                       const char *dir, int flags, struct err *err);

/* What adapter_config.json says of an adapter, but for what is the same for all
 * of ours; NULL is null. */
struct peft_written {
    const char *base_model;
    size_t rank;
    double alpha;
    bool rslora;
    const char *rank_pattern, *alpha_pattern; /* JSON; NULL: {} */
    const char *layers, *targets;             /* JSON: arrays */
};

/* peft_put_alpha() appends an alpha as Python writes it, an integer without a
 * point.  peft_write_config() writes DIR/adapter_config.json, 'flags' as
 * out_open(). */
void peft_put_alpha(struct str *to, double alpha);
int peft_write_config(const struct peft_written *p, const char *dir, int flags,
                      struct err *err);

#endif
