/* SPDX-License-Identifier: ISC */
/*
 * A model's tensors: one safetensors file, or a directory with
 * model.safetensors, or with shards and model.safetensors.index.json, or with
 * model-00001-of-00001.safetensors, or with exactly one *.safetensors file of
 * another name (adapter_model.safetensors), but not one of several shards.
 * The first of these that is there counts, as with transformers.
 */
#ifndef CORE_FORMAT_STDIR_H
#define CORE_FORMAT_STDIR_H

#include "core/format/st.h"

struct stdir_tensor {
    const struct st_tensor *t;
    const struct st *st; /* the file it is in */
};

struct stdir {
    char *path;
    size_t n_files;
    struct st *files; /* [n_files], in order of first use in the index */
    size_t n_tensors;
    struct stdir_tensor *tensors; /* [n_tensors], sorted by name (bytes) */
};

/*
 * stdir_open() opens a file or directory and checks every header, every path of
 * the index (relative, no "." but "./" before it, no ".." or empty component,
 * no backslash or NUL, ends in .safetensors), and that each tensor is where the
 * index says. A total_size that does not fit is a warning.  A tensor of a shard
 * that the index does not name is left out, as the index decides.  Two shards
 * that are one file, by links, are refused: it would be read once for each
 * name. 0, or -1 with 'err' set as st_open() does; EX_NOINPUT for a directory
 * without tensors; a missing shard or tensor names both (EX_DATAERR).  After an
 * error there is nothing to close.  Symbolic links are followed: hub caches are
 * made of them.
 */
int stdir_open(struct stdir *dir, const char *path, struct err *err);
/* st_map(), st_unchanged() of every file */
int stdir_map(struct stdir *dir, struct err *err);
int stdir_unchanged(const struct stdir *dir, struct err *err);
void stdir_close(struct stdir *dir); /* a zeroed struct is fine */

/* stdir_has(): is there an entry of that name?  A dangling link is one, which
 * must be reported, and so is what cannot be looked at. */
bool stdir_has(const char *path, const char *name);

/*
 * stdir_check(): is it a directory with a model's files, those of its weights
 * among them if 'weights' are needed?  0, and all of them are inputs of this
 * command; or -1 with 'err' set, which says what is there instead: EX_NOINPUT,
 * EX_DATAERR (a file), or which is an output, TU_USAGE.
 * stdir_wrong() is -1 with EX_NOINPUT: what a directory has not, as 'what'
 * says, and what it seems to be instead.
 */
int stdir_check(const char *path, bool weights, struct err *err);
int stdir_wrong(const char *path, const char *what, struct err *err);

#define STDIR_ONE_FILE   "model.safetensors"
#define STDIR_INDEX      "model.safetensors.index.json"
#define STDIR_ONE_SHARD  "model-00001-of-00001.safetensors"
#define STDIR_NO_WEIGHTS "has no " STDIR_ONE_FILE " and no " STDIR_INDEX

/* stdir_find() finds a tensor by name in O(log n); NULL if there is none.
 * stdir_find_n() takes names with NULs in them, of 'n' bytes. */
const struct stdir_tensor *stdir_find(const struct stdir *dir,
                                      const char *name);
const struct stdir_tensor *stdir_find_n(const struct stdir *dir,
                                        const char *name, size_t n);

#endif
