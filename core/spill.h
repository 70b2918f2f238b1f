/* SPDX-License-Identifier: ISC */
/*
 * Scratch on disk: one file without a name, so that nothing of it stays
 * whatever ends the program, SIGKILL included.
 */
#ifndef CORE_SPILL_H
#define CORE_SPILL_H

#include <stddef.h>

#include "core/err.h"

struct spill {
    const char *dir; /* borrowed; for messages */
    int fd;
    size_t nbytes;
};

/*
 * spill_open() makes a file of 'nbytes' in the directory 'dir' and reserves its
 * room where the file system can.  0, or -1 with 'err' set: EX_CANTCREAT,
 * EX_IOERR (less room than that).
 * Owner: the caller, until spill_close(); a struct { .fd = -1 } is fine there.
 */
int spill_open(struct spill *spill, const char *dir, size_t nbytes,
               struct err *err);
void spill_close(struct spill *spill);

/* All of 'nbytes', or -1 with 'err' set (EX_IOERR).  Threads: any number. */
int spill_write(const struct spill *spill, const void *data, size_t nbytes,
                size_t offset, struct err *err);
int spill_read(const struct spill *spill, void *buf, size_t nbytes,
               size_t offset, struct err *err);

/* spill_drop() says that a part is not needed any more: what was not yet on
 * the disk need not go there. */
void spill_drop(const struct spill *spill, size_t offset, size_t nbytes);

#endif
