/* SPDX-License-Identifier: ISC */
/*
 * Names of what is not finished: ".NAME.tmp.HOST.PID.SERIAL" next to NAME.
 * Shared by core/out (files) and core/outdir (directories); nothing else needs
 * it.
 */
#ifndef CORE_TMPNAME_H
#define CORE_TMPNAME_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

/* dir_sync() makes the names in the directory of 'path' durable.
 * -1 with 'err' set (EX_IOERR). */
int dir_sync(const char *path, struct err *err);

/* name_is_fixed(): would another file's rename(2) over 'path' fail for what
 * that is, a mount point (EBUSY) or made immutable or append-only (EPERM)? With
 * errno set; false where the kernel cannot tell. */
bool name_is_fixed(const char *path);

/* tmp_name() is a name for an unfinished 'path' that no other process uses.
 * Owner: the caller, free(). */
char *tmp_name(const char *path);

/* tmp_sweep() gives 'remove' the temporaries of 'path' that nobody will
 * finish: of a dead process of this host, or old ones of another host. */
void tmp_sweep(const char *path, void (*remove)(int dir_fd, const char *name));

#endif
