/*
 * What Linux has and a C library may lack: musl has no renameat2(), and
 * preadv2() since 1.2.5 alone.
 */
#ifndef CORE_COMPAT_H
#define CORE_COMPAT_H

#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2

static inline int
renameat2(int from_dir, const char *from, int to_dir, const char *to,
          unsigned flags)
{
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}
#endif

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8

/* The kernel takes the offset's upper half apart: none in 64 bits. */
static inline ssize_t
preadv2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
    return syscall(SYS_preadv2, fd, v, n, (long)at, 0L, flags);
}
#endif

#endif
