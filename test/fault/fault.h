/* SPDX-License-Identifier: ISC */
/*
 * What run.c tells shim.c, and hears from it: one page that both map.
 *
 * The shim is preloaded into a tool.  It counts the calls of each class of
 * functions and makes the nth of one class fail.
 */
#ifndef FAULT_H
#define FAULT_H

#include <stdatomic.h>
#include <stdbool.h>

#define FAULT_PAGE                                            \
    "FAULT_PAGE" /* the environment's name of the page's file \
                  */
#define FAULT_ROOM 4096

enum fault_class {
    FAULT_NONE, /* count alone */
    FAULT_ALLOC,
    FAULT_MAP,
    FAULT_OPEN,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_COPY,
    FAULT_SYNC,
    FAULT_SPACE,
    FAULT_NAME,
    FAULT_REMOVE,
    FAULT_STAT,
    FAULT_LIST,
    FAULT_SEEK,
    FAULT_THREAD,
    FAULT_CLOSE,
    FAULT_RIGHTS,
    FAULT_POLL,
    FAULT_HINT,
    FAULT_WAIT,
    FAULT_CLASSES
};

struct fault {
    enum fault_class class;
    unsigned nth;  /* from 1 */
    bool sticky;   /* all from the nth on: a full disk stays full */
    int error;     /* errno; 0: a call that does its work in part */
    unsigned part; /* then: bytes / part, at least 1 */
    int signal;    /* comes once that call is done, 'times' times; else 0 */
    int times;
    atomic_uint calls[FAULT_CLASSES];
    atomic_uint injected;
    char name[32]; /* of the first function that failed */
};

#endif
