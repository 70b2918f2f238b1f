/* SPDX-License-Identifier: ISC */
/*
 * One file or directory and the tensors in it that -t selects, in natural order
 * of names (layers.2 before layers.10); and their bytes, for the verbs that
 * read values.
 */
#ifndef ST_INSPECT_SELECT_H
#define ST_INSPECT_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/packed.h"
#include "core/dtype.h"
#include "core/format/stdir.h"

struct selection {
    struct stdir dir;
    struct packed packed; /* with --dequantize */
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

/* dot_first() orders bytes with the dot before all others, so that the tensors
 * of a module are adjacent, also if a tensor has the module's name. */
unsigned char dot_first(char c);

/* select_find() finds a tensor by its name, or by its name as list prints it;
 * NULL with 'err' set (EX_NOINPUT). */
const struct stdir_tensor *select_find(const struct stdir *dir,
                                       const char *name, struct err *err);

/* one_operand(): the verb's only operand, or NULL with 'err' set (TU_USAGE). */
const char *one_operand(const struct inspect_cmd *cmd, struct err *err);

/* say_totals() is -v's line on stderr: "m: 311 tensors, ...". */
void say_totals(const struct inspect_cmd *cmd, const struct selection *sel);

#define PIECE_NBYTES ((size_t)256 << 10) /* of a read: stays in the cache */
#define CHUNK        ((size_t)32768)     /* elements summed at a time */

/* An array in a file, or the numbers that packed weights stand for. */
struct view {
    const char *path;
    int fd;
    size_t offset; /* in the file */
    enum dtype dtype;
    const char *type; /* what it is called: the dtype's name, or the form's */
    size_t n_dims;
    const uint64_t *shape;
    uint64_t n; /* elements */
    size_t nbytes;
    struct packed_tensor *packed; /* dtype is F32; or NULL */
};

/* view_of() is a view of a tensor: valid as long as its file is open. */
struct view view_of(const struct stdir_tensor *t);

/* view_read() reads elements [first, first + n), of a type of whole bytes, as
 * they are in the file.  -1 with 'err' set, as file_pread(). */
int view_read(const struct view *v, void *buf, uint64_t first, size_t n,
              struct err *err);

/* widen() makes doubles of n elements; exact but for 64-bit integers. */
void widen(double *to, const void *from, enum dtype dtype, size_t n);
bool widens(enum dtype dtype); /* has elements that are real numbers */

#endif
