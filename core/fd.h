/*
 * What output files, folders and scratch do alike with what open(2) gave them.
 */
#ifndef CORE_FD_H
#define CORE_FD_H

#include <stddef.h>
#include <sys/uio.h>

#include "core/err.h"

/*
 * fd_free() tells how many bytes are free where 'fd' is, SIZE_MAX if the file
 * system does not say.  If that seems less than 'nbytes', it waits, a second at
 * most and for a sync, for the room of what was removed just now.
 */
size_t fd_free(int fd, size_t nbytes);

/*
 * fd_reserve() asks for room for 'nbytes' of a file; a file system that cannot
 * promise any is fine: writing will tell.  'name' is for messages.
 * 0, or -1 with 'err' set (EX_IOERR): a full disk or quota.
 */
int fd_reserve(int fd, const char *name, size_t nbytes, struct err *err);

/* fd_sync() waits until a file or folder is on the disk; a file system that
 * cannot tell is fine.  0, or -1 with errno set. */
int fd_sync(int fd);

/* fd_read_only() takes all rights to write to a file from it; a file system
 * where modes do not change is fine.  0, or -1 with errno set. */
int fd_read_only(int fd);

/* iov_skip() takes 'nbytes', which were written, off *n pieces and returns the
 * first that is left. */
struct iovec *iov_skip(struct iovec *v, int *n, size_t nbytes);

#endif
