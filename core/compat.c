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
#include <sys/random.h>
#include <sys/syscall.h>
#endif

/* ---- threads and CPUs ---- */

#if ON_LINUX
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
#else
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
    (void)word;
    (void)n_waiters; /* others may wait for other words */
    pthread_mutex_lock(&words);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&words);
}

int
cpu_count(void)
{
    int n = (int)sysconf(_SC_NPROCESSORS_ONLN);

    return n > 0 ? n : 1;
}
#endif

/* ---- the C library ---- */

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
    sorting.compare = with;
    sorting.ctx = ctx;
    qsort(items, n, size, compare);
}

bool
random_bytes(void *to, size_t n)
{
#if ON_LINUX
    /* up to 256 bytes come whole, whatever signals do */
    return getrandom(to, n, 0) == (ssize_t)n;
#else
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool all = fd >= 0 && read(fd, to, n) == (ssize_t)n;

    if (fd >= 0)
        close(fd);
    return all;
#endif
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

void *
last_byte(const void *s, int c, size_t n)
{
#if ON_LINUX
    return memrchr(s, c, n);
#else
    const unsigned char *p = s;

    while (n > 0)
        if (p[--n] == (unsigned char)c)
            return (void *)(uintptr_t)(p + n);
    return NULL;
#endif
}

#if ON_LINUX
int
natural_order(const char *a, const char *b)
{
    return strverscmp(a, b);
}
#else
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
#endif

/* ---- files ---- */

int
file_unnamed(const char *dir)
{
#if ON_LINUX
    return open(dir, O_RDWR | O_TMPFILE | O_EXCL | O_CLOEXEC, 0600);
#else
    (void)dir;
    errno = EOPNOTSUPP;
    return -1;
#endif
}

int
file_allocate(int fd, size_t nbytes)
{
    int e = EOPNOTSUPP; /* macOS, OpenBSD */

#if ON_LINUX
    do
        e = fallocate(fd, 0, 0, (off_t)nbytes) < 0 ? errno : 0;
    while (e == EINTR);
#elif defined(_POSIX_ADVISORY_INFO) && _POSIX_ADVISORY_INFO > 0
    do
        e = posix_fallocate(fd, 0, (off_t)nbytes);
    while (e == EINTR);
#else
    (void)fd;
    (void)nbytes;
#endif
    return e;
}

int
file_punch(int fd, off_t offset, size_t nbytes)
{
#if ON_LINUX
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                     (off_t)nbytes);
#else
    (void)fd;
    (void)offset;
    (void)nbytes;
    return -1;
#endif
}

void
file_write_back(int fd, size_t offset, size_t nbytes)
{
#if ON_LINUX
    sync_file_range(fd, (off_t)offset, (off_t)nbytes, SYNC_FILE_RANGE_WRITE);
#else
    (void)fd;
    (void)offset;
    (void)nbytes;
#endif
}

void
file_sync_all(int fd)
{
#if ON_LINUX
    syncfs(fd);
#else
    (void)fd;
    sync();
#endif
}

void
file_will_read(int fd, off_t offset, size_t nbytes)
{
#if defined(POSIX_FADV_WILLNEED) /* POSIX has it, macOS does not */
    posix_fadvise(fd, offset, (off_t)nbytes, POSIX_FADV_WILLNEED);
#else
    (void)fd;
    (void)offset;
    (void)nbytes;
#endif
}

void
file_in_order(int fd)
{
#if defined(POSIX_FADV_SEQUENTIAL)
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#else
    (void)fd;
#endif
}

void
file_direct(int fd)
{
#if ON_LINUX
    fcntl(fd, F_SETFL, O_DIRECT);
#else
    (void)fd;
#endif
}

/* musl has preadv2() only since 1.2.5.  The kernel takes the offset's upper
 * half apart: none in 64 bits. */
ssize_t
pread_cached(int fd, void *to, size_t nbytes, off_t offset)
{
#if ON_LINUX
    enum { NOWAIT = 8 }; /* RWF_NOWAIT, which headers older than it lack */
    struct iovec v = { to, nbytes };

    return syscall(SYS_preadv2, fd, &v, 1L, (long)offset, 0L, (long)NOWAIT);
#else
    (void)fd;
    (void)to;
    (void)nbytes;
    (void)offset;
    errno = EOPNOTSUPP;
    return -1;
#endif
}

ssize_t
copy_range(int from, int to, size_t nbytes)
{
#if ON_LINUX
    return copy_file_range(from, NULL, to, NULL, nbytes, 0);
#else
    (void)from;
    (void)to;
    (void)nbytes;
    errno = EOPNOTSUPP;
    return -1;
#endif
}

ssize_t
copy_spliced(int from, int to, size_t nbytes)
{
#if ON_LINUX
    return splice(from, NULL, to, NULL, nbytes, SPLICE_F_MOVE);
#else
    (void)from;
    (void)to;
    (void)nbytes;
    errno = EOPNOTSUPP;
    return -1;
#endif
}

/* ---- pipes, directories, memory ---- */

void
pipe_enlarge(int fd, int nbytes)
{
#if ON_LINUX
    (void)fcntl(fd, F_SETPIPE_SZ, nbytes); /* as it is will do, too */
#else
    (void)fd;
    (void)nbytes;
#endif
}

ssize_t
pipe_lend(int fd, const struct iovec *v, size_t n)
{
#if ON_LINUX
    return vmsplice(fd, v, n, 0);
#else
    (void)fd;
    (void)v;
    (void)n;
    errno = EOPNOTSUPP;
    return -1;
#endif
}

#if ON_LINUX
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
#else
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
#endif

void
pages_huge(void *p, size_t nbytes)
{
#if ON_LINUX
    madvise(p, nbytes, MADV_HUGEPAGE);
#else
    (void)p;
    (void)nbytes;
#endif
}
