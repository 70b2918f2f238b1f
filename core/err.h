/* SPDX-License-Identifier: ISC */
/*
 * One error: an exit status and one line saying what is wrong.
 *
 * Functions that can fail take a 'struct err *' last, return -1 and fill it;
 * they never print and never exit.  The line reads "file: what is wrong
 * (found, expected)", without the tool's name.  It may hold raw bytes of a
 * file: whoever prints it escapes it (core/tool.c does).
 */
#ifndef CORE_ERR_H
#define CORE_ERR_H

#include <stdbool.h>
#include <sysexits.h>

enum {
    TU_NEGATIVE = 1, /* the answer is no: differs, not sound */
    TU_USAGE = 2,    /* the command line is wrong */
    /* from 65 on as in <sysexits.h>: EX_DATAERR, EX_NOINPUT, EX_SOFTWARE,
     * EX_CANTCREAT, EX_IOERR, EX_TEMPFAIL (stopped early, run me again) */
};

struct err {
    int status;      /* exit status for main; 0 while there is no error */
    int error;       /* errno of err_sys(); 0: none */
    char what[1024]; /* NUL-terminated; a longer line is cut with "..." */
};

/* err_set() fills 'err' by a printf format and returns -1. */
int err_set(struct err *err, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* err_data() does so with EX_DATAERR, and with "FILE: " before the line. */
int err_data(struct err *err, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* err_sys() is err_set() that appends ": " and the text of errno. */
int err_sys(struct err *err, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * err_warn() reports what a caller should know but can live with: "file: what
 * happens now".  It goes to the hook that main has set, and nowhere before.
 */
void err_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void err_warn_hook(void (*hook)(const char *what));

#endif
