/* SPDX-License-Identifier: ISC */
/*
 * run [OPTION...] -- TOOL [ARG...]: makes the nth call of each class of
 * functions fail in a run of TOOL, for every n up to the end, and judges what
 * it did.  TOOL runs in the directory that this is started in, where ./out
 * holds its outputs; what is in ./out at the start is put back before each run.
 *
 *   -p SHIM    the library to preload
 *   -n NAME    of this case, for messages
 *   -i FILE    standard input (default: /dev/null)
 *   -P         standard output is a pipe (default: a file)
 *   -q N       N faults of a kind at most, spread over the run; -q again:
 *              the least
 *   -c CLASS   only faults called so
 *   -m         several outputs: each is whole, but not all need be there
 *   -k GLOB    may stay in ./out for the next run (a temporary may not)
 *   -r ARG     a further argument of the run after a failed one; -r again
 *   -w         what is wrong is told on standard output (verify)
 *   -o         the words of two runs differ (seconds, a resumed log)
 *   -d         says which fault is next (for a debugger)
 *
 * Prints "NAME<tab>INJECTED<tab>BAD" and, before it, a line for each run that
 * broke a rule.  A run must end, by a documented status, with one line on
 * standard error if it failed; each output is then what it was before or what
 * it is to be; a run without faults afterwards does the rest.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "test/fault/fault.h"
#include "test/fault/tree.h"

#define LIMIT_S   60
#define MAX_MORE  8
#define MAX_TRIES 12
#define OUT       "out"
#define NOW_OLD   "and what it was is now "

enum verdict {
    ANY,  /* it may fail */
    SAME, /* the fault must not be noticed */
    MUST, /* it is no success */
    STOP, /* a signal: the end, or a stop that says what is true */
    LATE, /* the same, and only where -c asks for it */
};

#define E(error)         error, #error, 0, 0
#define PART(how)        0, how, 0, 0
#define AFTER(sig, n)    0, #sig, sig, n
#define WITH(error, sig) error, #error, sig, 1

