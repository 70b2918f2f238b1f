/* SPDX-License-Identifier: ISC */
/*
 * core/out: after any end of a writer the destination is absent, the old file
 * whole or the new one whole.  Each expectation is out.h's or POSIX's text.
 */
#include "core/out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/sig.h"
#include "core/tmpname.h"
#include "test/unit/host.h"
#include "test/unit/tap.h"

#define BYTES ((size_t)1 << 20)
#define KILLS 150

static char bytes[BYTES];

static int
put(const char *path, int flags, char fill, size_t n, struct err *err)
{
    struct out *o;

    if (out_open(&o, path, flags, false, err) < 0)
        return -1;
    memset(bytes, fill, BYTES);
    if (out_write(o, bytes, n, err) < 0) {
        out_abort(o);
        return -1;
    }
    return out_commit(o, err);
}

/* The letter a file of n bytes is full of; 0: not there, '?': not whole. */
static char
whole(const char *path, size_t n)
{
    FILE *f = fopen(path, "rb");
    size_t got;

    if (!f)
        return 0;
    got = fread(bytes, 1, BYTES, f);
    fclose(f);
    if (got != n)
        return '?';
    for (size_t i = 1; i < n; i++)
        if (bytes[i] != bytes[0])
            return '?';
    return bytes[0];
}

static int
count_files(void)
{
    DIR *dir = opendir(".");
    struct dirent *e;
    int n = -2; /* . and .. */

    while ((e = readdir(dir)))
        n++;
    closedir(dir);
    return n;
}

static void
clear(void)
{
    DIR *dir = opendir(".");
    struct dirent *e;

    while ((e = readdir(dir)))
        unlink(e->d_name);
    closedir(dir);
}

static void
test_refusals(void)
{
    struct err err = { 0 };

    tap_ok(put("a", 0, 'a', 10, &err) == 0 && whole("a", 10) == 'a',
           "a file appears whole under its name");
    tap_ok(put("a", 0, 'b', 10, &err) < 0 && err.status == EX_CANTCREAT &&
               !strcmp(err.what, "a: exists already (--force replaces it)"),
           "an existing file is refused without OUT_FORCE");
    tap_ok(whole("a", 10) == 'a', "a refused writer leaves the old file");
    tap_ok(put("a", OUT_FORCE, 'c', 20, &err) == 0 && whole("a", 20) == 'c',
           "OUT_FORCE replaces it");
    tap_ok(put("no/such/a", 0, 'a', 1, &err) < 0 && err.status == EX_CANTCREAT,
           "a directory that is not there is EX_CANTCREAT");
    tap_ok(put("", 0, 'a', 1, &err) < 0 && put("x/", 0, 'a', 1, &err) < 0 &&
               put(".", OUT_FORCE, 'a', 1, &err) < 0,
           "no name, a name ending in a slash and a directory are refused");
    tap_ok(put("/dev/null", 0, 'a', 10, &err) == 0,
           "/dev/null takes all without OUT_FORCE");
    tap_ok(put("/dev/full", 0, 'a', 10, &err) < 0 && err.status == EX_IOERR,
           "/dev/full is EX_IOERR");
    tap_ok(count_files() == 1, "no temporary stays behind");
    clear();
}

static void
test_put(void)
{
    struct err err = { 0 };
    struct stat st;

    memset(bytes, 'p', BYTES);
    tap_ok(out_put("p", OUT_READ_ONLY, bytes, BYTES, &err) == 0 &&
               whole("p", BYTES) == 'p' && stat("p", &st) == 0 &&
               (st.st_mode & 0222) == 0,
           "out_put: a whole file, of the flags' kind");
    tap_ok(out_put("p", 0, "q", 1, &err) < 0 && err.status == EX_CANTCREAT &&
               !strcmp(err.what, "p: exists already (--force replaces it)") &&
               whole("p", BYTES) == 'p',
           "out_put: without OUT_FORCE what is there stays");
    tap_ok(out_put("p", OUT_FORCE, NULL, 0, &err) == 0 && stat("p", &st) == 0 &&
               st.st_size == 0,
           "out_put: a file of no bytes");
    tap_ok(out_put("/dev/full", 0, "q", 1, &err) < 0 && err.status == EX_IOERR,
           "out_put: a full device is EX_IOERR");
    tap_ok(out_put("/dev/full", 0, bytes, BYTES, &err) < 0 &&
               err.status == EX_IOERR,
           "out_put: more than a buffer to a full device, too");
    tap_ok(count_files() == 1 && unlink("p") == 0,
           "out_put: no temporary stays behind");
}

