/* Several adapters, each with its layer of the base. */
#ifndef MOE_SFT_LAYERS_H
#define MOE_SFT_LAYERS_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/peft.h"
#include "cmd/moe-sft/verbs.h"
#include "core/err.h"
#include "core/format/stdir.h"

/*
 * Layers with their adapters, of merge and convert: of all adapters of the
 * command line, each of the layer that it says it is of; of one alone also of
 * the layer that the command line or the base says.  In order of the layers,
 * no two of the same.  Numbers stay in the files.
 * Owner: the caller, until layers_close().
 */
struct adapted_layer {
    const char *path; /* as -l has it */
    bool is_peft;     /* its last experts may have no adapter */
    struct base base; /* if the command has one */
    struct expert_adapter adapter;
};
struct layers {
    const struct cmd *cmd;
    struct stdir dir; /* the base's */
    bool each;        /* adapters say their layers, not the base */
    struct peft_files *folders;
    size_t n_folders;
    struct adapted_layer *list; /* [n] */
    size_t n;
};
int layers_open(struct layers *l, const struct cmd *cmd, struct err *err);
void layers_close(struct layers *l); /* a zeroed struct is fine */

/* lora_add() appends what an argument of -l lists: PATH[@LAYER],.. */
int lora_add(struct cmd *cmd, const char *arg, struct err *err);

#endif
