/* SPDX-License-Identifier: ISC */
/*
 * Preloaded into a tool, writes down what a power cut may take of its files:
 * each name that it gives, moves or removes, and each sync, with a copy of what
 * the file held.  POWER_DIR: a directory for "log" and the copies.
 * A line of the log is "OP DIR NAME [DIR NAME] INODE [COPY]", where a
 * directory is its inode; test/fault/power.py reads it.
 * glibc on Linux alone.
 */
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/fault/real.h"

#ifdef __GLIBC__

/* A call and its line are one step, whatever other threads do. */
static pthread_mutex_t step = PTHREAD_MUTEX_INITIALIZER;

/* This shim's own open(2): the tool's is written down. */
static int
plain_open(int at, const char *path, int flags)
{
    REAL(int, openat, (int, const char *, int, ...));
    return real(at, path, flags | O_CLOEXEC, 0600);
}

static _Noreturn void
die(const char *what)
{
    perror(what);
    abort();
}

static int
open_in_dir(const char *name, int flags)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", getenv("POWER_DIR"), name);
    fd = plain_open(AT_FDCWD, path, flags | O_CREAT);
    if (fd < 0)
        die(path);
    return fd;
}

static void
put(const char *format, ...)
{
    char line[2 * PATH_MAX];
    int fd = open_in_dir("log", O_WRONLY | O_APPEND);
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (write(fd, line, (size_t)n) != n)
        die("log");
    close(fd);
}

/* "DIR NAME" of a path, which need not exist. */
struct place {
    char text[NAME_MAX + 40];
    unsigned long long inode; /* of what is there; 0: nothing */
};

static struct place
place(int at, const char *path)
{
    char one[PATH_MAX], other[PATH_MAX];
    struct place p;
    struct stat st;

    snprintf(one, sizeof(one), "%s", path);
    snprintf(other, sizeof(other), "%s", path);
    p.inode = fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_ino;
    if (fstatat(at, dirname(one), &st, 0) < 0)
        st.st_ino = 0;
    snprintf(p.text, sizeof(p.text), "%llu %s", (unsigned long long)st.st_ino,
             basename(other));
    return p;
}

/* ---- names ---- */

static void
put_made(const char *op, int at, const char *path)
{
    struct place is = place(at, path);

    put("%s %s %llu\n", op, is.text, is.inode);
}

static int
create(int at, const char *path, int flags, mode_t mode)
{
    bool there;
    int fd;

    REAL(int, openat, (int, const char *, int, ...));
    if (!(flags & O_CREAT))
        return real(at, path, flags, mode);
    pthread_mutex_lock(&step);
    there = place(at, path).inode != 0;
    fd = real(at, path, flags, mode);
    if (fd >= 0 && !there)
        put_made("create", at, path);
    pthread_mutex_unlock(&step);
    return fd;
}

#define OPENS(at, name, params)               \
    int name params                           \
    {                                         \
        va_list args;                         \
        mode_t mode;                          \
        va_start(args, flags);                \
        mode = va_arg(args, mode_t);          \
        va_end(args);                         \
        return create(at, path, flags, mode); \
    }

OPENS(AT_FDCWD, open, (const char *path, int flags, ...))
OPENS(at, openat, (int at, const char *path, int flags, ...))
/* Other programs' names for them. */
OPENS(AT_FDCWD, open64, (const char *path, int flags, ...))
OPENS(at, openat64, (int at, const char *path, int flags, ...))

int
mkdir(const char *path, mode_t mode)
{
    int rc;

    REAL(int, mkdir, (const char *, mode_t));
    pthread_mutex_lock(&step);
    rc = real(path, mode);
    if (rc == 0)
        put_made("mkdir", AT_FDCWD, path);
    pthread_mutex_unlock(&step);
    return rc;
}

int
link(const char *from, const char *to)
{
    int rc;

    REAL(int, link, (const char *, const char *));
    pthread_mutex_lock(&step);
    rc = real(from, to);
    if (rc == 0)
        put_made("link", AT_FDCWD, to);
    pthread_mutex_unlock(&step);
    return rc;
}

static int
move(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    struct place a, b;
    int rc;

    REAL(int, renameat2, (int, const char *, int, const char *, unsigned));
    pthread_mutex_lock(&step);
    a = place(from_at, from);
    b = place(to_at, to);
    rc = real(from_at, from, to_at, to, flags);
    if (rc == 0)
        put("%s %s %s %llu\n", flags & RENAME_EXCHANGE ? "exchange" : "rename",
            a.text, b.text, a.inode);
    pthread_mutex_unlock(&step);
    return rc;
}

int
rename(const char *from, const char *to)
{
    return move(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int
renameat(int from_at, const char *from, int to_at, const char *to)
{
    return move(from_at, from, to_at, to, 0);
}

int
renameat2(int from_at, const char *from, int to_at, const char *to,
          unsigned flags)
{
    return move(from_at, from, to_at, to, flags);
}

int
unlinkat(int at, const char *path, int flags)
{
    struct place was;
    int rc;

    REAL(int, unlinkat, (int, const char *, int));
    pthread_mutex_lock(&step);
    was = place(at, path);
    rc = real(at, path, flags);
    if (rc == 0)
        put("unlink %s %llu\n", was.text, was.inode);
    pthread_mutex_unlock(&step);
    return rc;
}

int
unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int
rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- what a file holds ---- */

/* A file may be open for writing alone. */
static void
copy(int fd, const char *to)
{
    char path[40], buf[1 << 16];
    int in, out = open_in_dir(to, O_WRONLY | O_TRUNC);
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    in = plain_open(AT_FDCWD, path, O_RDONLY);
    if (in < 0)
        die(path);
    while ((n = read(in, buf, sizeof(buf))) > 0)
        if (write(out, buf, (size_t)n) != n)
            die(to);
    close(in);
    close(out);
}

int
fsync(int fd)
{
    static unsigned n_copies;
    char name[40] = "";
    struct stat st;
    int rc;

    REAL(int, fsync, (int));
    pthread_mutex_lock(&step);
    rc = real(fd);
    if (rc == 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        snprintf(name, sizeof(name), "%ld.%u", (long)getpid(), n_copies++);
        copy(fd, name);
    }
    if (rc == 0)
        put("sync %llu %s\n", (unsigned long long)st.st_ino, name);
    pthread_mutex_unlock(&step);
    return rc;
}

#endif
