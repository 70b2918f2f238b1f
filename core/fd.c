#include "core/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

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

/* As far as the file system says; root may have what is kept for it. */
static bool
has_room(int fd, size_t nbytes)
{
    struct statvfs fs;

    return fstatvfs(fd, &fs) < 0 || fs.f_blocks == 0 || fs.f_frsize == 0 ||
           nbytes / fs.f_frsize <= (geteuid() ? fs.f_bavail : fs.f_bfree);
}

/* fallocate() may take all that is free before it fails: nobody else could
 * write meanwhile, and a kill would leave it so.  Where there is too little,
 * one byte tells whether the file system promises room at all: of one that does
 * not, what it says is free is no reason to refuse. */
int
fd_reserve(int fd, const char *name, size_t nbytes, struct err *err)
{
    bool fits = has_room(fd, nbytes);
    int e;

    do
        e = fallocate(fd, 0, 0, fits ? (off_t)nbytes : 1) < 0 ? errno : 0;
    while (e == EINTR);
    if (e == 0 && !fits)
        e = ENOSPC;
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
