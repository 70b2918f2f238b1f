/* SPDX-License-Identifier: ISC */
/* The adapters of the command line, each with the base layer that it adapts. */
#ifndef MOE_SFT_LAYERS_H
#define MOE_SFT_LAYERS_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/verbs.h"
#include "core/err.h"
#include "core/format/stdir.h"

/*
 * layers_open() opens all adapters of the command line for merge and convert,
 * and for each the layer of the base that it adapts, if there is a base.
 *
 * Which layer that is, an adapter says itself: FILE@LAYER, the metadata of our
 * file, or the names of a PEFT directory's tensors, which may be of several
 * layers.  With one adapter, --layer or a base that has only one layer decide.
 * The list is sorted by layer; two adapters for one layer are an error.
 * All files stay mapped: weights are read when they are used.
 *
 * Returns 0, or -1 with 'err' set: TU_USAGE (a layer is unknown or named
 * twice), or as base_open() and adapter_map().
 * Owner: the caller, until layers_close().
 */
struct adapted_layer {
    const char *path; /* of -l */
    bool is_peft;     /* the last experts may be without an adapter */
    struct base base; /* zeroed without --base */
    struct expert_adapter adapter;
};
struct layers {
    const struct cmd *cmd;
    struct stdir dir;        /* the base's */
    bool adapter_says_layer; /* and not --layer or the base's only layer */
    struct lora_file *files; /* [n_files] that the list's adapters map */
    size_t n_files;
    struct adapted_layer *list; /* [n] */
    size_t n;
};
int layers_open(struct layers *l, const struct cmd *cmd, struct err *err);
void layers_close(struct layers *l); /* a zeroed struct is fine */

/* lora_add() appends the adapters of one -l, PATH[@LAYER],.., to cmd->loras. */
int lora_add(struct cmd *cmd, const char *arg, struct err *err);

#endif
