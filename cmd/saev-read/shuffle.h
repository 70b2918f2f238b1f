/* SPDX-License-Identifier: ISC */
/*
 * Rows in another order than the dump's: in memory (shuffle.c), by way of
 * the disk (shuffle_ext.c), through a window of slots (window.c).
 */
#ifndef SAEV_READ_SHUFFLE_H
#define SAEV_READ_SHUFFLE_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/emit.h"
#include "cmd/saev-read/gather.h"
#include "core/map.h"

/* Bytes of a row that is read from its mapped shard, and not copied: to a pipe,
 * where pages are lent, or as a piece of a longer write. */
#define PIECE_MIN ((size_t)1 << 10)

/* All rows of a target on their way out. */
struct shuffle {
    const struct read_cmd *cmd;
    const struct dump_target *t;
    const struct perm *perm;
    size_t n, row_nbytes; /* 0 bytes: --index, where rows are their numbers */
    struct gather gather;
    struct par *par; /* gather's */
    struct emit emit;
};

/* Shards that the page cache holds, mapped. */
struct mapped {
    struct map *maps; /* [n], of shards from 'first' on */
    size_t first, n;
};

/* mapped_open(): true if all rows are in the page cache, and their shards have
 * at most 'max_nbytes' in all.  mapped_check(): are the shards as long as they
 * were?  -1 with 'err' set. */
bool mapped_open(struct mapped *m, struct shuffle *s, size_t max_nbytes);
int mapped_check(const struct mapped *m, const struct shuffle *s,
                 struct err *err);
void mapped_close(struct mapped *m); /* a zeroed struct is fine */

/* mapped_row() is the address of a row of the target. */
const char *mapped_row(const struct mapped *m, const struct dump_target *t,
                       size_t row);

/* mapped_drop(): rows before this one are not asked for any more, and are not
 * memory of this process from now on. */
void mapped_drop(struct mapped *m, const struct dump_target *t, size_t row);

/* Rows in memory, and the order in which they go out. */
struct row_block {
    const struct mapped *mapped; /* NULL: in 'rows' */
    bool stays;                  /* nobody will write to the rows again */
    const char *rows;            /* row at: rows + at * stride + offset */
    size_t stride, offset;
    const struct perm_item *items; /* [n], in order */
    size_t n;
    perm_element_fn *element; /* a row's number from its 'at' */
    const void *ctx;
};

/* shuffle_say() is the line of -v: seed, epoch, and how. */
void shuffle_say(const struct shuffle *s, const char *how);

/* block_put() writes a block's rows, or places, in its order. */
int block_put(struct shuffle *s, const struct row_block *block,
              struct err *err);

/* shuffle_external() is for rows that do not fit in cmd->mem. */
int shuffle_external(struct shuffle *s, struct err *err);

/* shuffle_window() goes through cmd->window slots instead. */
int shuffle_window(struct shuffle *s, struct err *err);

/* shuffle_main() answers --shuffle and --window: all rows of 't' in the order
 * of cmd->perm, or drawn by it. */
int shuffle_main(struct read_cmd *cmd, const struct dump_target *t,
                 struct err *err);

#endif
