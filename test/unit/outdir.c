/* SPDX-License-Identifier: ISC */
/*
 * core/outdir: a directory is there whole or not at all.  Each expectation is
 * outdir.h's text.
 */
#include "core/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/out.h"
#include "test/unit/tap.h"

static int no_sync; /* the sync from now on that fails; 0: none */
static int meddle;  /* the sync before which another run moves p/y away */

/* Instead of libc's. */
int
fsync(int fd)
{
    if (no_sync > 0 && --no_sync == 0) {
        errno = EIO;
        return -1;
    }
    if (meddle > 0 && --meddle == 0) {
        out_remove_dir(AT_FDCWD, "p/.y.old");
        rename("p/y", "p/.y.old");
    }
    return (int)syscall(SYS_fsync, fd);
}

/* What another run does just before a rename of this one, and a removal. */
static int put_back; /* the rename before which .y.old becomes y again */
static int publish;  /* the removal before which .k.part becomes y */

int
rename(const char *from, const char *to)
{
    if (put_back > 0 && --put_back == 0)
        syscall(SYS_renameat2, AT_FDCWD, "p/.y.old", AT_FDCWD, "p/y", 0);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int
unlinkat(int dir, const char *name, int flags)
{
    if (publish > 0 && --publish == 0)
        syscall(SYS_renameat2, AT_FDCWD, "p/.k.part", AT_FDCWD, "p/y", 0);
    return (int)syscall(SYS_unlinkat, dir, name, flags);
}

static void
put(const char *dir, const char *name, const char *text)
{
    char path[4200];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

/* The text of a file of few bytes, "" if it is not there. */
static const char *
get(const char *path)
{
    static char text[64];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    if (f)
        fclose(f);
    text[n] = '\0';
    return text;
}

static int
count(const char *path)
{
    DIR *dir = opendir(path);
    int n = -2; /* . and .. */

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static void
outdir_remove(const char *path)
{
    out_remove_dir(AT_FDCWD, path);
}

static struct outdir *
start(const char *name, bool shared, const char *text)
{
    struct outdir *d;
    struct err err = { 0 };

    if (outdir_open(&d, "p", name, shared, &err) < 0) {
        printf("# %s\n", err.what);
        return NULL;
    }
    put(outdir_path(d), "a", text);
    return d;
}

static void
test_alone(void)
{
    struct err err = { 0 };
    struct outdir *d = start("k", false, "1"), *e;

    tap_ok(d && access("p/x", F_OK) < 0, "nothing is visible before the end");
    tap_ok(outdir_commit(d, "x", false, &err) == 0 &&
               !strcmp(get("p/x/a"), "1") && count("p") == 1,
           "a directory filled alone gets its name");
    d = start("k", false, "2");
    tap_ok(outdir_commit(d, "x", false, &err) == 1 &&
               err.status == EX_TEMPFAIL &&
               !strcmp(err.what, "p/x: another run has just published it") &&
               !strcmp(get("p/x/a"), "1") && count("p") == 1,
           "who comes second is told so, and leaves the first one's");
    d = start("k", false, "3");
    tap_ok(outdir_commit(d, "x", true, &err) == 0 &&
               !strcmp(get("p/x/a"), "3") && count("p") == 1,
           "'replace' replaces it");
    tap_ok(outdir_replaceable("p/x", true, &err) == 0 &&
               outdir_replaceable("p/none", true, &err) == 0,
           "a flat one may be, as what is not there");
    tap_ok(outdir_replaceable("p/x/a", true, &err) < 0 &&
               err.status == EX_CANTCREAT &&
               !strcmp(err.what, "p/x/a: is not a directory") &&
               symlink("x", "p/link") == 0 &&
               outdir_replaceable("p/link", true, &err) < 0 &&
               unlink("p/link") == 0,
           "a file or link is none, and refused");
    mkdir("p/x/sub", 0777);
    d = start("k", false, "3x");
    tap_ok(
        outdir_commit(d, "x", true, &err) < 0 && err.status == EX_CANTCREAT &&
            !strcmp(err.what,
                    "p/x: has the directory sub in it, and is not replaced") &&
            !strcmp(get("p/x/a"), "3") && count("p") == 1 &&
            outdir_replaceable("p/x", true, &err) < 0,
        "one with directories in it is somebody's, and stays");
    rmdir("p/x/sub");
    mkdir("p/.y.old", 0777);
    put("p/.y.old", "a", "0");
    d = start("k", false, "9");
    tap_ok(outdir_commit(d, "y", true, &err) == 0 && count("p") == 2 &&
               !strcmp(get("p/y/a"), "9"),
           "what one who died replacing it left goes");
    tap_ok(rename("p/y", "p/.y.old") == 0 &&
               (outdir_sweep("p", "y"), !strcmp(get("p/y/a"), "9")) &&
               count("p") == 2,
           "or is restored, where the new one has not come");
    mkdir("p/.y.old", 0777);
    put("p/.y.old", "a", "0");
    d = start("y", false, "1");
    tap_ok(count("p") == 3 && !strcmp(get("p/y/a"), "9"),
           "and removed where it has, by the next run of that name");
    outdir_abort(d);
    rename("p/y", "p/.y.old");
    d = start("k", false, "2");
    tap_ok(outdir_commit(d, "y", true, &err) == 0 && count("p") == 2 &&
               !strcmp(get("p/y/a"), "2"),
           "as it is by one that publishes");
    outdir_remove("p/y");
    put("p", "y", "");
    d = start("k", false, "9");
    tap_ok(outdir_commit(d, "y", true, &err) < 0 &&
               !strcmp(err.what, "p/y: is not a directory") && count("p") == 2,
           "a file is not replaced");
    unlink("p/y");
    d = start("k", false, "4");
    e = start("k", false, "5");
    outdir_abort(d);
    tap_ok(!strcmp(get("p/x/a"), "3") && count("p") == 2,
           "outdir_abort() removes its own only");
    outdir_abort(e);
    outdir_remove("p/x");
}

static void
test_part(void)
{
    struct err err = { 0 };
    struct outdir *d = start("k", true, "1"), *e = start("k", true, "2");

    outdir_abort(e);
    tap_ok(!strcmp(get("p/.k.part/a"), "2"), "a shared directory stays");
    put("p/.k.part", "b", "b");
    tap_ok(outdir_commit(d, "y", false, &err) == 0 &&
               !strcmp(get("p/y/b"), "b") && count("p") == 1,
           "and one of its writers publishes what all wrote");
    outdir_remove("p/y");
    d = start("k", false, "1");
    put(outdir_path(d), ".b.tmp.h.1.0", "");
    tap_ok(outdir_keep(d, &err) == 0 && !strcmp(get("p/.k.part/a"), "1") &&
               count("p/.k.part") == 1,
           "what is finished of a directory filled alone can be kept");
    put("p/.k.part", "c", "c");
    d = start("k", false, "2");
    put(outdir_path(d), "b", "b");
    tap_ok(outdir_keep(d, &err) == 0 && !strcmp(get("p/.k.part/a"), "2") &&
               !strcmp(get("p/.k.part/b"), "b") &&
               !strcmp(get("p/.k.part/c"), "c") && count("p") == 1,
           "and nothing of what another one kept is lost");
    outdir_remove("p/.k.part");
    tap_ok(count("p") == 0, "and nothing else is left");
}

/* The directory's own sync comes first, then its parent's. */
static void
test_unsynced(void)
{
    struct outdir *d = start("k", false, "1");
    struct err err = { 0 };
    char what[80];

    snprintf(what, sizeof(what), "p/: directory cannot be synced: %s",
             strerror(EIO));
    no_sync = 1;
    tap_ok(d && outdir_commit(d, "x", false, &err) < 0 &&
               err.status == EX_IOERR && count("p") == 0,
           "a directory that cannot be synced is gone");
    d = start("k", false, "2");
    no_sync = 2;
    tap_ok(outdir_commit(d, "x", false, &err) < 0 && !strcmp(err.what, what) &&
               !strcmp(get("p/x/a"), "2") && count("p") == 1,
           "one whose name cannot be is there");
    d = start("k", false, "3");
    no_sync = 2;
    tap_ok(outdir_commit(d, "x", true, &err) < 0 && !strcmp(err.what, what) &&
               !strcmp(get("p/x/a"), "3") && !strcmp(get("p/.x.old/a"), "2"),
           "and the one that it replaced is kept until it can be");
    outdir_sweep("p", "x");
    tap_ok(count("p") == 1 && !strcmp(get("p/x/a"), "3"),
           "which is the next run's part");
    outdir_remove("p/x");
}

static void
test_drop(void)
{
    struct outdir *d = start("k", true, "1");

    outdir_drop_part("p", "k");
    tap_ok(count("p") == 0 && outdir_is_gone(d), "a .part is removed");
    mkdir("p/.k.part", 0777);
    tap_ok(outdir_is_gone(d), "a new one of its name is another");
    outdir_abort(d);
    outdir_remove("p/.k.part");
}

/* Both join .k.part; one publishes, and the other one's is not there. */
static void
test_second(void)
{
    struct err err = { 0 };
    struct outdir *d = start("k", true, "1"), *e = start("k", true, "2");

    tap_ok(outdir_commit(d, "y", false, &err) == 0 && outdir_is_gone(e) &&
               outdir_commit(e, "y", true, &err) == 1 &&
               err.status == EX_TEMPFAIL && !strcmp(get("p/y/a"), "2") &&
               count("p") == 1,
           "of two that publish .part one is told that it was second");
    outdir_remove("p/y");
}

/* Another that shares .k.part, and replaces as well, sweeps, moves away what
 * stands there, finds that .k.part has gone, and puts back what it moved. */
static void
test_moved_away(void)
{
    struct err err = { 0 };
    struct outdir *d = start("k", true, "1");

    mkdir("p/y", 0777);
    put("p/y", "a", "0");
    meddle = 2; /* the directory has its name, its parent is synced next */
    tap_ok(outdir_commit(d, "y", true, &err) == 0 &&
               !strcmp(get("p/y/a"), "1") && count("p") == 1,
           "what another moved away is not taken for what was replaced");
    outdir_remove("p/y");
}

/* Another that begins puts back what was just moved away. */
static void
test_put_back(void)
{
    struct err err = { 0 };
    struct outdir *d = start("k", true, "1");

    mkdir("p/y", 0777);
    put("p/y", "a", "0");
    put_back = 2;
    tap_ok(outdir_commit(d, "y", true, &err) == 1 && put_back == 0 &&
               err.status == EX_TEMPFAIL && !strcmp(get("p/y/a"), "0") &&
               count("p") == 2,
           "what another put back is there, and so is what was to replace it");
    d = start("k", true, "1");
    tap_ok(outdir_commit(d, "y", true, &err) == 0 &&
               !strcmp(get("p/y/a"), "1") && count("p") == 1,
           "and replaces it the next time");
    outdir_remove("p/y");
}

/* A run that came second removes .k.part, as another one publishes it. */
static void
test_dropped(void)
{
    struct outdir *d = start("k", true, "1");

    publish = 1;
    outdir_drop_part("p", "k");
    tap_ok(publish == 0 && access("p/y", F_OK) < 0 && count("p") == 0,
           "what is being removed is published by nobody");
    outdir_abort(d);
    outdir_remove("p/y");
}

/* What a killed process left goes when the same directory is started again. */
static void
test_sweep(void)
{
    struct outdir *d;
    pid_t pid = fork();
    int before;

    if (pid == 0) {
        start("k", false, "dead");
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    before = count("p");
    d = start("k", false, "alive");
    tap_ok(before == 1 && count("p") == 1,
           "a dead writer's directory is removed");
    outdir_abort(d);
    if (fork() == 0) {
        start("k", false, "dead");
        _exit(0);
    }
    wait(NULL);
    outdir_abort(start("k", true, "alive"));
    tap_ok(count("p") == 1, "by one that shares, too");
    outdir_remove("p/.k.part");
}

/* Two runs start at once: the one that makes the directory is not always the
 * one that locks it, and must not take it away from that. */
static void
test_lock(void)
{
    struct err err = { 0 };
    int first = -1, second = -1;
    size_t n_old = 0;

    tap_ok(outdir_lock("run", "train", &first, &n_old, &err) == 0 && n_old == 0,
           "a run makes its directory and locks it: %s", err.what);
    tap_ok(outdir_lock("run", "train", &second, &n_old, &err) < 0 &&
               err.status == EX_CANTCREAT &&
               strstr(err.what, "another train") && n_old == SIZE_MAX,
           "one at a time, and nothing of it is the second's: %s", err.what);
    outdir_unmake("run", n_old);
    tap_ok(access("run", F_OK) == 0, "which leaves it there");
    close(first);
    close(second);
    rmdir("run");
}

int
main(void)
{
    char dir[] = "/tmp/tu-outdir.XXXXXX";
    size_t n_old;
    struct err err = { 0 };

    if (!mkdtemp(dir) || chdir(dir) < 0)
        return 1;
    test_alone();
    test_part();
    test_unsynced();
    test_drop();
    test_second();
    test_moved_away();
    test_put_back();
    test_dropped();
    test_sweep();
    tap_ok(rmdir("p") == 0, "the parent is empty");
    tap_ok(outdir_make("a//b/c/", &n_old, &err) == 0 && n_old == 0 &&
               outdir_make("a/b/d", &n_old, &err) == 0 && n_old == 3 &&
               rmdir("a/b/c") == 0,
           "directories above it are made, too: %s", err.what);
    outdir_unmake("a/b/d", n_old);
    tap_ok(rmdir("a/b") == 0, "and those that were made are removed again");
    tap_ok(outdir_make("a/b/c", &n_old, &err) == 0 && n_old == 1,
           "one is there");
    outdir_unmake("a/b/c/no", n_old);
    tap_ok(rmdir("a") == 0, "also where the last was not made");
    tap_ok(out_put("f", 0, "1", 1, &err) == 0 &&
               outdir_make("f/g/h", &n_old, &err) < 0 &&
               err.status == EX_CANTCREAT && unlink("f") == 0,
           "not below a file: %s", err.what);
    test_lock();
    if (chdir("/") < 0 || rmdir(dir) < 0)
        return 1;
    return tap_done();
}
