/* SPDX-License-Identifier: ISC */
#include "core/fd.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/mem.h"

int
fd_sync(int fd)
{
    if (fsync(fd) == 0 || errno == EINVAL || errno == EBADF ||
        errno == ENOSYS || errno == EOPNOTSUPP)
        return 0;
    return -1;
}

int
fd_read_only(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -1;
    if (fchmod(fd, st.st_mode & 0444) == 0 || errno == EPERM ||
        errno == ENOSYS || errno == EOPNOTSUPP)
        return 0;
    return -1;
}

/* What a file system says is free, and all it has; SIZE_MAX if it does not say.
 * Root may have what is kept for it. */
static size_t
said_free(int fd, size_t *all)
{
    struct statvfs fs;
    size_t n;

    if (fstatvfs(fd, &fs) < 0 || fs.f_blocks == 0 || fs.f_frsize == 0 ||
        !size_mul(fs.f_blocks, fs.f_frsize, all) ||
        !size_mul(geteuid() ? fs.f_bavail : fs.f_bfree, fs.f_frsize, &n))
        return SIZE_MAX;
    return n;
}

/* btrfs frees what was removed with its next transaction, 30 s later, unless a
 * sync comes first; XFS in a thread of its own, many pieces in 0.4 s. */
size_t
fd_free(int fd, size_t nbytes)
{
    static const struct timespec moment = { .tv_nsec = 10000000 };
    size_t all = 0, n = said_free(fd, &all);

    if (n >= nbytes || nbytes > all)
        return n;
    file_sync_all(fd);
    for (int i = 0; i < 60 && (n = said_free(fd, &all)) < nbytes; i++)
        nanosleep(&moment, NULL);
    return n;
}

/* fallocate() may take all that is free before it fails: nobody else could
 * write meanwhile, and a kill would leave it so.  Where there is too little,
 * one byte shows whether the file system reserves room at all: if not, what it
 * reports as free is no reason to refuse, nor to wait. */
int
fd_reserve(int fd, const char *name, size_t nbytes, struct err *err)
{
    bool fits = fd_free(fd, 0) >= nbytes;
    int e = file_allocate(fd, fits ? nbytes : 1);

    if (e == 0 && !fits)
        e = fd_free(fd, nbytes) >= nbytes ? file_allocate(fd, nbytes) : ENOSPC;
    errno = e;
    if (e == ENOSPC || e == EDQUOT || e == EFBIG)
        return err_sys(err, EX_IOERR, "%s: no room for %zu bytes", name,
                       nbytes);
    return 0;
}

struct iovec *
iov_skip(struct iovec *v, int *n, size_t nbytes)
{
    for (; *n > 0 && nbytes >= v->iov_len; v++, --*n)
        nbytes -= v->iov_len;
    if (*n > 0) {
        v->iov_base = (char *)v->iov_base + nbytes;
        v->iov_len -= nbytes;
    }
    return v;
}
