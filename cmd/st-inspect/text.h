/* SPDX-License-Identifier: ISC */
/*
 * Output: rows are collected in cmd->text and written in large pieces.
 */
#ifndef ST_INSPECT_TEXT_H
#define ST_INSPECT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/st-inspect/cmd.h"
#include "core/err.h"

/*
 * Verbs append to cmd->text and call text_end() after each row, which writes if
 * there is enough.  text_finish() aligns the text if asked to, writes it and
 * commits cmd->out.  -1 with 'err' set: the output cannot be written.
 */
int text_end(struct inspect_cmd *cmd, struct err *err);
int text_finish(struct inspect_cmd *cmd, struct err *err);

/* row_end() is record_end() of cmd->row and text_end(). */
int row_end(struct inspect_cmd *cmd, struct err *err);

/* put_shape() appends "[2,3]"; row_shape() a field of it. */
void put_shape(struct str *to, size_t n_dims, const uint64_t *shape);
void row_shape(struct record *r, const char *key, size_t n_dims,
               const uint64_t *shape);

#endif
