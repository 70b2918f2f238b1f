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

#endif
