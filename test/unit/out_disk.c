/* SPDX-License-Identifier: ISC */
/*
 * core/out, outdir, spill and fd on a disk that fails: calls of libc stand
 * here, and say what they are asked to.  Each expectation is out.h's or
 * outdir.h's text.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/spill.h"
#include "test/unit/tap.h"

/* The errors that calls fail with; 0: they do not. */
static struct {
    int sync, directory, open, close, link, allocate;
} fails;

/* Whether "x" had its name when files and directories were synced, a letter
 * each: f and d, or F and D if it had. */
static char synced[16];

static int
fail(int error)
{
    errno = error;
    return -1;
}

int
fsync(int fd)
{
    struct stat st;
    bool directory = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    int error = directory ? fails.directory : fails.sync;
    size_t n = strlen(synced);

    if (n + 1 < sizeof(synced))
        synced[n] = (directory ? "dD" : "fF")[access("x", F_OK) == 0];
    return error ? fail(error) : (int)syscall(SYS_fsync, fd);
}

/* Of directories. */
int
open(const char *path, int flags, ...)
{
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails.open && flags & O_DIRECTORY
               ? fail(fails.open)
               : openat(AT_FDCWD, path, flags, mode);
}

int
close(int fd)
{
    int rc = (int)syscall(SYS_close, fd);

    return fails.close ? fail(fails.close) : rc;
}

