#include "core/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
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

int
fd_reserve(int fd, const char *name, size_t nbytes, struct err *err)
{
    int e;

    do
        e = fallocate(fd, 0, 0, (off_t)nbytes) < 0 ? errno : 0;
    while (e == EINTR);
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
