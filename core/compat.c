/* SPDX-License-Identifier: ISC */
#include "core/compat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if ON_LINUX
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#endif

/* ---- what the C standard and POSIX have on every system ---- */

static _Thread_local struct {
    int (*compare)(const void *a, const void *b, void *ctx);
    void *ctx;
} sorting;

static int
compare(const void *a, const void *b)
{
    return sorting.compare(a, b, sorting.ctx);
}

void
sort_with(void *items, size_t n, size_t size,
          int (*with)(const void *a, const void *b, void *ctx), void *ctx)
{
    if (n < 2) /* 0 may be of NULL, which qsort() does not take */
        return;
    sorting.compare = with;
    sorting.ctx = ctx;
    qsort(items, n, size, compare);
}

void *
last_byte(const void *s, int c, size_t n)
{
    const unsigned char *p = s;

    while (n > 0)
        if (p[--n] == (unsigned char)c)
            return (void *)(uintptr_t)(p + n);
    return NULL;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int
natural_order(const char *a, const char *b)
{
    size_t i = 0, j;

    while (a[i] && a[i] == b[i])
        i++;
    j = i; /* a number may have begun before: then more digits are more */
    while (is_digit(a[j]) && is_digit(b[j]))
        j++;
    if (is_digit(a[j]) != is_digit(b[j]) &&
        (j > i || (i > 0 && is_digit(a[i - 1]))))
        return is_digit(a[j]) ? 1 : -1;
    return (unsigned char)a[i] - (unsigned char)b[i];
}

#if defined(POSIX_FADV_WILLNEED)
#define advise(fd, offset, nbytes, what) \
    posix_fadvise(fd, offset, nbytes, POSIX_FADV_##what)
#else /* OpenBSD, macOS */
#define advise(fd, offset, nbytes, what) \
    ((void)(fd), (void)(offset), (void)(nbytes))
#endif

void
file_will_read(int fd, off_t offset, size_t nbytes)
{
    advise(fd, offset, (off_t)nbytes, WILLNEED);
}

void
file_in_order(int fd)
{
    advise(fd, 0, 0, SEQUENTIAL);
}

const char *
program_name(void)
{
#if defined(__GLIBC__) || ON_LINUX
    return program_invocation_short_name;
#else
    return getprogname();
#endif
}

bool
file_is_hole(int fd, size_t offset, size_t nbytes)
{
#ifdef SEEK_DATA /* POSIX of 2024 */
    off_t data = lseek(fd, (off_t)offset, SEEK_DATA);

    return data < 0 ? errno == ENXIO : (size_t)data >= offset + nbytes;
#else
    return false;
#endif
}

#if ON_LINUX
/* ---- Linux ---- */

void
word_wait(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void
word_wake(atomic_uint *word, int n_waiters)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n_waiters, NULL, NULL, 0);
}

int
cpu_count(void)
{
    cpu_set_t set;
    int n;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        n = CPU_COUNT(&set);
    else /* more CPUs than a cpu_set_t holds */
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : 1;
}

bool
amx_request(void)
{
#if defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ==
           0;
#else
    return false;
#endif
}

int
file_unnamed(const char *dir)
{
    return open(dir, O_RDWR | O_TMPFILE | O_EXCL | O_CLOEXEC, 0600);
}

int
file_allocate(int fd, size_t nbytes)
{
    int e;

    do
        e = fallocate(fd, 0, 0, (off_t)nbytes) < 0 ? errno : 0;
    while (e == EINTR);
    return e;
}

int
file_punch(int fd, off_t offset, size_t nbytes)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                     (off_t)nbytes);
}

void
file_write_back(int fd, size_t offset, size_t nbytes)
{
    sync_file_range(fd, (off_t)offset, (off_t)nbytes, SYNC_FILE_RANGE_WRITE);
}

void
file_sync_all(int fd)
{
    syncfs(fd);
}

void
file_direct(int fd)
{
    fcntl(fd, F_SETFL, O_DIRECT);
}

