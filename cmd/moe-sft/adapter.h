/* SPDX-License-Identifier: ISC */
/* Adapters of one layer's experts: in memory, and as our files. */
#ifndef MOE_SFT_ADAPTER_H
#define MOE_SFT_ADAPTER_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/base.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/format/stw.h"
#include "core/hash.h"
#include "core/model/lora_file.h"
#include "core/model/moe.h"
#include "core/str.h"

/*
 * An adapter: a stacked file, or a layer of a PEFT directory (the base's, or
 * the only one), whose experts without an adapter have zeros; it must fit
 * 'base' unless that is NULL.
 * adapter_open() reads it into memory, bf16 (F16 and F32 are rounded);
 * adapter_map() leaves the numbers in an open file, as they are, until that is
 * closed; 'layer' is which one of a directory, -1: the base's or the only one,
 * or what a stack is said to be of.
 * adapter_file_open() is lora_file_open() of an argument: a path, FILE@LAYER,
 * or a directory that train has written; TU_USAGE if another layer is asked
 * for, -1: none is. adapter_warn() counts the tensors of a PEFT directory that
 * none has mapped, and calls peft_warn(). -1 with 'err' set, as
 * lora_file_open() does; EX_DATAERR. Owner: the caller, until adapter_close().
 */
struct expert_adapter {
    size_t n_experts, hidden, intermediate, rank;
    float alpha;
    int64_t layer;            /* -1: not said */
    uint16_t *m[MOE_N_LORA];  /* as struct moe_lora; NULL: mapped */
    struct lora_pair **pairs; /* [n_experts, BASE_N], NULL: zeros; or NULL: in
                               * memory */
    const struct lora_file *file; /* theirs */
    int dtype; /* of the pairs' tensors, F32 if they differ */
};
int adapter_new(struct expert_adapter *a, const struct base *base, size_t rank,
                float alpha, struct err *err); /* zeros */
int adapter_open(struct expert_adapter *a, const char *path,
                 const struct base *base, struct err *err);
int adapter_file_open(struct lora_file *file, const char *arg, int64_t asked,
                      struct err *err);
int adapter_map(struct expert_adapter *a, struct lora_file *file, int64_t layer,
                const struct base *base, struct err *err);
int adapter_warn(struct lora_file *file, const struct stdir *base,
                 const char *under, struct err *err);
void adapter_close(struct expert_adapter *a); /* a zeroed struct is fine */
struct moe_lora adapter_lora(const struct expert_adapter *a);
void adapter_digest(const struct expert_adapter *a, struct hash *hash);

/* adapter_size() are the numbers of an expert's matrix, adapter_f32() widens
 * them. */
size_t adapter_size(const struct expert_adapter *a, enum moe_lora_matrix m);
void adapter_f32(const struct expert_adapter *a, enum moe_lora_matrix m,
                 size_t expert, float *to);

/* adapter_unchanged() is st_unchanged() of every file that a mapped adapter has
 * been read from: to be asked when its last number has been. */
int adapter_unchanged(const struct expert_adapter *a, struct err *err);

/* adapter_meta() sets the sizes as metadata of a file; adapter_put() writes
 * an expert's matrix into a tensor from that expert's place on, -1 all of them,
 * as numbers of adapter_dtype(): the file's that is mapped, else BF16. */
void adapter_meta(const struct expert_adapter *a, struct stw *w);
enum dtype adapter_dtype(const struct expert_adapter *a);
int adapter_put(const struct expert_adapter *a, struct stw *w, int tensor,
                enum moe_lora_matrix m, int64_t expert, struct err *err);

/* adapter_write() writes our file, 'flags' as out_open(). */
int adapter_write(const struct expert_adapter *a, const char *path, int flags,
                  struct err *err);

/* adapter_config() is an operator's configuration for base, adapter and k. */
struct moe_config adapter_config(const struct expert_adapter *a, size_t top_k);

#endif
