/* SPDX-License-Identifier: ISC */
/* Writes what a plan says, whole or not at all, and the table of errors. */
#ifndef ST_CONVERT_WRITE_H
#define ST_CONVERT_WRITE_H

#include "cmd/st-convert/plan.h"

/* convert_write(): -1 with 'err' set, and nothing there: EX_DATAERR names a
 * weight that is NaN or infinite; EX_CANTCREAT, EX_IOERR. */
int convert_write(struct convert_plan *plan, struct err *err);

#endif
