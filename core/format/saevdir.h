/* SPDX-License-Identifier: ISC */
/*
 * A SAEV dump on disk: its metadata.json, and whether the shards next to it are
 * those that it promises.  Names and sizes only; the data is not touched.
 * Source: man/saev.5.
 */
#ifndef CORE_FORMAT_SAEVDIR_H
#define CORE_FORMAT_SAEVDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/format/saev.h"

/* A file with a shard's name. */
struct saevdir_file {
    size_t shard;
    size_t nbytes; /* SIZE_MAX: not a regular file */
};

struct saevdir {
    char *path; /* of the dump, without a slash at its end */
    struct saev saev;
    /* set by saevdir_check(), freed by saevdir_close() */
    struct saevdir_file *files; /* [n_listed] by shard, wrong ones, too */
    size_t n_listed;
    size_t n_files; /* shards found, the extra one counted */
    size_t nbytes;  /* of all of them */
    bool padded;    /* zeros after the last image, or an extra shard of them */
};

/*
 * saevdir_open() reads the metadata and checks the shards: each exists with
 * its size, the last one short or of full size, and one more of zeros at most
 * where the images fill theirs.  Where shards.json exists, which dumps have
 * from protocol 1.0.0 on, it must have as many images of each: a writer that
 * was interrupted leaves 0, and zeros in the shard.
 * 0, or -1 with 'err' set: EX_NOINPUT (no such dump), EX_DATAERR (the first
 * problem), EX_IOERR.
 * Owner: the caller, until saevdir_close().
 */
int saevdir_open(struct saevdir *dir, const char *path, struct err *err);
void saevdir_close(struct saevdir *dir); /* a zeroed struct is fine */

/* saevdir_meta() is saevdir_open() without a look at the shards. */
int saevdir_meta(struct saevdir *dir, const char *path, struct err *err);

/*
 * saevdir_find() is the dump that 'path' names, by itself or because it is the
 * only one in that directory, as saev-write -o DIR leaves it: both functions
 * above begin with it.  The path of what may not be a dump is returned as it
 * is.  NULL with 'err' set (EX_NOINPUT): there are several.
 * Owner: the caller, free().
 */
char *saevdir_find(const char *path, struct err *err);

/*
 * saevdir_operands() makes acts/'*' name dumps alone: of operands, files that
 * lie next to a dump are left out with a warning, unless they are .npy or look
 * like an index.  Returns how many stay.
 */
int saevdir_operands(char **paths, int n);

/*
 * saevdir_check() reports every problem, one line each for neighbours with the
 * same one: "DIR/acts000003.bin .. acts000007.bin: missing".  Returns how many
 * lines, or -1 with 'err' set (EX_IOERR: the directory cannot be read).
 */
int saevdir_check(struct saevdir *dir,
                  void (*report)(void *ctx, const char *what), void *ctx,
                  struct err *err);

/* Shards with the same problem, to be reported in one line. */
struct saevdir_run {
    void (*report)(void *ctx, const char *what);
    void *ctx;
    const char *path; /* in front of names; NULL: none */
    int n_reported;
    size_t first, last;
    char *what; /* NULL: none */
};

/* saevdir_file() is the file of a shard, or NULL: none is listed. */
const struct saevdir_file *saevdir_file(const struct saevdir *dir,
                                        size_t shard);

/* saevdir_problem() adds a problem of the shards first .. last, and reports
 * those before if it is another; saevdir_end_run() is due after the last. */
void saevdir_problem(struct saevdir_run *run, size_t first, size_t last,
                     const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void saevdir_end_run(struct saevdir_run *run);

/* saevdir_name_hash(): the last name of the dump's path, or else that of what a
 * link means, if it is 64 hex digits, in any case. */
bool saevdir_name_hash(const struct saevdir *dir, char name[SAEV_HASH_MAX]);

/*
 * saevdir_name_problem() appends what is wrong with such a name, without the
 * dump's path: it is not the hash of the metadata, or in upper case.  Nothing
 * for names that are no hash, and versions that hash another form.
 * -1 with 'err' set (EX_DATAERR): the metadata cannot be hashed.
 */
int saevdir_name_problem(const struct saevdir *dir, struct str *problem,
                         struct err *err);

/* saevdir_warn_layers() warns, where a dump has several layers, that the rows
 * of all are used as one; 'option' leaves the others out. */
void saevdir_warn_layers(const struct saevdir *dir, const char *option);

/* saevdir_shard() opens a shard for reading; an fd that the caller closes, or
 * -1 with 'err' set.  saevdir_shard_path() is its name for messages. */
int saevdir_shard(const struct saevdir *dir, size_t shard, struct err *err);
void saevdir_shard_path(const struct saevdir *dir, size_t shard,
                        struct str *path);

#endif
