/* SPDX-License-Identifier: ISC */
/*
 * Adapters on disk, as pairs of matrices, each of a linear layer: PEFT's
 * directories of adapter_config.json and adapter_model.safetensors, whose
 * tensors may be of all experts of a layer, target_parameters; and stacked
 * files, which have one layer's experts in six matrices, gate_lora_a ..
 * down_lora_b, with sizes in __metadata__.
 * Source: Hugging Face peft 0.20, LoraConfig and save_pretrained();
 * man/moe-sft.5.
 */
#ifndef CORE_MODEL_LORA_FILE_H
#define CORE_MODEL_LORA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/peft.h"
#include "core/format/stdir.h"
#include "core/model/linear.h"
#include "core/model/names.h"

#define LORA_N_PROJECTIONS 3 /* of an expert: gate, up, down */

struct lora_pair {
    char *module;          /* "model.layers.0.self_attn.q_proj" */
    struct expert_name of; /* of.expert -1: of no expert.  Of A's name */
    int projection;        /* of an expert */
    int stack; /* of all experts: 1, or 1 more for each parameter that is
                * wrapped after it; lora_file_experts() replaces it */
    const struct stdir_tensor *tensor[2]; /* A's and B's */
    int n_tensors; /* of these, those that no pair before it has counted */
    bool used;     /* lora_pair_fit() has seen it */
    struct peft_pair config; /* rank, scale: y += scale b (a x) */
    struct linear a, b;      /* [rank, in], [out, rank], mapped; zeroed before
                              * lora_pair_fit() */
};

struct lora_file {
    struct stdir dir;        /* mapped */
    struct peft config;      /* of a PEFT directory */
    bool is_stack;           /* a stacked file */
    int64_t layer;           /* of a stack; -1: not said */
    struct lora_pair *pairs; /* [n_pairs] in the order of the files; a stack's:
                              * by expert, then gate, up, down */
    size_t n_pairs;
    void **owned; /* [n_owned] matrices of pairs that stacks had */
    size_t n_owned;
};

/*
 * lora_file_open() opens either form, and lists a PEFT directory's pairs.
 * 'layer' is what a stack is said to be of, FILE@LAYER; -1: what its metadata
 * say.
 * -1 with 'err' set, as stdir_open(), peft_open() and peft_pair() do; TU_USAGE
 * for a layer of a directory; EX_DATAERR for another one than in the metadata,
 * for a tensor that is neither half of a pair nor a base_layer, for half a
 * pair, and for a directory without tensors.
 * Owner: the caller, until lora_file_close(), after an error, too.
 */
int lora_file_open(struct lora_file *f, const char *path, int64_t layer,
                   struct err *err);
void lora_file_close(struct lora_file *f); /* a zeroed struct is fine */

/* The experts of a base: n 0, it is not known.  A family's names; gate and up
 * may be rows of one matrix that take turns. */
struct lora_experts {
    const struct model_family *family; /* NULL: llama */
    size_t n, hidden, intermediate;
    bool take_turns;
};

/*
 * lora_file_experts() makes pairs of each expert's matrices of those that PEFT
 * has of all experts of a layer, if there are any.  A rank that PEFT, or we,
 * gave to gate and up each by joining them is theirs again.
 * -1 with 'err' set (EX_DATAERR): they do not fit, or the base is not known; A
 * and B may be swapped, and are square.  EX_SOFTWARE: no memory.
 */
int lora_file_experts(struct lora_file *f, const struct lora_experts *of,
                      struct err *err);

/* What experts a stack is of: 0 is whatever the file has. */
struct lora_stack {
    const struct model_family *family; /* of the modules' names; NULL: llama */
    size_t n_experts, hidden, intermediate;
    size_t rank;  /* the file's */
    double alpha; /* the file's, finite as F32, too */
};

/* lora_file_stack() lists a stack's pairs as those of a layer, -1 is of none;
 * 's' is what it has to fit, and gets what the file has.  -1 with 'err' set
 * (EX_DATAERR). */
int lora_file_stack(struct lora_file *f, struct lora_stack *s, int64_t layer,
                    struct err *err);

/* lora_pair_fit() checks that PEFT takes a pair's module, and that the pair
 * fits a linear layer [out, in], with the configuration's rank.
 * -1 with 'err' set (EX_DATAERR). */
int lora_pair_fit(const struct lora_file *f, struct lora_pair *pair, size_t out,
                  size_t in, struct err *err);

#endif