static void
test_link(void)
{
    struct err err = { 0 };
    struct stat st;

    put("a", 0, 'a', 10, &err);
    tap_ok(symlink("a", "l") == 0 && put("l", OUT_FORCE, 'b', 10, &err) == 0 &&
               whole("a", 10) == 'b' && lstat("l", &st) == 0 &&
               S_ISLNK(st.st_mode),
           "through a link its target is replaced, not the link");
    tap_ok(mkdir("d", 0700) == 0 && symlink("d/l2", "l1") == 0 &&
               symlink("../new", "d/l2") == 0 &&
               put("l1", 0, 'c', 9, &err) == 0 && whole("new", 9) == 'c' &&
               lstat("l1", &st) == 0 && S_ISLNK(st.st_mode) &&
               lstat("d/l2", &st) == 0 && S_ISLNK(st.st_mode),
           "through links to what is not there it is made");
    tap_ok(unlink("new") == 0 && put("l1", OUT_FORCE, 'd', 9, &err) == 0 &&
               whole("new", 9) == 'd' && lstat("l1", &st) == 0 &&
               S_ISLNK(st.st_mode),
           "with OUT_FORCE, too");
    tap_ok(symlink("l3", "l3") == 0 && put("l3", OUT_FORCE, 'e', 9, &err) < 0 &&
               err.status == EX_CANTCREAT && err.error == ELOOP &&
               symlink("no/such", "l4") == 0 &&
               put("l4", 0, 'e', 9, &err) < 0 && err.status == EX_CANTCREAT &&
               err.error == ENOENT,
           "links that lead nowhere");
    unlink("d/l2");
    rmdir("d");
    clear();
}

static void
test_names(void)
{
    char longest[NAME_MAX + 1];
    const char *const names[] = { "two words", "new\nline", "-", "\xff\x01",
                                  longest };
    struct err err = { 0 };

    memset(longest, 'n', NAME_MAX);
    longest[NAME_MAX] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[NAME_MAX + 3];

        snprintf(path, sizeof(path), "./%s", names[i]);
        tap_ok(put(path, 0, 'a', 10, &err) == 0 && whole(path, 10) == 'a' &&
                   count_files() == 1,
               "name %zu of spaces, newlines, bytes, NAME_MAX is written", i);
        clear();
    }
}

static void
test_two_writers(void)
{
    struct err err = { 0 };
    struct out *a, *b;

    out_open(&a, "x", 0, false, &err);
    out_open(&b, "x", 0, false, &err);
    out_write(a, "aa", 2, &err);
    out_write(b, "bb", 2, &err);
    tap_ok(out_commit(b, &err) == 0 && out_commit(a, &err) < 0 &&
               err.status == EX_CANTCREAT && whole("x", 2) == 'b',
           "of two writers the first to finish wins, the other is told");
    out_open(&a, "y", 0, false, &err);
    tap_ok(out_pwrite(a, "2", 1, 1, &err) == 0 &&
               out_pwrite(a, "2", 1, 0, &err) == 0 && access("y", F_OK) < 0 &&
               out_commit(a, &err) == 0 && whole("y", 2) == '2',
           "out_pwrite() in any order; nothing is visible before the commit");
    out_open(&a, "z", 0, false, &err);
    out_abort(a);
    tap_ok(count_files() == 2, "an aborted and a beaten writer leave nothing");
    clear();
}

static void
test_fifo(void)
{
    struct err err = { 0 };
    char got[8] = "";
    int fd, good = mkfifo("p", 0600) == 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(put("p", 0, 'p', 5, &err) < 0);
    fd = open("p", O_RDONLY);
    good = good && read(fd, got, sizeof(got)) == 5 && !memcmp(got, "ppppp", 5);
    close(fd);
    waitpid(pid, NULL, 0);
    tap_ok(good, "a FIFO is written in place");
    clear();
}

