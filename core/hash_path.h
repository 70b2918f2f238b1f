/* SPDX-License-Identifier: ISC */
/*
 * Checksums of files and of directories, as metadata say what numbers are of.
 */
#ifndef CORE_HASH_PATH_H
#define CORE_HASH_PATH_H

#include <sys/types.h>

#include "core/err.h"
#include "core/hash.h"

/* hash_fd() adds a file from 'at' on, without moving where it stands; 'name' is
 * for messages.  0, or -1 with 'err' set (EX_IOERR). */
int hash_fd(struct hash *hash, int fd, const char *name, off_t at,
            struct err *err);

/*
 * hash_path() adds a file's bytes, or those of the .json and .safetensors files
 * in a directory, in the order of their names, each after its name, a 0 and its
 * size (u64); and so in the directories in it, 'depth' deep.  What cannot be
 * looked at might be one of them; a link to nothing is none.
 * 0, or -1 with 'err' set (EX_NOINPUT, EX_IOERR).
 */
int hash_path(struct hash *hash, const char *path, int depth, struct err *err);

#endif
