/* SPDX-License-Identifier: ISC */
/*
 * DIR of an SAE: state.safetensors and log.tsv while it is trained, then
 * cfg.json and its weights, so that what failed does not look finished.
 */
#ifndef SAE_TRAIN_SAVE_H
#define SAE_TRAIN_SAVE_H

#include "cmd/sae-train/plan.h"

/*
 * save_claim() says what the run is, and which files it will write, before its
 * input is opened.  save_open() begins it, or what is resumed.  save_result()
 * writes the SAE.  0, or -1 with 'err' set.
 */
int save_claim(struct planned *p, const struct train_cmd *cmd, struct err *err);
int save_open(struct planned *p, const struct train_cmd *cmd, struct err *err);
int save_result(const struct planned *p, const struct saev_mask *mask,
                struct err *err);

#endif
