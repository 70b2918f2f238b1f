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
#include "core/format/st.h"

/*
 * Verbs append to cmd->text and call text_end() after each row, which writes if
 * there is enough.  text_finish() aligns the text if asked to, writes it and
 * commits cmd->out.  -1 with 'err' set: the output cannot be written.
 */
int text_end(struct inspect_cmd *cmd, struct err *err);
int text_finish(struct inspect_cmd *cmd, struct err *err);

/* What they append to a row: a number, "[2,3]", and so on; some with a tab
 * after it. */
void put_u64(struct str *to, uint64_t v);
void put_u64_tab(struct str *to, uint64_t v);
void put_shape(struct str *to, size_t n_dims, const uint64_t *shape);
void put_g6_tab(struct str *to, double v);           /* six digits, "nan" */
void put_esc(struct str *to, const char *s);         /* str_esc() of a string */
void put_json_str(struct str *to, const char *s);    /* quoted */
void put_json_key(struct str *to, const char *name); /* ,"name": */

/* A member, its key and its value; of NaN and infinities null. */
void put_json_u64(struct str *to, const char *name, uint64_t v);
void put_json_f64(struct str *to, const char *name, double v);
void put_json_text(struct str *to, const char *name, const char *s);

/* put_json_tensor() begins an object with a name, which may be that of several
 * tensors, dtype and shape. */
void put_json_tensor(struct str *to, const char *name, size_t name_n,
                     const char *type, const struct st_tensor *t);

#endif
