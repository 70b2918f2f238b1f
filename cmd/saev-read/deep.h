/*
 * The data of a dump, read once: a thread a shard.
 */
#ifndef SAEV_READ_DEEP_H
#define SAEV_READ_DEEP_H

#include "cmd/saev-read/verify.h"
#include "core/err.h"

/*
 * Each finds problems of its own kind; -1 with 'err' set if it cannot be
 * known (EX_IOERR, or EX_TEMPFAIL: asked to stop).  check_deep() reads all data
 * of the part, once; asked to stop, it leaves what it found in shards that were
 * read to their ends.
 */
int check_holes(struct dump_check *c, struct err *err);
int check_deep(struct dump_check *c, struct err *err);

#endif