static const struct kind {
    const char *name;
    enum fault_class class;
    int error;
    const char *how;
    int signal, times;
    unsigned part;
    bool sticky, first; /* first: n = 1 alone */
    enum verdict verdict;
} kinds[] = {
    { "alloc", FAULT_ALLOC, E(ENOMEM), 0, false, false, ANY },
    { "alloc", FAULT_ALLOC, E(ENOMEM), 0, true, false, ANY },
    { "map", FAULT_MAP, E(ENOMEM), 0, false, false, ANY },
    { "map", FAULT_MAP, E(ENODEV), 0, true, false, ANY },
    { "open", FAULT_OPEN, E(EMFILE), 0, false, false, ANY },
    { "open", FAULT_OPEN, E(EIO), 0, false, false, ANY },
    { "open", FAULT_OPEN, E(EMFILE), 0, true, false, ANY },
    { "read", FAULT_READ, E(EIO), 0, false, false, ANY },
    { "read", FAULT_READ, E(EIO), 0, true, false, ANY },
    { "read", FAULT_READ, E(EINTR), 0, false, false, SAME },
    { "read", FAULT_READ, E(EAGAIN), 0, false, false, ANY },
    { "read", FAULT_READ, PART("1 byte"), 0, false, false, SAME },
    { "read", FAULT_READ, PART("half"), 2, false, false, SAME },
    { "read", FAULT_READ, PART("half"), 2, true, true, SAME },
    { "write", FAULT_WRITE, E(ENOSPC), 0, true, false, ANY },
    { "write", FAULT_WRITE, E(EIO), 0, false, false, ANY },
    { "write", FAULT_WRITE, E(EDQUOT), 0, false, false, ANY },
    { "write", FAULT_WRITE, E(EINTR), 0, false, false, SAME },
    { "write", FAULT_WRITE, E(EAGAIN), 0, false, false, ANY },
    { "write", FAULT_WRITE, PART("1 byte"), 0, false, false, SAME },
    { "write", FAULT_WRITE, PART("half"), 2, false, false, SAME },
    { "write", FAULT_WRITE, PART("half"), 2, true, true, SAME },
    { "copy", FAULT_COPY, E(EIO), 0, false, false, ANY },
    { "copy", FAULT_COPY, E(ENOSPC), 0, true, false, ANY },
    { "copy", FAULT_COPY, E(EINTR), 0, false, false, SAME },
    { "copy", FAULT_COPY, E(EINVAL), 0, true, false, SAME },
    { "copy", FAULT_COPY, PART("1 byte"), 0, false, false, SAME },
    { "copy", FAULT_COPY, PART("half"), 2, true, true, SAME },
    { "sync", FAULT_SYNC, E(EIO), 0, false, false, MUST },
    { "sync", FAULT_SYNC, E(ENOSPC), 0, true, false, MUST },
    { "sync", FAULT_SYNC, E(EINTR), 0, false, false, ANY },
    { "space", FAULT_SPACE, E(ENOSPC), 0, true, false, ANY },
    { "space", FAULT_SPACE, E(EDQUOT), 0, false, false, ANY },
    { "space", FAULT_SPACE, E(EIO), 0, false, false, ANY },
    { "space", FAULT_SPACE, E(EINTR), 0, false, false, ANY },
    { "name", FAULT_NAME, E(EIO), 0, false, false, ANY },
    { "name", FAULT_NAME, E(EPERM), 0, false, false, ANY },
    { "name", FAULT_NAME, E(ENOSPC), 0, true, false, ANY },
    { "remove", FAULT_REMOVE, E(EIO), 0, false, false, ANY },
    { "remove", FAULT_REMOVE, E(EROFS), 0, true, false, ANY },
    { "stat", FAULT_STAT, E(EIO), 0, false, false, ANY },
    { "stat", FAULT_STAT, E(EACCES), 0, true, false, ANY },
    { "list", FAULT_LIST, E(EIO), 0, false, false, ANY },
    { "seek", FAULT_SEEK, E(EIO), 0, false, false, ANY },
    { "thread", FAULT_THREAD, E(EAGAIN), 0, false, false, ANY },
    { "thread", FAULT_THREAD, E(EAGAIN), 0, true, false, ANY },
    { "close", FAULT_CLOSE, E(EIO), 0, false, false, ANY },
    { "close", FAULT_CLOSE, E(ENOSPC), 0, true, false, ANY },
    { "close", FAULT_CLOSE, E(EINTR), 0, false, false, SAME },
    { "rights", FAULT_RIGHTS, E(EACCES), 0, false, false, ANY },
    { "rights", FAULT_RIGHTS, E(EIO), 0, false, false, ANY },
    { "poll", FAULT_POLL, E(EINTR), 0, false, false, SAME },
    { "poll", FAULT_POLL, E(ENOMEM), 0, false, false, ANY },
    { "hint", FAULT_HINT, E(EINVAL), 0, false, false, SAME },
    { "hint", FAULT_HINT, E(ENOSYS), 0, true, false, SAME },
    { "wait", FAULT_WAIT, E(EINTR), 0, false, false, SAME },
    { "wait", FAULT_WAIT, E(EAGAIN), 0, false, false, SAME },
    { "signal", FAULT_NAME, AFTER(SIGTERM, 1), 0, false, false, STOP },
    { "signal", FAULT_NAME, AFTER(SIGINT, 2), 0, false, false, STOP },
    { "signal", FAULT_REMOVE, AFTER(SIGTERM, 1), 0, false, false, STOP },
    { "signal", FAULT_REMOVE, AFTER(SIGINT, 2), 0, false, false, STOP },
    { "signal", FAULT_SYNC, AFTER(SIGHUP, 1), 0, false, false, STOP },
    { "signal", FAULT_CLOSE, AFTER(SIGTERM, 1), 0, false, false, STOP },
    { "signal", FAULT_OPEN, AFTER(SIGUSR1, 1), 0, false, false, STOP },
    { "signal", FAULT_WRITE, AFTER(SIGTERM, 1), 0, false, false, STOP },
    { "late", FAULT_STAT, WITH(ENOENT, SIGTERM), 0, false, false, LATE },
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct result {
    int status; /* 128 + N: by signal N; -1: did not end */
    char *out, *says;
    size_t out_n, says_n;
    struct tree tree;
};

static struct {
    const char *shim, *name, *input, *class, *keep;
    char **argv, *more[MAX_MORE + 1];
    bool pipe, many, others, tells, debug;
    unsigned most;
} opt = { .name = "run", .input = "/dev/null" };

static struct fault *page;
static char page_path[] = "/tmp/fault.XXXXXX";
static struct tree before;
static struct result whole;
static unsigned long injected, bad;
static volatile sig_atomic_t late;
static pid_t child;

static void
on_alarm(int sig)
{
    (void)sig;
    late = 1;
    kill(child, SIGKILL);
}

/* ---- one run ---- */

static void
become_tool(char **argv, int in, int out, int says)
{
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(says, 2) < 0)
        _exit(99);
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL); /* a shell's "&" ignores some */
    setenv("LD_PRELOAD", opt.shim, 1);
    setenv(FAULT_PAGE, page_path, 1);
    execvp(argv[0], argv);
    _exit(99);
}

