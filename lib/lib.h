/* SPDX-License-Identifier: ISC */
/* What the files of the library share: errors and structs that cross it. */
#ifndef LIB_LIB_H
#define LIB_LIB_H

#include <stddef.h>

#include "core/err.h"
#include "lib/tensorutils.h"

/* lib_fail() hands the caller an error, who may not want it; returns -1. */
int lib_fail(struct tu_err *to, const struct err *err);

/* lib_refuse() is a TU_BAD_CALL by a printf format; returns -1. */
int lib_refuse(struct tu_err *to, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* lib_null() refuses a call of 'fn' with an argument that is NULL: of pairs
 * name, pointer, up to a NULL name.  LIB_IF() is an array of n, which may be
 * NULL where n is 0. */
int lib_null(struct tu_err *to, const char *fn, ...) __attribute__((sentinel));
#define LIB_IF(n, p) ((n) > 0 ? (const void *)(p) : (const void *)"")

/* lib_threads() refuses an n_threads that no machine has. */
int lib_threads(int n_threads, struct tu_err *err);

/*
 * lib_struct() copies a struct of the caller's, which begins with its size, to
 * one of this library's, [nbytes], with zeros for what the caller does not know
 * of.  'name' is for messages; -1 if the size is less than any version's, or
 * if it sets what this version does not know.
 */
int lib_struct(void *to, size_t nbytes, const void *from, const char *name,
               struct tu_err *err);

#endif
