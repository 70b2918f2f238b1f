/* SPDX-License-Identifier: ISC */
#include "core/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/inuse.h"
#include "core/out.h"
#include "core/par.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tsv.h"

static const struct opt_tool *self;
static struct tsv table = { .counts = true }; /* of tool_put() */

/* On a terminal a table has columns. */
static void
put(const char *text, size_t nbytes, enum tsv_when when)
{
    struct str lines = { 0 };

    /* mpirun gives ranks a terminal, wherever its own output goes */
    if (nbytes && (!isatty(1) || getenv("OMPI_COMM_WORLD_RANK")))
        str_add(&lines, text, nbytes);
    else
        tsv_add(&table, text, nbytes, when, &lines);
    if (lines.n)
        fwrite(lines.s, 1, lines.n, stdout);
    str_free(&lines);
}

static void
say(const char *what)
{
    struct str line = { 0 };

    str_addf(&line, "%s: ", self->name);
    str_esc(&line, what, strlen(what));
    str_addc(&line, '\n');
    put(NULL, 0, TSV_END);
    fflush(stdout); /* the order a terminal shows is the order it happened */
    fwrite(line.s, 1, line.n, stderr);
    str_free(&line);
}

void
tool_say(const char *fmt, ...)
{
    struct str what = { 0 };
    va_list ap;

    va_start(ap, fmt);
    str_addv(&what, fmt, ap);
    va_end(ap);
    say(what.s ? what.s : fmt); /* a number of bytes over INT_MAX */
    str_free(&what);
}

/* A mapped file that another process cuts short ends us here: the thread that
 * met it first, while the others wait. */
static void
on_bus(int sig)
{
    static atomic_flag met = ATOMIC_FLAG_INIT;
    static const char tail[] = ": an input file shrank while it was read\n";
    ssize_t n;

    (void)sig;
    while (atomic_flag_test_and_set(&met))
        pause();
    n = write(2, self->name, strlen(self->name));
    n += write(2, tail, sizeof(tail) - 1);
    (void)n;
    out_abort_all();
    _exit(EX_IOERR);
}

void
tool_put(const char *fmt, ...)
{
    struct str text = { 0 };
    va_list ap;

    va_start(ap, fmt);
    str_addv(&text, fmt, ap);
    va_end(ap);
    put(text.s, text.n, TSV_NOW);
    str_free(&text);
}

int
tool_print(const struct str *line)
{
    errno = 0;
    if (!out_stdout_ready())
        return 0;
    put(line->s, line->n, TSV_NOW);
    return ferror(stdout) || fflush(stdout) == EOF ? errno : 0;
}

const char *
tool_host(void)
{
    static char host[65]; /* HOST_NAME_MAX of Linux, and 0 */

    if (!*host && gethostname(host, sizeof(host)) < 0)
        strcpy(host, "?");
    return host;
}

static void
try_help(void)
{
    fprintf(stderr, "Try '%s --help'\n", self->name);
}

_Noreturn void
die_err(const struct err *err)
{
    say(err->what);
    if (err->status == TU_USAGE)
        try_help();
    exit(err->status);
}

_Noreturn void
die_usage(const char *fmt, ...)
{
    struct err err = { .status = TU_USAGE };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err.what, sizeof(err.what), fmt, ap);
    va_end(ap);
    die_err(&err);
}

_Noreturn void
tool_end(int status)
{
    struct err err;

    put(NULL, 0, TSV_END);
    if (out_close_stdout(&err) < 0)
        die_err(&err);
    exit(status);
}

void
tool_parse(struct opt_line *line, const struct opt_tool *tool, int argc,
           char **argv, void *to)
{
    struct sigaction bus = { .sa_handler = on_bus };
    struct err err;
    int c;

    self = tool;
    /* A closed fd 0, 1 or 2 would be given to the next file opened, and data
     * meant for a person would land in it.  The stand-ins refuse instead. */
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(EX_IOERR);
    inuse_begin();
    /* it makes getopt stop at the first operand: "TOOL MODEL -p TEXT" */
    unsetenv("POSIXLY_CORRECT");
    err_warn_hook(say);
    sigaction(SIGBUS, &bus, NULL);
    signal(SIGXFSZ, SIG_IGN); /* ulimit -f: write() fails, and we clean up */
    for (const struct opt *o = tool->opts; o->name; o++)
        if (o->letter == 'j')
            *(int *)((char *)to + o->to.at) = par_default();
    c = opt_parse(line, tool, argc, argv, to, &err);
    if (argc < 2) {
        opt_print_usage(line, stderr);
        try_help();
        exit(TU_USAGE);
    }
    if (c < 0)
        die_err(&err);
    if (c == 'h')
        opt_print_help(line, stdout);
    else if (c == 'V')
        printf("%s (tensorutils) %s\n", tool->name, VERSION);
    else if (c == 'C' && opt_print_completion(tool, line->shell, stdout) < 0)
        die_usage("--completions: \"%s\" is not bash or zsh", line->shell);
    if (c)
        tool_end(0);
    if (opt_given(line, "quiet"))
        err_warn_hook(NULL);
}

int
tool_deadline(void *to, const char *arg, struct err *err)
{
    double seconds;

    (void)to;
    if (opt_f64("--deadline", arg, 0, 1e9, &seconds, err) < 0)
        return -1;
    sig_deadline(seconds);
    return 0;
}

int
tool_make(bool if_missing, int (*sound)(void *cmd, struct err *err),
          int (*make)(void *cmd, struct err *err), void *cmd, struct err *err)
{
    int rc = if_missing ? sound(cmd, err) : 0;
    struct err later;

    if (rc)
        return rc < 0 ? -1 : 0;
    rc = make(cmd, err);
    if (rc < 0 && if_missing &&
        (err->status == EX_CANTCREAT || err->status == EX_TEMPFAIL) &&
        sound(cmd, &later) > 0)
        return 0;
    return rc;
}
