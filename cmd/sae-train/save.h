/*
 * DIR of an SAE: state.safetensors and log.tsv while it is trained, then
 * cfg.json and its weights, so that what failed does not look finished.
 */
#ifndef SAE_TRAIN_SAVE_H
#define SAE_TRAIN_SAVE_H

#include "cmd/sae-train/plan.h"

/*
 * save_claim() says which files the run will write, before its input is opened.
 * save_open() makes the directory, locks it, and reads the state of the run
 * that is resumed.  save_state() writes it, and draws the picture;
 * save_result() writes the SAE.  0, or -1 with 'err' set.
 */
int save_claim(const struct planned *p, bool resume, struct err *err);
int save_open(struct planned *p, const struct train_cmd *cmd, struct err *err);
int save_state(struct planned *p, struct err *err);
int save_result(struct planned *p, struct err *err);

/* save_undo() removes what a run that failed before its first step was saved
 * has made. */
void save_undo(const struct planned *p);

#endif
