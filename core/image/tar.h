/* SPDX-License-Identifier: ISC */
/*
 * Tar archives as a stream, a pipe's too: regular files in their order.
 * ustar, GNU's long names, pax's path.  Members have less than 8 GiB.
 * Source: POSIX.1-2017 pax(1), "ustar Interchange Format"; GNU tar's manual,
 * "Basic Tar Format"; which types have data: Python's tarfile.
 */
#ifndef CORE_IMAGE_TAR_H
#define CORE_IMAGE_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/str.h"

#define TAR_BLOCK 512

/* Begins as zeros but for fd, name, and the block that was read to sniff. */
struct tar {
    int fd;
    const char *name; /* for messages */
    uint8_t block[TAR_BLOCK];
    bool has_block; /* the next header is there already */
    size_t at;      /* bytes before what is read next */
    struct str path;
    size_t nbytes;       /* of the member */
    size_t left, n_last; /* bytes of it not read; of its last block unused */
};

/* tar_sniff(): are these first bytes of a file a member's header? */
bool tar_sniff(const void *head, size_t nbytes);

/*
 * tar_next() goes to the next regular file: its path, without a NUL, and its
 * nbytes.  1, 0 at the end, after which all of the stream has been read, or -1
 * with 'err' set (EX_DATAERR, "NAME: ..."; EX_IOERR).  err_warn() says if the
 * end's mark is missing, or more follows it.
 * Memory: the path, of at most TAR_MAX_NOTE bytes.
 */
#define TAR_MAX_NOTE                                          \
    ((size_t)1 << 16) /* bytes of a long name, of pax records \
                       */
int tar_next(struct tar *tar, struct err *err);

/* tar_read() appends the member's bytes, growing with what arrives.  0, or -1
 * with 'err' set: the archive ends before them. */
int tar_read(struct tar *tar, struct str *to, struct err *err);

void tar_free(struct tar *tar); /* but not its fd; a zeroed struct is fine */

#endif
