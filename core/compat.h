/*
 * What Linux has and a C library may lack: musl has preadv2() only since 1.2.5.
 */
#ifndef CORE_COMPAT_H
#define CORE_COMPAT_H

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

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
