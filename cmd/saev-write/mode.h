/* What the command line asks for: a stream, a hash, images, an end. */
#ifndef SAEV_WRITE_MODE_H
#define SAEV_WRITE_MODE_H

#include "cmd/saev-write/cmd.h"
#include "cmd/saev-write/run.h"
#include "core/err.h"

/* run_mode() does what the command line asks for, and prints its answer: 0, or
 * -1 with 'err' set. */
enum write_mode { STREAM, HASH, IMAGES, FINISH };
int run_mode(struct write_run *run, const struct write_cmd *cmd,
             enum write_mode mode, struct err *err);

#endif
