/*
 * The answer of the default verb, and of --sample.
 */
#ifndef SAEV_READ_ROWS_H
#define SAEV_READ_ROWS_H

#include <stddef.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/target.h"

/*
 * rows_put() answers a command line with n_rows rows of 't', whose numbers
 * 'next' gives, up to 'max' at a time, in the order of the answer; *n = 0 is
 * their end.  With --index it prints where they lie.
 * -1 with 'err' set, by 'next' as well.
 */
typedef int rows_next(void *ctx, size_t *rows, size_t max, size_t *n,
                      struct err *err);
int rows_put(const struct read_cmd *cmd, const struct dump_target *t,
             size_t n_rows, rows_next *next, void *ctx, struct err *err);

#endif
