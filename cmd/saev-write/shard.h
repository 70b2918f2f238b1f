/*
 * One shard: is it complete in the folder, and its images from the stream.
 */
#ifndef SAEV_WRITE_SHARD_H
#define SAEV_WRITE_SHARD_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/saev-write/run.h"
#include "core/out.h"

/* shard_path() leaves its path in 'path'. */
void shard_path(const struct write_run *run, size_t shard, struct str *path);

/* shard_there(): is there a file of its size?  shard_check() passes the stream
 * over a complete one, which must be what the stream has; -1 with 'err' set, as
 * all below. */
bool shard_there(const struct write_run *run, size_t shard);
int shard_check(struct write_run *run, size_t shard, struct err *err);

/* shard_write() fills one from the stream.  shard_pad() adds zeros to it and
 * its hash (or NULL), shard_set_sum() keeps that. */
int shard_write(struct write_run *run, size_t shard, struct err *err);
int shard_pad(struct out *out, struct hash *hash, size_t nbytes,
              struct err *err);
void shard_set_sum(struct write_run *run, size_t shard, size_t nbytes,
                   struct hash *hash);

#endif
