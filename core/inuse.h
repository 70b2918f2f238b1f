/* SPDX-License-Identifier: ISC */
/*
 * What a command reads it never replaces, and no two of its outputs have one
 * name.  core/map reports each file that it opens and core/out each that it
 * makes; files are compared by device and inode, those that do not exist yet by
 * their directories' and by name, so no spelling and no link gets around it.
 * Standard input counts as read, whether it is or not.
 *
 * A file that gets the inode of a removed input is taken for that input.  Only
 * other programs can bring this about while the command runs, as what a command
 * itself replaces after reading is its own (OUT_OWN).  It is then refused and
 * nothing changes: run it again.  Times of birth would tell the two apart, but
 * not every file system has them; other times change with a link or a mode.
 *
 * Nothing is kept before inuse_begin(), which tool_parse() calls: a program
 * that uses these functions may well replace what it has read.
 * Threads: any.
 */
#ifndef CORE_INUSE_H
#define CORE_INUSE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "core/err.h"

/* An output, from inuse_output() to inuse_end(). */
struct inuse_output {
    const char *path; /* "-": standard output */
    bool replaces;    /* the file that is 'path' now: */
    dev_t dev;
    ino_t ino;
    bool was_read; /* while this was being written */
    bool claimed;
    struct inuse_output *next;
};

void inuse_begin(void);

/* inuse_input(): 'path', which is 'st', is read now, or will be.
 * 0, or -1 with 'err' set (TU_USAGE): it is an output as well. */
int inuse_input(const char *path, const struct stat *st, struct err *err);

/* inuse_will_read(): as inuse_input(), of a file that is opened later than an
 * output.  0 also where there is none, or -1 with 'err' set (TU_USAGE). */
int inuse_will_read(const char *path, struct err *err);

/*
 * inuse_output() begins an output.  'own': what it replaces may have been read,
 * as a program's own earlier state.  'path' must live until inuse_end(), which
 * may be called in any case of a struct that began as zeros.
 * 0, or -1 with 'err' set (TU_USAGE): it has been read, or is another output.
 */
int inuse_output(struct inuse_output *output, const char *path, bool own,
                 struct err *err);
void inuse_end(struct inuse_output *output);

/*
 * inuse_claim() is inuse_output() for the rest of the command, of a name that
 * out_open() makes files of later, with OUT_OWN: a run says at its start what
 * it will write.  'own': the run itself reads it first, to be resumed.
 */
int inuse_claim(const char *path, bool own, struct err *err);

/* inuse_input_dir(): the directory 'path' is an input as a whole, as a dump is,
 * and nothing is made in it or below.  0, or -1 with 'err' set (TU_USAGE). */
int inuse_input_dir(const char *path, struct err *err);

/* inuse_publish() asks last, as some tools continue after an input that could
 * not be opened: may the output replace the file?  0, or -1 with 'err' set. */
int inuse_publish(const struct inuse_output *output, struct err *err);

/* inuse_check() asks before the work whether the file 'path' has been read: 0,
 * or -1 with 'err' set (TU_USAGE); inuse_was_read() the same of what stat(2)
 * says. */
int inuse_check(const char *path, struct err *err);
bool inuse_was_read(const struct stat *st);

#endif