/* musl has preadv2() only since 1.2.5.  The kernel takes the offset's upper
 * half apart: none in 64 bits. */
ssize_t
pread_cached(int fd, void *to, size_t nbytes, off_t offset)
{
    enum { NOWAIT = 8 }; /* RWF_NOWAIT, which headers older than it lack */
    struct iovec v = { to, nbytes };

    return syscall(SYS_preadv2, fd, &v, 1L, (long)offset, 0L, (long)NOWAIT);
}

void
pipe_enlarge(int fd, int nbytes)
{
    (void)fcntl(fd, F_SETPIPE_SZ, nbytes); /* as it is will do, too */
}

ssize_t
pipe_lend(int fd, const struct iovec *v, size_t n)
{
    return vmsplice(fd, v, n, 0);
}

/* getdents64(2) */
struct dir_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t nbytes;
    uint8_t type;
    char name[];
};

int
remove_entries(int dir_fd)
{
    _Alignas(8) char buf[4096];
    int count = 0;
    long n;

    while ((n = syscall(SYS_getdents64, dir_fd, buf, sizeof(buf))) > 0)
        for (char *p = buf; p < buf + n;) {
            struct dir_entry *e = (void *)p;

            count += unlinkat(dir_fd, e->name, 0) == 0;
            p += e->nbytes;
        }
    return count;
}

void
pages_huge(void *p, size_t nbytes)
{
    madvise(p, nbytes, MADV_HUGEPAGE);
}

void
pages_drop(void *p, size_t nbytes)
{
    madvise(p, nbytes, MADV_DONTNEED);
}

#else
/* ---- every other system ---- */

/* Most only say that there is no such thing, whatever they are asked for. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static int
missing(void)
{
    errno = EOPNOTSUPP;
    return -1;
}

/* Whoever changes a word calls word_wake() afterwards, which takes the mutex: a
 * waiter either sees the change or sleeps already. */
static pthread_mutex_t words = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void
word_wait(atomic_uint *word, unsigned value)
{
    pthread_mutex_lock(&words);
    if (atomic_load(word) == value)
        pthread_cond_wait(&changed, &words);
    pthread_mutex_unlock(&words);
}

void
word_wake(atomic_uint *word, int n_waiters)
{
    pthread_mutex_lock(&words);
    pthread_cond_broadcast(&changed); /* others may wait for other words */
    pthread_mutex_unlock(&words);
}

int
cpu_count(void)
{
    int n = (int)sysconf(_SC_NPROCESSORS_ONLN);

    return n > 0 ? n : 1;
}

bool
amx_request(void)
{
    return false; /* how, is not known */
}

int
file_unnamed(const char *dir)
{
    return missing();
}

int
file_allocate(int fd, size_t nbytes)
{
    int e = EOPNOTSUPP; /* macOS, OpenBSD */

#if defined(_POSIX_ADVISORY_INFO) && _POSIX_ADVISORY_INFO > 0
    do
        e = posix_fallocate(fd, 0, (off_t)nbytes);
    while (e == EINTR);
#endif
    return e;
}

int
file_punch(int fd, off_t offset, size_t nbytes)
{
    return missing();
}

void
file_write_back(int fd, size_t offset, size_t nbytes)
{
}

void
file_sync_all(int fd)
{
    sync();
}

void
file_direct(int fd)
{
}

ssize_t
pread_cached(int fd, void *to, size_t nbytes, off_t offset)
{
    return missing();
}

void
pipe_enlarge(int fd, int nbytes)
{
}

ssize_t
pipe_lend(int fd, const struct iovec *v, size_t n)
{
    return missing();
}

int
remove_entries(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    int count = 0;

    while (dir && (e = readdir(dir)))
        count += unlinkat(dir_fd, e->d_name, 0) == 0;
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    return count;
}

void
pages_huge(void *p, size_t nbytes)
{
}

void
pages_drop(void *p, size_t nbytes)
{
}
#endif
