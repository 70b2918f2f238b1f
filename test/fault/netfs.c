/* SPDX-License-Identifier: ISC */
/*
 * Preloaded into a tool, takes from its file systems what clients of NFS,
 * Lustre, GPFS, SMB or FUSE lack or do otherwise: FAULT_FS="QUIRK ...", each
 * one of 'quirks' below, with ":N" another errno than that there.
 * glibc on Linux alone.  Not the nth call is met, as by shim.c, but every one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "test/fault/real.h"

#ifdef __GLIBC__

#define NAME_BYTES 143 /* of eCryptfs */
#define MAX_FD     256
#define LISTED     4 /* entries at once */

enum quirk {
    NO_LOCK,
    NO_DIRSYNC,
    NO_SYNC,
    NO_ROOM,
    NO_HINT,
    NO_DIRECT,
    NO_TMPFILE,
    NO_LINK,
    NO_OVER,
    NO_SHARED,
    NO_MAP,
    NO_CHMOD,
    NO_SEEK,
    NO_STATVFS,
    FULL,
    TWICE,
    RIGHTS,
    LEASE,
    SHORT,
    SKIP,
    SILLY,
    ODD_STAT,
    CLOSE,
    BLIND,
    DEAD,
    N_QUIRKS
};

static struct {
    const char *name;
    int error;
    bool on;
} quirks[N_QUIRKS] = {
    [NO_LOCK] = { "no-lock", ENOLCK, 0 },
    [NO_DIRSYNC] = { "no-dirsync", EINVAL, 0 }, /* fsync() of directories */
    [NO_SYNC] = { "no-sync", EINVAL, 0 },       /* of files */
    [NO_ROOM] = { "no-room", EOPNOTSUPP, 0 },   /* fallocate() */
    [NO_HINT] = { "no-hint", EINVAL, 0 },       /* what may fail */
    [NO_DIRECT] = { "no-direct", EINVAL, 0 },
    [NO_TMPFILE] = { "no-tmpfile", EOPNOTSUPP, 0 },
    [NO_LINK] = { "no-link", EPERM, 0 },
    [NO_OVER] = { "no-over", EPERM, 0 }, /* a directory's rename, to another's;
                                        0: is said to be done, as where unions
                                        did it in part */
    [NO_SHARED] = { "no-shared", ENODEV, 0 }, /* MAP_SHARED; FUSE, direct */
    [NO_MAP] = { "no-map", ENODEV, 0 },       /* of files at all */
    [NO_CHMOD] = { "no-chmod", EPERM, 0 },
    [NO_SEEK] = { "no-seek", EINVAL, 0 },   /* to data and holes */
    [NO_STATVFS] = { "no-statvfs", 0, 0 },  /* has no blocks, and none free */
    [FULL] = { "full", 0, 0 },              /* has blocks, but none free */
    [TWICE] = { "twice", 0, 0 },            /* each second answer is lost; asked
                                               again, the server has done it */
    [RIGHTS] = { "rights", EACCES, 0 },     /* are what mkdir() looks at first,
                                               then whether it is there */
    [LEASE] = { "lease", EWOULDBLOCK, 0 },  /* another's, for who cannot wait */
    [SHORT] = { "short", ENAMETOOLONG, 0 }, /* names */
    [SKIP] = { "skip", 0, 0 },              /* listing, as entries go */
    [SILLY] = { "silly", 0, 0 },            /* what is open keeps a name */
    [ODD_STAT] = { "odd-stat", 0, 0 },      /* large inodes, no blocks, whole
                                               seconds of the future */
    [BLIND] = { "blind", ESTALE, 0 },       /* access() of what is there */
    [DEAD] = { "dead", EIO, 0 },            /* from a file's sync on */
    [CLOSE] = { "close", EDQUOT, 0 },       /* of what was written */
};

static bool
refuses(enum quirk q)
{
    if (quirks[q].on)
        errno = quirks[q].error;
    return quirks[q].on;
}

