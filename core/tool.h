/* SPDX-License-Identifier: ISC */
/*
 * What the mains of all tools share: messages, statuses, the end.  Nothing but
 * cmd/ includes it.
 */
#ifndef CORE_TOOL_H
#define CORE_TOOL_H

#include "core/err.h"
#include "core/opt.h"
#include "core/out.h"

/* Options that are the same in several tools; the fields are int n_threads
 * and out_flags, const char *out_path, bool quiet. */
#define TOOL_THREADS(verbs)                                          \
    OPT_PUT('j', "threads", "N", verbs, OPT_INT(n_threads, 1, 1024), \
            "threads (default: CPUs of this process)")
#define TOOL_OUTPUT                                          \
    OPT_PUT('o', "output", "FILE", NULL, OPT_TEXT(out_path), \
            "write there, whole or not at all")
#define TOOL_FORCE(verbs)                                               \
    OPT_PUT('f', "force", NULL, verbs, OPT_CONST(out_flags, OUT_FORCE), \
            "replace existing outputs")
#define TOOL_QUIET                                     \
    OPT_PUT('q', "quiet", NULL, NULL, OPT_FLAG(quiet), \
            "no warnings, no progress")
#define TOOL_DEADLINE(verbs, when)                                    \
    OPT_PUT(0, "deadline", "SECONDS", verbs, OPT_CALL(tool_deadline), \
            when "stop after that as SIGTERM does: status 75")

/* Is there a main for each verb? */
#define TOOL_MAINS(mains, verbs)                             \
    _Static_assert(sizeof(mains) / sizeof((mains)[0]) + 1 == \
                       sizeof(verbs) / sizeof((verbs)[0]),   \
                   "a main for each verb")

/* The message of the rule between two options. */
#define TOOL_IF_MISSING "--if-missing keeps what --force replaces"

/*
 * tool_parse() is main's first step.  Warnings go to stderr as "TOOL: what",
 * closed standard streams become errors instead of accidents, a SIGBUS from a
 * mapped file that shrank becomes a line and EX_IOERR, and so does a file that
 * outgrows ulimit -f.  Then it is opt_parse() with the common part done:
 * --help, --version and --completions SHELL, which the installation uses, are
 * answered on stdout and exit 0, a usage error prints its line, or without any
 * arguments the usage, and "Try 'TOOL --help'" and exits TU_USAGE, --quiet,
 * which every table has, drops warnings, and an int that -j sets is
 * par_default() without it.
 */
void tool_parse(struct opt_line *line, const struct opt_tool *tool, int argc,
                char **argv, void *to);

/* tool_deadline() is OPT_CALL of --deadline SECONDS: from now on. */
int tool_deadline(void *to, const char *arg, struct err *err);

/* tool_say() prints "TOOL: what" to stderr, escaped, of a printf format without
 * a newline. */
void tool_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* tool_put() is printf(), but on a terminal TSV has columns (core/tsv.h). */
void tool_put(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* tool_print() is tool_put() of a line of a run, at once: 0, or errno.  If it
 * is time to stop before a pipe takes the line, it is left out. */
int tool_print(const struct str *line);

/* tool_host() is this machine's name, which -v of a long run says, or "?".
 * Owner: nobody. */
const char *tool_host(void);

/*
 * die_err() prints the line and exits with the error's status; after TU_USAGE
 * a second line says where help is.  die_usage() is the same for what main
 * finds wrong with the command line itself.
 */
_Noreturn void die_err(const struct err *err);
_Noreturn void die_usage(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/*
 * tool_make() is a command that makes outputs: make(cmd).  With --if-missing it
 * is done where sound(cmd) is 1 (all are there, and sound), fails where that is
 * -1 (what is there is not), and looks once more if make() has found an output,
 * as another run may have been first.  Returns 0, or what make() returns.
 */
int tool_make(bool if_missing, int (*sound)(void *cmd, struct err *err),
              int (*make)(void *cmd, struct err *err), void *cmd,
              struct err *err);

/* tool_end() flushes stdout and exits with 'status', or with EX_IOERR. */
_Noreturn void tool_end(int status);

#endif
