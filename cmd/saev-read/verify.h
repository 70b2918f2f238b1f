/*
 * What is wrong with one dump, as lines that say it without the dump's own
 * name: what beside.c and deep.c report to, and what info shows of it.
 */
#ifndef SAEV_READ_VERIFY_H
#define SAEV_READ_VERIFY_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/saev-read/cmd.h"
#include "core/format/saevdir.h"
#include "core/hash.h"

struct lines {
    char **s; /* [n] */
    size_t n, cap;
};

/* lines_add() keeps a copy of 's'. */
void lines_add(struct lines *lines, const char *s);
void lines_free(struct lines *lines);

/* A problem of neighbouring shards, not told yet. */
struct problem_run {
    size_t first, last;
    char *what; /* NULL: none */
};

struct dump_check {
    struct read_cmd *cmd;
    const char *path; /* as the user named it */
    struct saevdir dir;
    struct lines problems, notes;
    struct problem_run run;
    size_t n_part;              /* check_deep(): files of the part */
    size_t n_read, nbytes_read; /* of them, to their ends */
    struct manifest {
        size_t n, cap;
        struct manifest_entry {
            size_t shard;
            char hex[HASH_MAX_HEX];
        } * entries; /* [n] by shard */
    } manifest;
};

/* problem() adds a line as it is; shard_problem() one that begins with the
 * name of a shard, or of several neighbours with the same problem; end_run()
 * is due after the last of them. */
void problem(struct dump_check *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void shard_problem(struct dump_check *c, size_t shard, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void end_run(struct dump_check *c);

/* short_of(): a message without the dump's own name in front. */
const char *short_of(const struct dump_check *c, const char *what);

/* check_tell() has a 'struct dump_check' as ctx: what saevdir_check() is to
 * call. */
void check_tell(void *ctx, const char *what);

/* Is the size of a file what its place allows? */
bool right_size(const struct saevdir *dir, const struct saevdir_file *f);

#endif
