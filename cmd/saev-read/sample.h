/*
 * --sample: the rows that come first in the order of --shuffle.
 */
#ifndef SAEV_READ_SAMPLE_H
#define SAEV_READ_SAMPLE_H

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/target.h"

/* sample_main() answers --sample: -1 with 'err' set, or 0. */
int sample_main(struct read_cmd *cmd, const struct dump_target *t,
                struct err *err);

#endif