/* A process that writes 'x' over and over until a signal ends it. */
static pid_t
start_writer(void)
{
    pid_t pid = fork();
    struct err err;

    if (pid)
        return pid;
    signal(SIGINT, SIG_DFL); /* ignored in a background job, by POSIX */
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    sig_install(true);
    for (char fill = 'a';; fill = fill == 'z' ? 'a' : (char)(fill + 1))
        if (put("x", OUT_FORCE, fill, BYTES, &err) < 0)
            _exit(1);
}

static int
end_writer(pid_t pid, int sig, long after_us)
{
    const struct timespec ts = { 0, after_us * 1000 };
    int status;

    nanosleep(&ts, NULL);
    kill(pid, sig);
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void
test_kill(void)
{
    int n_partial = 0, n_survived = 0, n_left = 0;
    struct err err = { 0 };

    srand(1);
    for (int i = 0; i < KILLS; i++) {
        if (i % 3 == 0)
            unlink("x");
        n_survived +=
            end_writer(start_writer(), SIGKILL, rand() % 8000) != SIGKILL;
        n_partial += whole("x", BYTES) == '?';
        n_left += count_files() > 2; /* x, and what the last one left */
    }
    tap_ok(n_partial == 0 && n_survived == 0,
           "%d kills -9 at random moments: never a part of a file", KILLS);
    tap_ok(n_left == 0, "each writer removes what a killed one left");
    tap_ok(put("x", OUT_FORCE, 'e', 10, &err) == 0 && count_files() == 1,
           "the last one ends with its own file alone");
    clear();
}

static void
test_signals(void)
{
    static const int sigs[] = { SIGTERM, SIGINT, SIGUSR1 };

    for (size_t i = 0; i < 3; i++) {
        int got = end_writer(start_writer(), sigs[i], 20000);
        int n = count_files();

        /* by the signal itself between two files, when nothing is lost */
        tap_ok((got == EX_TEMPFAIL || got == sigs[i]) &&
                   whole("x", BYTES) != '?' && n == (whole("x", BYTES) != 0),
               "signal %d ends the program and removes its temporary", sigs[i]);
        clear();
    }
}

static void
test_reserve(void)
{
    struct err err = { 0 };
    struct out *o;

    out_open(&o, "r", 0, false, &err);
    tap_ok(out_reserve(o, (size_t)1 << 62, &err) < 0 && err.status == EX_IOERR,
           "room that no disk has is refused before any work");
    out_abort(o);
    tap_ok(count_files() == 0, "and nothing stays behind");
}

/* Copies all of 'fd' after "ab" into "x" and compares with 'want'. */
static void
copy_all(int fd, const char *want, size_t n, const char *what)
{
    struct err err = { 0 };
    struct out *o;
    ssize_t got = 1;
    FILE *f;

    out_open(&o, "x", OUT_FORCE, false, &err);
    out_write(o, "ab", 2, &err);
    while (got > 0)
        got = out_copy(o, fd, "input", 70000, &err);
    tap_ok(got == 0 && out_zeros(o, 5000, &err) == 0 &&
               out_write(o, "z", 1, &err) == 0 && out_commit(o, &err) == 0,
           "out_copy() from %s: %s", what, err.what);
    f = fopen("x", "rb");
    memset(bytes, 1, BYTES);
    got = f ? (ssize_t)fread(bytes, 1, BYTES, f) : -1;
    if (f)
        fclose(f);
    for (size_t i = 0; i < 5000; i++)
        n += bytes[2 + n + i] != 0; /* a wrong zero makes the size wrong */
    tap_ok(got == (ssize_t)n + 5003 && !memcmp(bytes, "ab", 2) &&
               !memcmp(bytes + 2, want, n) && bytes[n + 5002] == 'z',
           "out_copy() from %s: all bytes, then zeros, in order", what);
}

/* 1500 pieces of the bytes of 'want', from its end to its start. */
static int
put_pieces(const char *path, char *want, size_t piece, struct err *err)
{
    static struct iovec v[1500];
    struct out *o;

    for (size_t i = 0; i < 1500; i++)
        v[i] = (struct iovec){ want + (1499 - i) * piece, piece };
    if (out_open(&o, path, 0, false, err) < 0 ||
        out_write(o, "ab", 2, err) < 0 ||
        out_writev(o, v, 700, true, err) < 0 ||
        out_writev(o, v + 700, 800, false, err) < 0 ||
        out_write(o, "z", 1, err) < 0)
        return -1;
    return out_commit(o, err);
}

/* To a file, and to a pipe. */
static void
test_writev(void)
{
    static char want[1500 * 5000], got[1500 * 5000 + 4];
    struct err err = { 0 };

    for (size_t i = 0; i < sizeof(want); i++)
        want[i] = (char)(i * 2654435761u >> 24);
    for (int pipe = 0; pipe < 2; pipe++) {
        pid_t pid = (!pipe || mkfifo("p", 0600) == 0) ? fork() : -1;
        size_t n = 0, n_wrong = 0;
        FILE *f;

        if (pid == 0)
            _exit(put_pieces(pipe ? "p" : "x", want, 5000, &err) < 0);
        if (!pipe)
            waitpid(pid, NULL, 0);
        f = fopen(pipe ? "p" : "x", "rb");
        if (f)
            n = fread(got, 1, sizeof(got), f);
        for (size_t i = 0; i < 1500; i++)
            n_wrong +=
                !!memcmp(got + 2 + i * 5000, want + (1499 - i) * 5000, 5000);
        tap_ok(n == sizeof(want) + 3 && n_wrong == 0 && got[0] == 'a' &&
                   got[n - 1] == 'z',
               "out_writev() to a %s: all bytes, in order",
               pipe ? "pipe" : "file");
        if (f)
            fclose(f);
        if (pipe)
            waitpid(pid, NULL, 0);
    }
    clear();
}

static void
test_copy(void)
{
    static char want[300000];
    struct err err = { 0 };
    struct stat st;
    struct out *o;
    int p[2];

    for (size_t i = 0; i < sizeof(want); i++)
        want[i] = (char)(i * 31 >> 3);
    umask(022);
    out_open(&o, "in", OUT_READ_ONLY, false, &err);
    out_write(o, want, sizeof(want), &err);
    out_commit(o, &err);
    tap_ok(stat("in", &st) == 0 && (st.st_mode & 0777) == 0444,
           "OUT_READ_ONLY: a file of mode 0444");
    copy_all(open("in", O_RDONLY), want, sizeof(want), "a file");
    if (pipe(p) == 0 && fork() == 0) {
        for (size_t n = 0; n < sizeof(want); n += 50000)
            if (write(p[1], want + n, 50000) != 50000)
                _exit(1);
        _exit(0);
    }
    close(p[1]);
    copy_all(p[0], want, sizeof(want), "a pipe");
    wait(NULL);
    copy_all(open("/dev/null", O_RDONLY), want, 0, "/dev/null");
    clear();
}

static time_t passed_s; /* since files were made */

time_t
time(time_t *to)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += passed_s;
    if (to)
        *to = t.tv_sec;
    return t.tv_sec;
}

