/* SPDX-License-Identifier: ISC */
/*
 * What is wrong with one dump, as lines that say it without the dump's own
 * name: what verify prints, and what info shows of it.
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

/* lines_json() appends a member: ,"KEY":["LINE",...]. */
void lines_json(struct str *to, const char *key, const struct lines *lines);

struct dump_check {
    struct read_cmd *cmd;
    const char *path; /* as the user named it */
    struct saevdir dir;
    struct lines problems;
    struct saevdir_run run;
    size_t n_part;              /* check_deep(): files of the part */
    size_t n_read, nbytes_read; /* of them, to their ends */
    char (*hex)[HASH_MAX_HEX];  /* [n_listed] what the manifest says of the
                                 * files, "": nothing; NULL: there is none */
};

/* check_init() must come first.  Owner: the caller, until check_close(). */
void check_init(struct dump_check *c, struct read_cmd *cmd, const char *path);
void check_close(struct dump_check *c);

/* problem() adds a line as it is, without the dump's path if it begins with it;
 * check_report() does as a callback of saevdir_check(), with ctx a 'struct
 * dump_check'.  Problems of shards go through 'run'. */
void problem(struct dump_check *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void check_report(void *ctx, const char *what);

/* Is the size of a file what its place allows? */
bool right_size(const struct saevdir *dir, const struct saevdir_file *f);

/*
 * Each finds problems of its own kind; -1 with 'err' set if it cannot be
 * known (EX_IOERR, or EX_TEMPFAIL: asked to stop).  check_others(): the
 * directory's name and the files that are not shards.  check_deep() reads all
 * data of the part, once, a shard a thread; asked to stop, it leaves what it
 * found in shards that were read to their ends.
 */
int check_others(struct dump_check *c, struct err *err);
int check_deep(struct dump_check *c, struct err *err);

#endif
