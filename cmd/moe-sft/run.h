/* What forward and backward open alike. */
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
    struct base base;
    struct expert_adapter adapter;
    struct batch batch;
    struct moe *moe;
};
int run_files(struct sft_run *run, const struct cmd *cmd, struct err *err);
int run_moe(struct sft_run *run, size_t top_k, size_t qlen, enum moe_mode mode,
            struct err *err);          /* opens, loads, ready for a forward */
void run_close(struct sft_run *run);   /* a zeroed struct is fine */
extern const char *const mode_names[]; /* "bf16", "int8", NULL */

#endif