/* 'name' fails where 'when' and the quirk are true. */
#define WRAP(quirk, when, ret, failure, name, params, args)    \
    ret name params;                                           \
    ret name params                                            \
    {                                                          \
        REAL(ret, name, params);                               \
        return (when) && refuses(quirk) ? failure : real args; \
    }

static bool
is_dir(int fd)
{
    return fcntl(fd, F_GETFL) & O_DIRECTORY;
}

WRAP(NO_LOCK, true, int, -1, flock, (int fd, int how), (fd, how))

static bool is_dead;

int
fsync(int fd)
{
    REAL(int, fsync, (int));

    is_dead |= quirks[DEAD].on && !is_dir(fd);
    if (is_dead && refuses(DEAD))
        return -1;
    return refuses(is_dir(fd) ? NO_DIRSYNC : NO_SYNC) ? -1 : real(fd);
}

WRAP(NO_SYNC, true, int, -1, fdatasync, (int fd), (fd))
WRAP(NO_ROOM, true, int, -1, fallocate, (int fd, int mode, off_t at, off_t n),
     (fd, mode, at, n))
WRAP(NO_HINT, true, int, -1, sync_file_range,
     (int fd, off64_t at, off64_t n, unsigned flags), (fd, at, n, flags))
WRAP(NO_HINT, true, int, -1, madvise, (void *p, size_t n, int advice),
     (p, n, advice))
WRAP(NO_HINT, true, int, quirks[NO_HINT].error, posix_fadvise,
     (int fd, off_t at, off_t n, int advice), (fd, at, n, advice))
WRAP(NO_HINT, true, ssize_t, -1, preadv2,
     (int fd, const struct iovec *v, int n, off_t at, int flags),
     (fd, v, n, at, flags))
WRAP(NO_CHMOD, true, int, -1, chmod, (const char *path, mode_t mode),
     (path, mode))
WRAP(NO_CHMOD, true, int, -1, fchmod, (int fd, mode_t mode), (fd, mode))

void *
mmap(void *p, size_t n, int prot, int flags, int fd, off_t at)
{
    REAL(void *, mmap, (void *, size_t, int, int, int, off_t));
    if (fd >= 0 &&
        ((flags & MAP_SHARED && refuses(NO_SHARED)) || refuses(NO_MAP)))
        return MAP_FAILED;
    return real(p, n, prot, flags, fd, at);
}

/* ---- names ---- */

static bool
is_long(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strlen(slash ? slash + 1 : path) > NAME_BYTES && refuses(SHORT);
}

long
pathconf(const char *path, int name)
{
    REAL(long, pathconf, (const char *, int));
    return quirks[SHORT].on && name == _PC_NAME_MAX ? NAME_BYTES
                                                    : real(path, name);
}

static bool
is_over(const char *path)
{
    struct stat st;

    return syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 &&
           S_ISDIR(st.st_mode) && refuses(NO_OVER);
}

/* Was it done, and the client is not told? */
static bool
lost(int rc, unsigned *calls, int error)
{
    if (rc < 0 || !quirks[TWICE].on || (*calls)++ % 2)
        return false;
    errno = error;
    return true;
}

#define WRAP_NAME(name, params, args, is_refused, error) \
    int name params;                                     \
    int name params                                      \
    {                                                    \
        static unsigned calls;                           \
        int rc;                                          \
        REAL(int, name, params);                         \
        rc = (is_refused) ? -(errno != 0) : real args;   \
        return lost(rc, &calls, error) ? -1 : rc;        \
    }

WRAP_NAME(link, (const char *a, const char *b), (a, b),
          is_long(b) || refuses(NO_LINK), EEXIST)
WRAP_NAME(rename, (const char *a, const char *b), (a, b),
          is_long(b) || is_over(b), ENOENT)
WRAP_NAME(renameat, (int at, const char *a, int bt, const char *b),
          (at, a, bt, b), is_long(b), ENOENT)
