/* SPDX-License-Identifier: ISC */
/*
 * Preloaded into a tool, makes a call of its libc fail: see fault.h.
 * glibc on Linux alone.  Calls before main (libraries' constructors) and
 * writes to standard error are neither counted nor failed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>

#include "test/fault/fault.h"
#include "test/fault/real.h"

#ifdef __GLIBC__

static struct fault *page; /* NULL: nothing happens */

static bool
hit(enum fault_class class, const char *name)
{
    unsigned n;

    if (!page)
        return false;
    n = atomic_fetch_add(&page->calls[class], 1) + 1;
    if (class != page->class || !page->nth ||
        (page->sticky ? n < page->nth : n != page->nth))
        return false;
    if (atomic_fetch_add(&page->injected, 1) == 0)
        strncpy(page->name, name, sizeof(page->name) - 1);
    return true;
}

static _Thread_local bool due;

/* A signal that came with the call: workers take none, main does. */
static void
strike(void)
{
    int e = errno;

    if (!due)
        return;
    due = false;
    for (int i = 0; i < page->times; i++)
        kill(getpid(), page->signal);
    errno = e;
}

/* FAULT_STOP="CLASS N": a SIGSTOP after that call, for one who changes files
 * meanwhile. */
static bool
read_stop(const char *text)
{
    static struct fault own = { .signal = SIGSTOP, .times = 1 };
    int class;

    if (!text || sscanf(text, "%d %u", &class, &own.nth) != 2)
        return false;
    own.class = (enum fault_class) class;
    page = &own;
    return true;
}

/* FAULT_CLOCK=S: clocks go S seconds forth and back with each look; +S: forth
 * with each, and never back. */
static time_t
jump(void)
{
    static atomic_uint looks;
    const char *text = getenv("FAULT_CLOCK");
    unsigned n;

    if (!text)
        return 0;
    n = atomic_fetch_add(&looks, 1);
    if (*text == '+')
        return (time_t)n * atol(text);
    return n % 2 ? 0 : (time_t)atol(text);
}

/* Does a call that takes no part of its work fail? */
static bool
fails(enum fault_class class, const char *name)
{
    if (!hit(class, name))
        return false;
    due = page->signal != 0;
    if (!page->error)
        return false;
    errno = page->error;
    return true;
}

/* The same of one that does: what is left of 'n' bytes. */
static bool
fails_or_part(enum fault_class class, const char *name, size_t *n)
{
    if (!hit(class, name))
        return false;
    due = page->signal != 0;
    if (!page->error) {
        if (*n > 1 && !page->signal)
            *n = page->part && *n / page->part ? *n / page->part : 1;
        return false;
    }
    errno = page->error;
    return true;
}

