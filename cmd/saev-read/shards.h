/*
 * Pieces of a dump's shards, by as few reads as pay.  What the page cache has
 * is read as it is; of what is missing there, all between neighbours that are
 * near is read at once, up to 1 MiB.
 */
#ifndef SAEV_READ_SHARDS_H
#define SAEV_READ_SHARDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/format/saevdir.h"
#include "core/par.h"

#define SHARDS_OPEN 64 /* files open at once */

struct piece {
    size_t shard, offset, nbytes;
    void *to;
};

struct shard_file {
    size_t shard;
    int fd; /* -1: none */
    size_t call;
};

struct shards {
    const struct saevdir *dir;
    struct par *par;
    bool direct;     /* O_DIRECT, where the file system has it */
    bool sequential; /* files opened from now on are read from front to end */
    struct shard_file files[SHARDS_OPEN]; /* shard i at i % SHARDS_OPEN */
    size_t call;
    atomic_bool missed; /* set: not all was in the page cache */
    char *scratch;
    size_t n_scratch;
};

/* shards_open(): -1 with 'err' set when threads or memory cannot be had. Owner:
 * the caller, until shards_close(). */
int shards_open(struct shards *s, const struct saevdir *dir, int n_threads,
                bool direct, struct err *err);
void shards_close(struct shards *s); /* a zeroed struct is fine */

/* shards_read(): the pieces are in the order of (shard, offset), and none
 * reaches beyond the next one's end.  -1 with 'err' set (EX_IOERR, EX_DATAERR:
 * a file that ends before). */
int shards_read(struct shards *s, const struct piece *p, size_t n,
                struct err *err);

/* shards_fd(): the file of a shard, open until another takes its place; -1 with
 * 'err' set. */
int shards_fd(struct shards *s, size_t shard, struct err *err);

#endif
