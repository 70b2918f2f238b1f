/* SPDX-License-Identifier: ISC */
/*
 * What output files, directories and scratch files do with descriptors.
 */
#ifndef CORE_FD_H
#define CORE_FD_H

#include <stddef.h>
#include <sys/uio.h>

#include "core/err.h"

/*
 * fd_free() is how many bytes are free where 'fd' is, SIZE_MAX if the file
 * system does not say.  If that seems less than 'nbytes', it waits, a second at
 * most and for a sync, for the room of what was removed just now.
 */
size_t fd_free(int fd, size_t nbytes);

/*
 * fd_reserve() asks for room for 'nbytes' of a file; a file system that cannot
 * reserve any is fine: writing will show.  'name' is for messages.
 * 0, or -1 with 'err' set (EX_IOERR): a full disk or quota.
 */
int fd_reserve(int fd, const char *name, size_t nbytes, struct err *err);

/* fd_sync() waits until a file or directory is on the disk; a file
 * system that cannot sync is fine.  0, or -1 with errno set. */
int fd_sync(int fd);

/* fd_read_only() takes all write permissions from a file; a file system
 * where modes do not change is fine.  0, or -1 with errno set. */
int fd_read_only(int fd);

/* iov_skip() takes 'nbytes', which were written, off *n pieces and returns the
 * first that is left. */
struct iovec *iov_skip(struct iovec *v, int *n, size_t nbytes);

#endif
