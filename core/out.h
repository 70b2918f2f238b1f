/* SPDX-License-Identifier: ISC */
/*
 * Output files: whole or not at all.
 *
 * A file is written next to its destination as ".NAME.tmp.HOST.PID.SERIAL",
 * synced, and given its name by one rename (with OUT_FORCE) or link (without,
 * so that the first of two writers wins).  Nothing else in this project creates
 * files, but core/spill those without a name.
 *
 * Source: the notes on network file systems in tensorutils(7).
 */
#ifndef CORE_OUT_H
#define CORE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/err.h"

enum {
    OUT_FORCE = 1,      /* replace an existing file, unless it is an input */
    OUT_READ_ONLY = 2,  /* published without write permission, if it can be */
    OUT_NO_SYNC = 4,    /* a power cut may take it: for scratch */
    OUT_OWN = 8,        /* with OUT_FORCE: even what this command has read */
    OUT_NO_FOLLOW = 16, /* a link is replaced, not the file that it leads to */
    OUT_TABLE = 32, /* lines with tabs are TSV: in columns on a terminal, with
                       separators in counts (core/tsv.h) */
    OUT_ALIGN = 64  /* in columns anywhere; separators on a terminal */
};
enum { /* a file in a run's directory, with a name of the tool's */
       OUT_RUN = OUT_FORCE | OUT_OWN | OUT_NO_FOLLOW
};

struct out;

/* out_exists(): EX_CANTCREAT "PATH: exists already (--force replaces it)". */
int out_exists(const char *path, struct err *err);

/*
 * out_open() starts the file 'path', or standard output for "-" (then nothing
 * is atomic, and a terminal is refused with TU_USAGE if 'binary').
 * 0, or -1 with 'err' set: EX_CANTCREAT (exists and no OUT_FORCE, no such
 * directory, no permission), TU_USAGE (an input or another output,
 * core/inuse.h). Owner: the caller, until out_commit() or out_abort().
 */
int out_open(struct out **out, const char *path, int flags, bool binary,
             struct err *err);

/* out_is_terminal(): does a person read it as it is written? */
bool out_is_terminal(const struct out *out);

/* out_is_pipe(): does another command read it as it is written? */
bool out_is_pipe(const struct out *out);

/* out_reserve() asks for room, so that a full disk or quota is an error before
 * the work. */
int out_reserve(struct out *out, size_t nbytes, struct err *err);

/*
 * out_write() appends, through a buffer for small pieces; out_pwrite() writes
 * at an offset of a file (never of standard output).  One file takes one
 * of them.  0, or -1 with 'err' set (EX_IOERR); then only out_abort() helps.
 */
int out_write(struct out *out, const void *data, size_t nbytes,
              struct err *err);
int out_pwrite(struct out *out, const void *data, size_t nbytes, size_t offset,
               struct err *err);

/*
 * out_copy() appends what 'fd' has next, up to 'nbytes' > 0; 'name' is fd's.
 * Returns how much, 0 at the end of the input, or -1 with 'err' set.
 */
ssize_t out_copy(struct out *out, int fd, const char *name, size_t nbytes,
                 struct err *err);

/*
 * out_writev() appends pieces of memory, of some KiB each; 'v' is used up.
 * 'lend': nobody writes to that memory any more, not even once it is unmapped,
 * so that a pipe's reader can be given the very pages.
 * 0, or -1 with 'err' set (EX_IOERR).
 */
int out_writev(struct out *out, struct iovec *v, int n, bool lend,
               struct err *err);

/* out_zeros() appends zeros, as a hole where files may have them. */
int out_zeros(struct out *out, size_t nbytes, struct err *err);

/* out_flush() writes what is still in the buffer, for a stream's reader. */
int out_flush(struct out *out, struct err *err);

/*
 * out_commit() makes the file durable and visible under its name, then frees
 * 'out', whatever the result.  0, or -1 with 'err' set and nothing visible;
 * only where the line says that the directory cannot be synced is the file
 * there, whole, but a power cut may still take its name.
 */
int out_commit(struct out *out, struct err *err);

/* out_rename() makes 'path', in the same directory, what out_commit() will name
 * the file, replacing one that is there.  False: it is written in place, or
 * 'path' is another output. */
bool out_rename(struct out *out, const char *path);

/* out_abort() removes what was written and frees 'out'; NULL is fine. */
void out_abort(struct out *out);

/* out_put() is all of these for a small file whose bytes are all there: 0, or
 * -1 with 'err' set as by the one that failed. */
int out_put(const char *path, int flags, const void *data, size_t nbytes,
            struct err *err);

/* out_sweep() removes what dead processes left of 'path'; out_open() does it.
 */
void out_sweep(const char *path);

/* out_abort_all() removes every temporary; for signal handlers: system calls
 * alone.  True: there was one that had not got its name yet. */
bool out_abort_all(void);

/*
 * out_stdout_ready() waits until standard output takes a line, or it is time
 * to stop: a pipe that nobody reads must not keep anyone from that.  False: it
 * takes none.
 */
bool out_stdout_ready(void);

/*
 * out_remember() has out_abort_all() remove 'tmp', too: a file, or a flat
 * directory if it ends in '/'.  A number for out_forget(), or -1 (too many).
 * Owner: the caller, and only after out_forget() may it be freed.
 */
int out_remember(char *tmp);
void out_forget(int slot);

/* out_remove_dir() removes a flat directory, its name relative to the directory
 * 'at' as in openat(2); for signal handlers, too.  -1: it is still there. */
int out_remove_dir(int at, const char *path);

/*
 * out_close_stdout() is every main's last step: flushes stdio's stdout and
 * closes it.  -1 with 'err' set (EX_IOERR) if any of it was lost.
 */
int out_close_stdout(struct err *err);

#endif