WRAP_NAME(mkdir, (const char *path, mode_t mode), (path, mode),
          is_long(path) || (syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0 &&
                            refuses(RIGHTS)),
          EEXIST)
WRAP_NAME(rmdir, (const char *path), (path), false, ENOENT)

static int
real_open(const char *path, int flags, mode_t mode)
{
    static unsigned calls;
    int fd;
    REAL(int, open, (const char *, int, ...));

    fd = real(path, flags, mode);
    if (!(flags & O_EXCL) || !lost(fd, &calls, EEXIST))
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

static bool
open_is_refused(const char *path, int flags)
{
    struct stat st;

    return is_long(path) || (flags & O_DIRECT && refuses(NO_DIRECT)) ||
           ((flags & O_TMPFILE) == O_TMPFILE && refuses(NO_TMPFILE)) ||
           (flags & O_NONBLOCK && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
            refuses(LEASE));
}

int
open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list ap;

    va_start(ap, flags);
    if (flags & (O_CREAT | __O_TMPFILE))
        mode = va_arg(ap, mode_t);
    va_end(ap);
    return open_is_refused(path, flags) ? -1 : real_open(path, flags, mode);
}

int
fcntl(int fd, int what, ...)
{
    va_list ap;
    long arg;
    REAL(int, fcntl, (int, int, ...));

    va_start(ap, what);
    arg = va_arg(ap, long);
    va_end(ap);
    if (what == F_SETFL && arg & O_DIRECT && refuses(NO_DIRECT))
        return -1;
    return real(fd, what, arg);
}

/* ---- what is open, but has no name ---- */

static unsigned listed[MAX_FD]; /* entries that were told of a directory */

static bool
is_open(const struct stat *st)
{
    struct stat own;

    for (int fd = 3; fd < MAX_FD; fd++)
        if (syscall(SYS_fstat, fd, &own) == 0 && own.st_ino == st->st_ino &&
            own.st_dev == st->st_dev)
            return true;
    return false;
}

int
unlinkat(int at, const char *path, int flags)
{
    static unsigned calls;
    const char *slash = strrchr(path, '/');
    char to[4200];
    struct stat st;
    int rc;
    REAL(int, unlinkat, (int, const char *, int));

    if (quirks[SILLY].on && !(flags & AT_REMOVEDIR) &&
        syscall(SYS_newfstatat, at, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_open(&st)) {
        if (!strncmp(slash ? slash + 1 : path, ".nfs", 4)) {
            errno = EBUSY;
            return -1;
        }
        snprintf(to, sizeof(to), "%.*s.nfs%016llx",
                 slash ? (int)(slash + 1 - path) : 0, path,
                 (unsigned long long)st.st_ino);
        return (int)syscall(SYS_renameat2, at, path, at, to, 0);
    }
    rc = real(at, path, flags);
    return lost(rc, &calls, ENOENT) ? -1 : rc;
}

int
unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

/* The client removes it once it is closed. */
static bool
silly_name(int fd, char path[4200])
{
    char self[40];
    const char *slash;
    ssize_t n;

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = readlink(self, path, 4199);
    path[n < 0 ? 0 : n] = '\0';
    slash = strrchr(path, '/');
    return slash && !strncmp(slash, "/.nfs", 5);
}

int
close(int fd)
{
    char path[4200];
    struct stat st;
    bool silly = quirks[SILLY].on && silly_name(fd, path);
    bool wrote = quirks[CLOSE].on && (fcntl(fd, F_GETFL) & O_ACCMODE) &&
                 syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode);
    int rc;
    REAL(int, close, (int));

    if (fd >= 0 && fd < MAX_FD)
        listed[fd] = 0;
    rc = real(fd);
    if (silly)
        syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return rc == 0 && wrote && refuses(CLOSE) ? -1 : rc;
}

__attribute__((destructor)) static void
close_all(void)
{
    for (int fd = 3; quirks[SILLY].on && fd < MAX_FD; fd++)
        close(fd);
}