#define WRAP(class, ret, failure, name, params, args)      \
    ret name params;                                       \
    ret name params                                        \
    {                                                      \
        ret value;                                         \
        REAL(ret, name, params);                           \
        value = fails(class, #name) ? failure : real args; \
        strike();                                          \
        return value;                                      \
    }

/* The same for what moves up to 'n' bytes. */
#define WRAP_PART(class, name, params, args, fd)           \
    ssize_t name params;                                   \
    ssize_t name params                                    \
    {                                                      \
        REAL(ssize_t, name, params);                       \
        ssize_t value = -1;                                \
        if ((fd) == 2 || !fails_or_part(class, #name, &n)) \
            value = real args;                             \
        strike();                                          \
        return value;                                      \
    }

/* The same for pieces of memory: part of the first that is not empty. */
#define WRAP_PIECES(class, name, params, args)             \
    ssize_t name params;                                   \
    ssize_t name params                                    \
    {                                                      \
        struct iovec part = { 0 };                         \
        ssize_t value = -1;                                \
        size_t all;                                        \
        REAL(ssize_t, name, params);                       \
        for (int i = 0; i < (int)n && !part.iov_len; i++)  \
            part = v[i];                                   \
        all = part.iov_len;                                \
        if (!fails_or_part(class, #name, &part.iov_len)) { \
            if (part.iov_len < all) {                      \
                v = &part;                                 \
                n = 1;                                     \
            }                                              \
            value = real args;                             \
        }                                                  \
        strike();                                          \
        return value;                                      \
    }

/* ---- memory ---- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *
malloc(size_t n)
{
    return fails(FAULT_ALLOC, "malloc") ? NULL : __libc_malloc(n);
}

void *
calloc(size_t n, size_t size)
{
    return fails(FAULT_ALLOC, "calloc") ? NULL : __libc_calloc(n, size);
}

void *
realloc(void *p, size_t n)
{
    return fails(FAULT_ALLOC, "realloc") ? NULL : __libc_realloc(p, n);
}

void *
memalign(size_t align, size_t n)
{
    return fails(FAULT_ALLOC, "memalign") ? NULL : __libc_memalign(align, n);
}

void *
aligned_alloc(size_t align, size_t n)
{
    return fails(FAULT_ALLOC, "aligned_alloc") ? NULL
                                               : __libc_memalign(align, n);
}

int
posix_memalign(void **p, size_t align, size_t n)
{
    int e = errno;

    *p =
        fails(FAULT_ALLOC, "posix_memalign") ? NULL : __libc_memalign(align, n);
    errno = e;
    return *p ? 0 : ENOMEM;
}

WRAP(FAULT_MAP, void *, MAP_FAILED, mmap,
     (void *p, size_t n, int prot, int flags, int fd, off_t at),
     (p, n, prot, flags, fd, at))
WRAP(FAULT_MAP, void *, MAP_FAILED, mmap64,
     (void *p, size_t n, int prot, int flags, int fd, off64_t at),
     (p, n, prot, flags, fd, at))

/* ---- files ---- */

static mode_t
mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

#define WRAP_OPEN(name, params, last, args)             \
    int name params;                                    \
    int name params                                     \
    {                                                   \
        va_list ap;                                     \
        mode_t mode;                                    \
        int fd;                                         \
        REAL(int, name, params);                        \
        va_start(ap, last);                             \
        mode = mode_of(flags, ap);                      \
        va_end(ap);                                     \
        fd = fails(FAULT_OPEN, #name) ? -1 : real args; \
        strike();                                       \
        return fd;                                      \
    }

WRAP_OPEN(open, (const char *path, int flags, ...), flags, (path, flags, mode))
WRAP_OPEN(open64, (const char *path, int flags, ...), flags,
          (path, flags, mode))
WRAP_OPEN(openat, (int at, const char *path, int flags, ...), flags,
          (at, path, flags, mode))
WRAP_OPEN(openat64, (int at, const char *path, int flags, ...), flags,
          (at, path, flags, mode))
WRAP(FAULT_OPEN, int, -1, __open_2, (const char *path, int flags),
     (path, flags))
WRAP(FAULT_OPEN, int, -1, __open64_2, (const char *path, int flags),
     (path, flags))
WRAP(FAULT_OPEN, int, -1, __openat_2, (int at, const char *path, int flags),
     (at, path, flags))
WRAP(FAULT_OPEN, int, -1, mkostemp, (char *path, int flags), (path, flags))
WRAP(FAULT_OPEN, DIR *, NULL, opendir, (const char *path), (path))
WRAP(FAULT_OPEN, DIR *, NULL, fdopendir, (int fd), (fd))
WRAP(FAULT_LIST, struct dirent *, NULL, readdir, (DIR * dir), (dir))
WRAP(FAULT_LIST, struct dirent64 *, NULL, readdir64, (DIR * dir), (dir))

WRAP_PART(FAULT_READ, read, (int fd, void *p, size_t n), (fd, p, n), 0)
WRAP_PART(FAULT_READ, __read_chk, (int fd, void *p, size_t n, size_t room),
          (fd, p, n, room), 0)
WRAP_PART(FAULT_READ, pread, (int fd, void *p, size_t n, off_t at),
          (fd, p, n, at), 0)
WRAP_PART(FAULT_READ, pread64, (int fd, void *p, size_t n, off64_t at),
          (fd, p, n, at), 0)
WRAP_PART(FAULT_READ, __pread_chk,
          (int fd, void *p, size_t n, off_t at, size_t room),
          (fd, p, n, at, room), 0)
WRAP_PIECES(FAULT_READ, readv, (int fd, const struct iovec *v, int n),
            (fd, v, n))
WRAP_PIECES(FAULT_READ, preadv,
            (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))
WRAP_PIECES(FAULT_READ, preadv2,
            (int fd, const struct iovec *v, int n, off_t at, int flags),
            (fd, v, n, at, flags))

WRAP_PART(FAULT_WRITE, write, (int fd, const void *p, size_t n), (fd, p, n), fd)
WRAP_PART(FAULT_WRITE, pwrite, (int fd, const void *p, size_t n, off_t at),
          (fd, p, n, at), fd)
WRAP_PART(FAULT_WRITE, pwrite64, (int fd, const void *p, size_t n, off64_t at),
          (fd, p, n, at), fd)
WRAP_PIECES(FAULT_WRITE, writev, (int fd, const struct iovec *v, int n),
            (fd, v, n))
WRAP_PIECES(FAULT_WRITE, pwritev,
            (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))

WRAP_PIECES(FAULT_COPY, vmsplice,
            (int fd, const struct iovec *v, size_t n, unsigned flags),
            (fd, v, n, flags))

WRAP(FAULT_SYNC, int, -1, fsync, (int fd), (fd))
WRAP(FAULT_SYNC, int, -1, fdatasync, (int fd), (fd))
WRAP(FAULT_SYNC, int, -1, syncfs, (int fd), (fd))
WRAP(FAULT_SPACE, int, -1, ftruncate, (int fd, off_t n), (fd, n))
WRAP(FAULT_SPACE, int, -1, fallocate, (int fd, int mode, off_t at, off_t n),
     (fd, mode, at, n))
WRAP(FAULT_SEEK, off_t, -1, lseek, (int fd, off_t at, int whence),
     (fd, at, whence))

/* What fails to close is closed nevertheless. */
int
close(int fd)
{
    int rc;
    REAL(int, close, (int));
    rc = real(fd) < 0 || fails(FAULT_CLOSE, "close") ? -1 : 0;
    strike();
    return rc;
}

int
closedir(DIR *dir)
{
    REAL(int, closedir, (DIR *));
    return real(dir) < 0 || fails(FAULT_CLOSE, "closedir") ? -1 : 0;
}

/* ---- names and what is known of them ---- */

WRAP(FAULT_NAME, int, -1, rename, (const char *a, const char *b), (a, b))
WRAP(FAULT_NAME, int, -1, renameat,
     (int at, const char *a, int bt, const char *b), (at, a, bt, b))
int
renameat2(int at, const char *a, int bt, const char *b, unsigned flags)
{
    int rc = -1;
    REAL(int, renameat2, (int, const char *, int, const char *, unsigned));

    if (!fails(FAULT_NAME, "renameat2"))
        rc = real(at, a, bt, b, flags);
    strike();
    return rc;
}

WRAP(FAULT_NAME, int, -1, link, (const char *a, const char *b), (a, b))
WRAP(FAULT_NAME, int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(FAULT_REMOVE, int, -1, unlink, (const char *path), (path))
WRAP(FAULT_REMOVE, int, -1, unlinkat, (int at, const char *path, int flags),
     (at, path, flags))
WRAP(FAULT_REMOVE, int, -1, rmdir, (const char *path), (path))

WRAP(FAULT_STAT, int, -1, stat, (const char *path, struct stat *st), (path, st))
WRAP(FAULT_STAT, int, -1, lstat, (const char *path, struct stat *st),
     (path, st))
WRAP(FAULT_STAT, int, -1, fstat, (int fd, struct stat *st), (fd, st))
WRAP(FAULT_STAT, int, -1, fstatat,
     (int at, const char *path, struct stat *st, int flags),
     (at, path, st, flags))
WRAP(FAULT_STAT, int, -1, statvfs, (const char *path, struct statvfs *st),
     (path, st))
WRAP(FAULT_STAT, int, -1, fstatvfs, (int fd, struct statvfs *st), (fd, st))
WRAP(FAULT_STAT, int, -1, access, (const char *path, int mode), (path, mode))
WRAP(FAULT_STAT, char *, NULL, realpath, (const char *path, char *to),
     (path, to))
WRAP(FAULT_STAT, char *, NULL, __realpath_chk,
     (const char *path, char *to, size_t room), (path, to, room))

WRAP(FAULT_RIGHTS, int, -1, chmod, (const char *path, mode_t mode),
     (path, mode))
WRAP(FAULT_RIGHTS, int, -1, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(FAULT_RIGHTS, int, -1, flock, (int fd, int how), (fd, how))

/* ---- the rest ---- */

int
pthread_create(pthread_t *thread, const pthread_attr_t *attr,
               void *(*fn)(void *), void *arg)
{
    REAL(int, pthread_create,
         (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *));
    return fails(FAULT_THREAD, "pthread_create") ? page->error
                                                 : real(thread, attr, fn, arg);
}

int
clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc;
    REAL(int, clock_gettime, (clockid_t, struct timespec *));

    rc = real(clock, t);
    if (rc == 0)
        t->tv_sec += jump();
    return rc;
}

time_t
time(time_t *to)
{
    struct timespec t = { 0 };

    clock_gettime(CLOCK_REALTIME, &t);
    if (to)
        *to = t.tv_sec;
    return t.tv_sec;
}

WRAP(FAULT_POLL, int, -1, poll, (struct pollfd * fds, nfds_t n, int timeout),
     (fds, n, timeout))
WRAP(FAULT_HINT, int, -1, sync_file_range,
     (int fd, off64_t at, off64_t n, unsigned flags), (fd, at, n, flags))
WRAP(FAULT_HINT, int, -1, madvise, (void *p, size_t n, int advice),
     (p, n, advice))
WRAP(FAULT_HINT, int, page->error, posix_fadvise,
     (int fd, off_t at, off_t n, int advice), (fd, at, n, advice))
WRAP(FAULT_HINT, int, -1, gethostname, (char *name, size_t n), (name, n))
WRAP(FAULT_HINT, int, -1, sched_getaffinity,
     (pid_t pid, size_t n, cpu_set_t *set), (pid, n, set))
WRAP(FAULT_HINT, int, -1, sched_setaffinity,
     (pid_t pid, size_t n, const cpu_set_t *set), (pid, n, set))
long
syscall(long nr, ...)
{
    long a[6];
    va_list ap;
    REAL(long, syscall, (long, ...));

    va_start(ap, nr);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (nr == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT &&
        fails(FAULT_WAIT, "futex"))
        return -1;
    return real(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- stdio, whose own calls are not libc's but inside of it ---- */

/* Handlers have SA_RESTART: stdio never meets EINTR. */
static ssize_t
cookie_read(void *cookie, char *p, size_t n)
{
    ssize_t k;

    do
        k = read((int)(intptr_t)cookie, p, n);
    while (k < 0 && errno == EINTR);
    return k;
}

static int
cookie_seek(void *cookie, off64_t *at, int whence)
{
    *at = lseek((int)(intptr_t)cookie, *at, whence);
    return *at < 0 ? -1 : 0;
}

static int
cookie_close(void *cookie)
{
    return close((int)(intptr_t)cookie);
}

/* As stdio: the rest after a part, and an error is for good. */
static ssize_t
cookie_write(void *cookie, const char *p, size_t n)
{
    size_t done = 0;

    while (done < n) {
        ssize_t k = write((int)(intptr_t)cookie, p + done, n - done);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            break;
        done += (size_t)k;
    }
    return (ssize_t)done;
}

static FILE *
open_to_read(const char *path, const char *mode)
{
    static const cookie_io_functions_t calls = { .read = cookie_read,
                                                 .seek = cookie_seek,
                                                 .close = cookie_close };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fopencookie((void *)(intptr_t)fd, mode, calls);

    if (!f && fd >= 0)
        close(fd);
    return f;
}

FILE *
fopen(const char *path, const char *mode)
{
    REAL(FILE *, fopen, (const char *, const char *));
    if (*mode == 'r' && !strchr(mode, '+'))
        return open_to_read(path, mode);
    return fails(FAULT_OPEN, "fopen") ? NULL : real(path, mode);
}

FILE *
fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

WRAP(FAULT_ALLOC, FILE *, NULL, fmemopen, (void *p, size_t n, const char *mode),
     (p, n, mode))

__attribute__((constructor)) static void
start(void)
{
    static const cookie_io_functions_t calls = { .write = cookie_write,
                                                 .close = cookie_close };
    const char *path = getenv(FAULT_PAGE);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    FILE *out = fopencookie((void *)(intptr_t)1, "w", calls);
    void *p;

    if (read_stop(getenv("FAULT_STOP")) || fd < 0 || !out)
        return;
    p = mmap(NULL, FAULT_ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return;
    stdout = out;
    page = p;
}

#else
int fault_needs_glibc;
#endif