int
link(const char *from, const char *to)
{
    return fails.link ? fail(fails.link)
                      : linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* Of 100 pages, those that are free, if not 0, once the file system has looked
 * 'n_late' times: none before.  Five more are kept for root. */
static fsblkcnt_t n_free;
static int n_late, n_looks;

int
fstatvfs(int fd, struct statvfs *fs)
{
    (void)fd;
    *fs = (struct statvfs){ .f_frsize = 4096 };
    if (n_free == 0)
        return 0;
    fs->f_blocks = 100;
    if (n_looks++ < n_late)
        return 0;
    fs->f_bavail = n_free;
    fs->f_bfree = n_free + 5;
    return 0;
}

/* The bytes that were asked for at last. */
static off_t allocated;

int
fallocate(int fd, int mode, off_t offset, off_t nbytes)
{
    allocated = nbytes;
    if (fails.allocate)
        return fail(fails.allocate);
    return n_free ? 0 : (int)syscall(SYS_fallocate, fd, mode, offset, nbytes);
}

/* What stands for it where Linux's own calls are not used. */
int
posix_fallocate(int fd, off_t offset, off_t nbytes)
{
    return fallocate(fd, 0, offset, nbytes) < 0 ? errno : 0;
}

/* What stands in "x", "" if it is not there. */
static const char *
now(void)
{
    static char text[16];
    FILE *f = fopen("x", "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    text[n] = '\0';
    if (f)
        fclose(f);
    return text;
}

static bool
alone(const char *name)
{
    char command[64];

    snprintf(command, sizeof(command), "[ \"$(ls -A)\" = '%s' ]", name);
    return system(command) == 0;
}

static int
put(const char *text, int flags, struct err *err)
{
    memset(synced, 0, sizeof(synced));
    return out_put("x", flags, text, strlen(text), err);
}

static void
test_sync(void)
{
    struct err err = { 0 };

    tap_ok(put("a", 0, &err) == 0 && !strcmp(synced, "fD"),
           "a file is synced before it has its name, its directory after that");
    tap_ok(put("b", OUT_FORCE | OUT_NO_SYNC, &err) == 0 && !*synced,
           "OUT_NO_SYNC: neither is");
    fails.sync = EIO;
    tap_ok(put("c", OUT_FORCE, &err) < 0 && err.status == EX_IOERR &&
               !strcmp(now(), "b") && alone("x"),
           "one that cannot be synced replaces nothing: %s", err.what);
    unlink("x");
    tap_ok(put("c", 0, &err) < 0 && err.status == EX_IOERR && alone(""),
           "and gets no name");
    fails.sync = 0;
    fails.directory = EIO;
    tap_ok(put("d", 0, &err) < 0 && err.status == EX_IOERR &&
               strstr(err.what, "directory cannot be synced") &&
               !strcmp(now(), "d") && alone("x"),
           "a directory that cannot be synced is told");
    fails.directory = EINVAL;
    tap_ok(put("e", OUT_FORCE, &err) == 0 && !strcmp(now(), "e"),
           "but not where directories never can");
    fails.directory = 0;
    fails.open = ENFILE;
    tap_ok(put("d", OUT_FORCE, &err) < 0 && err.status == EX_IOERR &&
               strstr(err.what, "directory cannot be synced"),
           "and one that cannot be opened for that");
    fails.open = EACCES;
    tap_ok(put("e", OUT_FORCE, &err) == 0 && !strcmp(now(), "e"),
           "one that may not be read cannot be");
    fails.open = 0;
}

static void
test_close(void)
{
    struct err err = { 0 };

    fails.close = EDQUOT;
    tap_ok(put("f", OUT_FORCE, &err) < 0 && err.status == EX_IOERR &&
               !strcmp(now(), "e") && alone("x"),
           "one that cannot be closed replaces nothing: %s", err.what);
    fails.close = EINTR;
    tap_ok(put("g", OUT_FORCE, &err) == 0 && !strcmp(now(), "g"),
           "EINTR has closed it");
    fails.close = 0;
}

static void
test_no_links(void)
{
    struct err err = { 0 };
    struct out *o;

    unlink("x");
    fails.link = EPERM;
    tap_ok(put("h", 0, &err) == 0 && !strcmp(now(), "h") && alone("x"),
           "a file gets its name where there are no hard links");
    unlink("x");
    out_open(&o, "x", 0, false, &err);
    out_write(o, "late", 4, &err);
    put("first", 0, &err);
    tap_ok(out_commit(o, &err) < 0 && err.status == EX_CANTCREAT &&
               !strcmp(now(), "first") && alone("x"),
           "and not another's: %s", err.what);
    fails.link = 0;
}

static void
test_room(void)
{
    static const int full[] = { ENOSPC, EDQUOT, EFBIG };
    struct err err = { 0 };
    const size_t page = 4096, mine = (geteuid() ? 10 : 15) * page;
    struct out *o;
    struct spill s;

    out_open(&o, "y", 0, false, &err);
    for (size_t i = 0; i < 3; i++) {
        fails.allocate = full[i];
        tap_ok(out_reserve(o, 10, &err) < 0 && err.status == EX_IOERR &&
                   err.error == full[i],
               "%s", err.what);
    }
    fails.allocate = EOPNOTSUPP;
    tap_ok(out_reserve(o, 10, &err) == 0, "who cannot reserve need not");
    n_free = 10;
    tap_ok(out_reserve(o, 16 * page, &err) == 0, "whatever is said to be free");
    fails.allocate = 0;
    tap_ok(out_reserve(o, 16 * page, &err) < 0 && err.status == EX_IOERR &&
               err.error == ENOSPC && allocated == 1,
           "too much is refused before it takes all there is: %s", err.what);
    tap_ok(out_reserve(o, mine, &err) == 0 && allocated == (off_t)mine,
           "what is free is taken, by root what is kept for it");
    tap_ok(out_reserve(o, mine + 1, &err) < 0, "and no byte more");
    n_late = 20;
    n_looks = 0;
    tap_ok(out_reserve(o, mine, &err) == 0 && n_looks == 21 &&
               allocated == (off_t)mine,
           "what a file system frees late is waited for");
    n_looks = 0;
    tap_ok(out_reserve(o, 101 * page, &err) < 0 && n_looks == 2,
           "but not for what it never had");
    n_looks = 0;
    tap_ok(spill_open(&s, ".", mine, &err) == 0, "nor has scratch to fail");
    spill_close(&s);
    tap_ok(spill_open(&s, ".", mine + 1, &err) < 0 && err.status == EX_IOERR,
           "unless there is too little: %s", err.what);
    n_late = 0;
    n_free = 0;
    fails.allocate = 0;
    out_abort(o);
}

static void
test_dir(void)
{
    struct err err = { 0 };
    struct outdir *d;

    unlink("x");
    tap_ok(outdir_open(&d, ".", "x", false, &err) == 0, "a directory is begun");
    memset(synced, 0, sizeof(synced));
    tap_ok(outdir_commit(d, "x", false, &err) == 0 && !strcmp(synced, "dD"),
           "it is synced before it has its name, the one above after that");
    out_remove_dir(AT_FDCWD, "x");
    outdir_open(&d, ".", "x", false, &err);
    fails.directory = EIO;
    tap_ok(outdir_commit(d, "x", false, &err) < 0 && err.status == EX_IOERR &&
               alone(""),
           "one that cannot be synced gets no name: %s", err.what);
    fails.directory = 0;
}

/* Standard output is full for a moment, in which 'text' goes there. */
static int
end_of(const char *text)
{
    struct err err;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (!freopen("/dev/full", "w", stdout))
            _exit(9);
        fputs(text, stdout);
        fflush(stdout);
        if (dup2(open("/dev/null", O_WRONLY), 1) < 0)
            _exit(9);
        fputs("more", stdout);
        if (out_close_stdout(&err) == 0)
            _exit(0);
        _exit(strcmp(err.what, "standard output: cannot be written")
                  ? 9
                  : EX_IOERR);
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static void
test_stdout(void)
{
    fflush(stdout);
    tap_ok(end_of("text") == EX_IOERR && end_of("") == 0,
           "what standard output lost long before its end is told");
}

int
main(void)
{
    char dir[] = "/tmp/tu-disk.XXXXXX";

    if (!mkdtemp(dir) || chdir(dir) < 0)
        return 1;
    test_sync();
    test_close();
    test_no_links();
    test_room();
    test_dir();
    test_stdout();
    if (chdir("/") < 0 || rmdir(dir) < 0)
        return 1;
    return tap_done();
}
