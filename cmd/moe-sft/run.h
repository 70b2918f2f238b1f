/* SPDX-License-Identifier: ISC */
/* What forward, backward and check open alike. */
#ifndef MOE_SFT_RUN_H
#define MOE_SFT_RUN_H

#include <stddef.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/verbs.h"
#include "core/err.h"
#include "core/model/moe.h"

struct sft_run {
    const struct cmd *cmd;
    struct par *par;
    struct base base;
    struct expert_adapter adapter;
    struct batch batch;
    struct moe *moe;
};

/*
 * run_files() opens base and adapter, run_batch() the command's --input, with
 * the model's routing if it has none; run_moe() makes the operator, ready for a
 * forward, or, with 'backward_only', for a cache and its backward.  0, or -1
 * with 'err' set. Owner: the caller, until run_close(); a zeroed struct is
 * fine.
 */
int run_files(struct sft_run *run, const struct cmd *cmd, struct err *err);
int run_batch(struct sft_run *run, struct err *err);
int run_moe(struct sft_run *run, size_t top_k, size_t qlen, enum moe_mode mode,
            bool backward_only, struct err *err);
void run_close(struct sft_run *run);

/* operator_open() makes an operator with base and adapter: 0, or -1 with 'err'
 * set.  *moe is for moe_close() in either case. */
int operator_open(struct moe **moe, const struct moe_config *config,
                  int n_threads, const struct base *base,
                  const struct expert_adapter *adapter, struct err *err);

/*
 * grads_open() makes room for all gradients of a batch, the adapter's as
 * grads->lora_dtype says.  0, or -1 with 'err' set (EX_SOFTWARE).
 * Owner: the caller, until grads_close(), in either case.
 */
int grads_open(struct moe_grads *grads, const struct moe_config *c, size_t qlen,
               struct err *err);
void grads_close(struct moe_grads *grads, const struct moe_config *c);

/*
 * outputs_exist(), of --if-missing: 1 if all outputs exist and are sound
 * safetensors, 0, or -1 with 'err' set.
 */
int outputs_exist(const struct cmd *cmd, const char *cache, struct err *err);

extern const char *const mode_names[]; /* "bf16", "int8", NULL */

#endif