/* ---- listing ---- */

off_t
lseek(int fd, off_t at, int whence)
{
    REAL(off_t, lseek, (int, off_t, int));
    if ((whence == SEEK_DATA || whence == SEEK_HOLE) && refuses(NO_SEEK))
        return -1;
    if (fd >= 0 && fd < MAX_FD)
        listed[fd] = 0;
    return real(fd, at, whence);
}

/* A few entries, from the listed[fd]-th on that is there now. */
static long
list_some(int fd, char *to, size_t room)
{
    static char all[1 << 20];
    unsigned n = 0;
    long total = 0, got, done = 0;

    syscall(SYS_lseek, fd, 0L, SEEK_SET);
    while ((got = syscall(SYS_getdents64, fd, all + total,
                          sizeof(all) - (size_t)total)) > 0)
        total += got;
    for (char *p = all; p < all + total; n++) {
        unsigned short nbytes;

        memcpy(&nbytes, p + 16, sizeof(nbytes));
        if (n >= listed[fd] && n < listed[fd] + LISTED &&
            (size_t)done + nbytes <= room) {
            memcpy(to + done, p, nbytes);
            done += nbytes;
        }
        p += nbytes;
    }
    listed[fd] += LISTED;
    return done;
}

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
    if (nr == SYS_getdents64 && quirks[SKIP].on && a[2] < 1 << 16)
        return list_some((int)a[0], (char *)a[1], (size_t)a[2]);
    return real(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- what is known of files ---- */

static int
odd(int rc, struct stat *st)
{
    if (rc < 0 || !quirks[ODD_STAT].on)
        return rc;
    st->st_ino += (ino_t)1 << 40;
    st->st_blocks = 0;
    st->st_mtim = (struct timespec){ .tv_sec = st->st_mtim.tv_sec + 3600 };
    return rc;
}

#define WRAP_STAT(name, params, args)                              \
    int name params;                                               \
    int name params                                                \
    {                                                              \
        REAL(int, name, params);                                   \
        return odd(is_dead && refuses(DEAD) ? -1 : real args, st); \
    }

WRAP_STAT(stat, (const char *path, struct stat *st), (path, st))
WRAP_STAT(lstat, (const char *path, struct stat *st), (path, st))
WRAP_STAT(fstat, (int fd, struct stat *st), (fd, st))
WRAP_STAT(fstatat, (int at, const char *path, struct stat *st, int flags),
          (at, path, st, flags))

int
access(const char *path, int mode)
{
    REAL(int, access, (const char *, int));
    return real(path, mode) < 0 || (mode == F_OK && refuses(BLIND)) ? -1 : 0;
}

static int
no_room(int rc, struct statvfs *st)
{
    if (quirks[NO_STATVFS].on)
        st->f_blocks = 0;
    if (quirks[NO_STATVFS].on || quirks[FULL].on)
        st->f_bfree = st->f_bavail = 0;
    return rc;
}

int
statvfs(const char *path, struct statvfs *st)
{
    REAL(int, statvfs, (const char *, struct statvfs *));
    return no_room(real(path, st), st);
}

int
fstatvfs(int fd, struct statvfs *st)
{
    REAL(int, fstatvfs, (int, struct statvfs *));
    return no_room(real(fd, st), st);
}

__attribute__((constructor)) static void
start(void)
{
    const char *text = getenv("FAULT_FS");
    char *words = strdup(text ? text : ""), *rest = words, *word;

    while ((word = strsep(&rest, " "))) {
        char *colon = strchr(word, ':');

        if (colon)
            *colon = '\0';
        for (int q = 0; q < N_QUIRKS; q++)
            if (!strcmp(word, quirks[q].name)) {
                quirks[q].on = true;
                if (colon)
                    quirks[q].error = atoi(colon + 1);
            }
    }
    free(words);
}

#else
int fault_needs_glibc;
#endif