/* An empty file ".x.tmp.TAIL" that says that it was written then. */
static void
leave(const char *tail, time_t written_s, char path[200])
{
    struct timespec t[2] = { { .tv_sec = time(NULL) - written_s },
                             { .tv_sec = time(NULL) - written_s } };
    int fd;

    snprintf(path, 200, ".x.tmp.%s", tail);
    fd = open(path, O_WRONLY | O_CREAT, 0666);
    if (fd >= 0) {
        futimens(fd, t);
        close(fd);
    }
}

/* Which left temporaries the next writer of "x" removes. */
static void
other_threads_lose_their_libraries(void)
{
    _exit(99);
}

/* xmalloc() may end any thread of any tool at any moment. */
static void
test_memory(void)
{
    struct out *o;
    struct err err;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        close(2);
        atexit(other_threads_lose_their_libraries);
        if (out_open(&o, "x", 0, false, &err) == 0)
            xrealloc(NULL, SIZE_MAX, 2);
        _exit(1);
    }
    tap_ok(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
               WEXITSTATUS(status) == EX_SOFTWARE,
           "out of memory is status 70, and no handler of exit() runs");
    tap_ok(count_files() == 0, "it leaves no temporary");
    clear();
}

static pthread_barrier_t all;

static void *
lack_memory(void *unused)
{
    pthread_barrier_wait(&all);
    return unused ? unused : xrealloc(NULL, SIZE_MAX, 2);
}

