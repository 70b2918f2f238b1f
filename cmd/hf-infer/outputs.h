/* Where answers go. */
#ifndef HF_INFER_OUTPUTS_H
#define HF_INFER_OUTPUTS_H

#include "cmd/hf-infer/run.h"
#include "core/err.h"

/*
 * outputs_open() opens the answer's file and --lut-report's.
 * outputs_close() writes that report and gives both their names, or removes
 * them if 'rc', of the mode, is -1: 0, or -1 with 'err' set.
 */
int outputs_open(struct run *run, struct err *err);
int outputs_close(struct run *run, int rc, struct err *err);

#endif
