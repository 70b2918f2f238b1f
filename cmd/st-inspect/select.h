/*
 * One file or folder and the tensors in it that -t means, in natural order of
 * names (layers.2 before layers.10).
 */
#ifndef ST_INSPECT_SELECT_H
#define ST_INSPECT_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/st-inspect/cmd.h"
#include "core/format/stdir.h"

struct selection {
    struct stdir dir;
    size_t n;
    const struct stdir_tensor **t; /* [n] */
    uint64_t n_elements;           /* sums over t */
    uint64_t nbytes;
};

/* select_open(): -1 with 'err' set, as stdir_open(), or EX_NOINPUT when -t
 * matches nothing.  Owner: the caller, until select_close(). */
int select_open(struct selection *sel, const char *path,
                const struct inspect_cmd *cmd, struct err *err);
void select_close(struct selection *sel);
bool select_matches(const struct inspect_cmd *cmd, const struct st_tensor *t);

/* dot_first() orders bytes with the dot before all others: a module's tensors
 * then follow each other, and a tensor of the module's own name. */
unsigned char dot_first(char c);

/* select_find() finds a tensor by its name, or by its name as list prints it;
 * NULL with 'err' set (EX_NOINPUT). */
const struct stdir_tensor *select_find(const struct stdir *dir,
                                       const char *name, struct err *err);

/* one_operand(): the verb's only operand, or NULL with 'err' set (TU_USAGE). */
const char *one_operand(const struct inspect_cmd *cmd, struct err *err);

/* say_totals() is -v's line on stderr: "m: 311 tensors, ...". */
void say_totals(const struct inspect_cmd *cmd, const struct selection *sel);

#endif