/* The text of a process all of whose threads lack memory at once. */
static ssize_t
last_words(char *text, size_t room)
{
    int fds[2];
    ssize_t n = 0, more;

    if (pipe(fds) < 0)
        return -1;
    if (fork() == 0) {
        pthread_t thread;

        dup2(fds[1], 2);
        pthread_barrier_init(&all, NULL, 4);
        for (int i = 0; i < 3; i++)
            pthread_create(&thread, NULL, lack_memory, NULL);
        lack_memory(NULL);
    }
    close(fds[1]);
    while ((more = read(fds[0], text + n, room - (size_t)n)) > 0)
        n += more;
    close(fds[0]);
    wait(NULL);
    return n;
}

static void
test_memory_of_threads(void)
{
    char text[400], want[100];
    int want_n = snprintf(want, sizeof(want), "%s: out of memory\n",
                          program_invocation_short_name);
    bool good = true;

    for (int i = 0; i < 50; i++)
        good &= last_words(text, sizeof(text)) == want_n &&
                !memcmp(text, want, (size_t)want_n);
    tap_ok(good, "threads that lack memory together say so once");
}

/* "a" and 40 letters of two bytes: the 64th byte is in the middle of one. */
static void
test_long_name(void)
{
    char path[128] = "d/a", want[128] = "d/.a", *name;

    for (int i = 0; i < 40; i++)
        strcat(path, "\xc3\xa4");
    for (int i = 0; i < 31; i++)
        strcat(want, "\xc3\xa4");
    strcat(want, ".tmp.");
    name = tmp_name(path);
    tap_ok(!strncmp(name, want, strlen(want)),
           "a temporary has whole letters of a long name: %s", name);
    free(name);
}

static void
test_sweep(void)
{
    char host[128] = "", tail[180], path[200];
    struct err err = { 0 };
    pid_t dead = fork();
    const struct {
        const char *what, *host, *more;
        long pid;
        time_t written_s, passed_s;
        bool goes;
    } t[] = {
        { "of a dead process here", host, "", dead, 0, 0, true },
        { "of a living process here, however old", host, "", (long)getppid(), 0,
          999999, false },
        { "of another host, new", "other", "", dead, 60, 60, false },
        { "of another host, two days old", "other", "", 1, 0, 172800, true },
        /* O_EXCL on NFS: first its times are a number that tells retries */
        { "of another host, that NFS is making", "other", "", 1, 172800, 0,
          false },
        { "of a host whose name begins like ours", host, ".7", (long)getppid(),
          60, 60, false },
        { "of nobody known", "notes", ".txt", dead, 60, 60, false },
    };

    if (dead == 0)
        _exit(0);
    waitpid(dead, NULL, 0);
    own_host(host);
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        snprintf(tail, sizeof(tail), "%s%s.%ld.0", t[i].host, t[i].more,
                 t[i].pid);
        leave(tail, t[i].written_s, path);
        passed_s = t[i].passed_s;
        put("x", OUT_FORCE, 'a', 10, &err);
        passed_s = 0;
        tap_ok((access(path, F_OK) < 0) == t[i].goes, "a temporary %s %s",
               t[i].what, t[i].goes ? "goes" : "stays");
        unlink(path);
    }
    clear();
}

int
main(void)
{
    char dir[] = "/tmp/tu-out.XXXXXX";

    if (!mkdtemp(dir) || chdir(dir) < 0)
        return 1;
    test_refusals();
    test_put();
    test_link();
    test_names();
    test_two_writers();
    test_fifo();
    test_signals();
    test_kill();
    test_reserve();
    test_memory();
    test_memory_of_threads();
    test_long_name();
    test_sweep();
    test_copy();
    test_writev();
    clear();
    if (chdir("/") < 0 || rmdir(dir) < 0)
        return 1;
    return tap_done();
}
