/*
 * From shards to a dump: padding, checksums, metadata, one rename.
 */
#ifndef SAEV_WRITE_PUBLISH_H
#define SAEV_WRITE_PUBLISH_H

#include <stdbool.h>

#include "cmd/saev-write/run.h"

/* publish() takes the last steps of a run, finish() those of shards that were
 * written before, by it or by others; -1 with 'err' set. */
int publish(struct write_run *run, bool shared, struct err *err);
int finish(struct write_run *run, struct err *err);

#endif