/* All that comes out of a pipe, into a file. */
static void
drain(int from, int to)
{
    char buf[65536];
    ssize_t n;

    while ((n = read(from, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && write(to, buf, (size_t)n) != n)
            err(99, "write");
    close(from);
}

static char *
rest_of(int fd, size_t *nbytes)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *data = calloc((size_t)size + 1, 1);

    if (pread(fd, data, (size_t)size, 0) != size)
        err(99, "pread");
    close(fd);
    *nbytes = (size_t)size;
    return data;
}

static void
run(struct result *r, char **argv)
{
    int out = memfd_create("out", MFD_CLOEXEC);
    int says = memfd_create("says", MFD_CLOEXEC);
    int in = open(opt.input, O_RDONLY | O_CLOEXEC);
    int ends[2], status;

    if (out < 0 || says < 0 || in < 0 || pipe2(ends, O_CLOEXEC) < 0)
        err(99, "%s", opt.input);
    *r = (struct result){ 0 };
    late = 0;
    child = fork();
    if (child == 0)
        become_tool(argv, in, opt.pipe ? ends[1] : out, says);
    alarm(LIMIT_S);
    close(in);
    close(ends[1]);
    drain(ends[0], out);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            err(99, "waitpid");
    alarm(0);
    r->status = late                  ? -1
                : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                      : WEXITSTATUS(status);
    r->out = rest_of(out, &r->out_n);
    r->says = rest_of(says, &r->says_n);
    tree_read(&r->tree, OUT);
}

static void
result_free(struct result *r)
{
    free(r->out);
    free(r->says);
    tree_free(&r->tree);
}

/* ---- what it may do ---- */

static const struct kind *now_kind;
static unsigned now_n;

static __attribute__((format(printf, 2, 3))) void
broken(const struct result *r, const char *fmt, ...)
{
    char what[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    bad++;
    printf("# %s: %s %u%s %s (%s): status %d: %s\n", opt.name, now_kind->name,
           now_n, now_kind->sticky ? "+" : "", now_kind->how, page->name,
           r->status, what);
    if (r->says_n)
        printf("#   %.*s\n", (int)strcspn(r->says, "\n"), r->says);
    fflush(stdout);
}

static bool
same_words(const struct result *r)
{
    return opt.others ||
           (r->out_n == whole.out_n && !memcmp(r->out, whole.out, r->out_n));
}

/* Lines on standard error that a run without faults does not have. */
static int
new_lines(const struct result *r, bool *house)
{
    const char *tool = strrchr(opt.argv[0], '/');
    size_t tool_n = strlen(tool ? ++tool : (tool = opt.argv[0]));
    int count = 0;

    *house = true;
    for (const char *s = r->says, *end; *s; s = end + 1) {
        end = strchr(s, '\n');
        if (!end) {
            *house = false;
            return count + 1;
        }
        if (memmem(whole.says, whole.says_n, s, (size_t)(end + 1 - s)))
            continue;
        count++;
        if (strncmp(s, tool, tool_n) != 0 || strncmp(s + tool_n, ": ", 2) != 0)
            *house = false;
    }
    return count;
}

/* A temporary stays where what removes it was made to fail, what is replaced
 * where the new name could not be synced or nobody can tell which of the two it
 * is, and shards where the run was stopped; the next one uses or removes them.
 */
static bool
is_waste(const char *path)
{
    if (now_kind->verdict == STOP && !fnmatch(".*.part*", path, 0))
        return true;
    if ((now_kind->class == FAULT_SYNC || now_kind->class == FAULT_STAT) &&
        !fnmatch(".*.old*", path, 0))
        return true;
    return now_kind->error &&
           (now_kind->class == FAULT_REMOVE || now_kind->class == FAULT_OPEN ||
            now_kind->class == FAULT_LIST) &&
           (!fnmatch("*.tmp.*", path, 0) || !fnmatch(".*.old*", path, 0));
}

/* Each output is as it was, or as it is to be. */
static void
judge_entry(const struct result *r, const char *path, bool *was, bool *is)
{
    const struct entry *a = tree_find(&before, path);
    const struct entry *b = tree_find(&whole.tree, path);
    const struct entry *e = tree_find(&r->tree, path);

    if (!a && !b && is_waste(path))
        return;
    if (!entry_same(e, a))
        *was = false;
    if (!entry_same(e, b))
        *is = false;
    if (entry_same(e, a) || entry_same(e, b))
        return;
    if (opt.keep && e && !strstr(path, ".tmp.") && !fnmatch(opt.keep, path, 0))
        return;
    /* of a run that is replaced the log goes just before the new state comes: a
     * state without a log is resumed, one with another run's is not */
    if (opt.keep && !e && !fnmatch(opt.keep, path, 0) &&
        !fnmatch("*/log.tsv", path, 0))
        return;
    broken(r, !a && !b ? "%s stays" : "%s is neither the old nor the new",
           path);
}

static void
judge_tree(const struct result *r, bool done)
{
    const struct tree *trees[] = { &before, &whole.tree, &r->tree };
    bool was = true, is = true;

    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < trees[i]->n; k++)
            judge_entry(r, trees[i]->entries[k].path, &was, &is);
    if (done && !is)
        broken(r, "success, but not the output");
    if (is && !was && r->status == EX_TEMPFAIL && !opt.many)
        broken(r, "stopped, but all of the output");
    if (!done && !was && !is && !opt.many && !opt.keep)
        broken(r, "some of the output");
}

/* What cannot be told is not "no such file". */
static bool
documented(const struct result *r)
{
    if (r->status == EX_NOINPUT)
        return now_kind->error == EACCES || now_kind->error == ENOENT ||
               !strstr(r->says, strerror(now_kind->error));
    return r->status == EX_SOFTWARE || r->status == EX_CANTCREAT ||
           r->status == EX_IOERR || r->status == EX_TEMPFAIL;
}

/* Time and again, where once tells it. */
static bool
insists(void)
{
    enum fault_class c = now_kind->class;

    return now_kind->sticky && now_kind->error &&
           (c == FAULT_WRITE || c == FAULT_SPACE || c == FAULT_SYNC ||
            c == FAULT_NAME) &&
           atomic_load(&page->injected) > MAX_TRIES;
}

/* Stopped by a signal: not a word where it ends by that, as it would have. */
static bool
stopped(const struct result *r, int n)
{
    return r->status == EX_TEMPFAIL ||
           (r->status == 128 + now_kind->signal && n == 0);
}

/* What was to be replaced and could not get its name back: the line says where
 * it is, and whoever reads it gives it its name. */
static void
obey(struct result *r)
{
    const char *path = strstr(r->says, ": "), *old, *end;
    char from[1024], to[1024];

    if (!path || !(old = strstr(path, NOW_OLD)) ||
        !(end = strstr(old + strlen(NOW_OLD), ": ")))
        return;
    path += 2;
    snprintf(to, sizeof(to), "%.*s", (int)strcspn(path, ":"), path);
    old += strlen(NOW_OLD);
    snprintf(from, sizeof(from), "%.*s", (int)(end - old), old);
    if (rename(from, to) < 0)
        broken(r, "%s is not there", from);
    tree_free(&r->tree);
    tree_read(&r->tree, OUT);
}

static void
judge(const struct result *r)
{
    bool house, done = r->status == whole.status;
    int n = new_lines(r, &house);

    if (r->status == -1)
        broken(r, "did not end in %d s", LIMIT_S);
    else if (done && !same_words(r) && !(opt.tells && whole.status))
        broken(r, "success, but other words");
    else if (!done && now_kind->verdict == STOP && !stopped(r, n))
        broken(r, "not a status for a signal");
    else if (done && now_kind->verdict == MUST)
        broken(r, "success, whatever failed");
    else if (!done && now_kind->verdict == SAME)
        broken(r, "should not have been noticed");
    else if (!done && now_kind->verdict == LATE && r->status == EX_CANTCREAT)
        broken(r, "stopped, and does not say so");
    else if (!done && now_kind->verdict == LATE)
        ; /* misled, but not to that */
    else if (!done && now_kind->error != ENOENT &&
             strstr(r->says, "another run "))
        broken(r, "there is no other run");
    else if (insists())
        broken(r, "tried %u times", atomic_load(&page->injected));
    else if (!done && r->status == 128 + now_kind->signal)
        ; /* as it would have ended */
    else if (!done && !documented(r))
        broken(r, "not a status for that");
    else if (!done && n != 1 && !(opt.tells && n == 0))
        broken(r, "%d lines, not one", n);
    else if (!house)
        broken(r, "not \"tool: what\"");
    judge_tree(r, done);
}

/* What a failed run has left is no hindrance to the next. */
static void
judge_next(void)
{
    char *argv[256];
    struct result r;
    int n = 0;

    while (opt.argv[n] && n < 240) {
        argv[n] = opt.argv[n];
        n++;
    }
    for (int i = 0; opt.more[i]; i++)
        argv[n++] = opt.more[i];
    argv[n] = NULL;
    page->class = FAULT_NONE;
    run(&r, argv);
    if ((r.status == EX_CANTCREAT || r.status == EX_NOINPUT) &&
        tree_same(&r.tree, &whole.tree))
        ; /* the failed run had done all but its last step */
    else if (r.status != whole.status || !same_words(&r))
        broken(&r, "the next run fails");
    else if (!tree_same(&r.tree, &whole.tree))
        broken(&r, "the next run's output differs");
    result_free(&r);
}

/* ---- all of them ---- */

static void
inject(const struct kind *k, unsigned n)
{
    struct result r;

    now_kind = k;
    now_n = n;
    memset(page, 0, sizeof(*page));
    page->class = k->class;
    page->nth = n;
    page->sticky = k->sticky;
    page->error = k->error;
    page->part = k->part;
    page->signal = k->signal;
    page->times = k->times;
    if (opt.debug)
        printf("# %s %u\n", k->name, n);
    run(&r, opt.argv);
    if (atomic_load(&page->injected)) {
        injected++;
        obey(&r);
        judge(&r);
        if (!tree_same(&r.tree, &before)) {
            if (r.status != whole.status)
                judge_next();
            tree_write(&before, OUT);
        }
    } else if (!tree_same(&r.tree, &before)) {
        tree_write(&before, OUT);
    }
    result_free(&r);
}

/* The first, the last, and others between them. */
static void
inject_all(const struct kind *k, unsigned calls)
{
    unsigned most = opt.most && opt.most < calls ? opt.most : calls;

    if (k->first && calls)
        most = 1;
    for (unsigned i = 0; i < most; i++)
        inject(k, most == 1 ? 1
                            : 1 + (unsigned)((unsigned long)i * (calls - 1) /
                                             (most - 1)));
}

/* Two runs without faults: they must agree. */
static void
run_whole(unsigned calls[FAULT_CLASSES])
{
    static const struct kind none = { .name = "none" };
    struct result again;

    now_kind = &none;
    run(&whole, opt.argv);
    for (int c = 0; c < FAULT_CLASSES; c++)
        calls[c] = atomic_load(&page->calls[c]);
    if (whole.status > 1)
        errx(99, "%s: status %d: %s", opt.name, whole.status, whole.says);
    if (calls[FAULT_OPEN] + calls[FAULT_ALLOC] == 0)
        errx(77, "%s: the shim is not loaded", opt.argv[0]);
    tree_write(&before, OUT);
    run(&again, opt.argv);
    if (again.status != whole.status || !same_words(&again) ||
        !tree_same(&again.tree, &whole.tree))
        broken(&again, "two runs without faults differ");
    result_free(&again);
    tree_write(&before, OUT);
}

static void
options(int argc, char **argv)
{
    unsigned n;
    int c, more = 0;

    while ((c = getopt(argc, argv, "+p:n:i:Pq:c:mk:r:owd")) != -1) {
        switch (c) {
        case 'p':
            opt.shim = optarg;
            break;
        case 'n':
            opt.name = optarg;
            break;
        case 'i':
            opt.input = optarg;
            break;
        case 'P':
            opt.pipe = true;
            break;
        case 'q':
            n = (unsigned)strtoul(optarg, NULL, 10);
            if (!opt.most || n < opt.most)
                opt.most = n;
            break;
        case 'c':
            opt.class = optarg;
            break;
        case 'm':
            opt.many = true;
            break;
        case 'k':
            opt.keep = optarg;
            break;
        case 'o':
            opt.others = true;
            break;
        case 'w':
            opt.tells = true;
            break;
        case 'd':
            opt.debug = true;
            break;
        case 'r':
            if (more < MAX_MORE)
                opt.more[more++] = optarg;
            break;
        default:
            exit(2);
        }
    }
    opt.argv = argv + optind;
    if (!opt.shim || !opt.argv[0])
        errx(2, "usage: run -p SHIM [OPTION...] -- TOOL [ARG...]");
}

static void
remove_page(void)
{
    unlink(page_path);
}

static void
open_page(void)
{
    int fd = mkstemp(page_path);

    if (fd < 0 || ftruncate(fd, FAULT_ROOM) < 0)
        err(99, "%s", page_path);
    atexit(remove_page);
    page = mmap(NULL, FAULT_ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        err(99, "%s", page_path);
    close(fd);
}

int
main(int argc, char **argv)
{
    struct sigaction alarmed = { .sa_handler = on_alarm };
    unsigned calls[FAULT_CLASSES];

    options(argc, argv);
    open_page();
    sigaction(SIGALRM, &alarmed, NULL);
    tree_read(&before, OUT);
    run_whole(calls);
    for (size_t i = 0; i < N_KINDS; i++)
        if (opt.class ? !strcmp(opt.class, kinds[i].name)
                      : kinds[i].verdict != LATE)
            inject_all(&kinds[i], calls[kinds[i].class]);
    printf("%s\t%lu\t%lu\n", opt.name, injected, bad);
    return bad > 0;
}
