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
#include "cmd/saev-read/target.h"

/* Bytes of a row that is not copied: to a pipe, where pages are lent, or as a
 * piece of a longer write; and of a row that is found in its mapped shard. */
#define LEND_MIN  ((size_t)1 << 10)
#define PIECE_MIN ((size_t)2 << 10)
#define MAP_MIN   ((size_t)256)

/* All rows of a target on their way out. */
struct shuffle {
    const struct read_cmd *cmd;
    const struct dump_target *t;
    const struct perm *perm;
    size_t n, row_nbytes; /* 0 bytes: --index, where rows are their numbers */
    size_t skip;          /* rows of the order that do not go out */
    struct gather gather;
    struct par *par; /* gather's; NULL: one thread */
    struct emit emit;
    struct places places;
};

struct mapped; /* of shuffle_map.h */

/* Rows in memory, and the order in which they go out. */
struct row_block {
    const struct mapped *mapped;   /* NULL: in 'rows' */
    bool stays;                    /* nobody will write to the rows again */
    const char *rows;              /* record at: rows + at * stride */
    size_t stride, skip;           /* from 'skip' on it is the row */
    const struct perm_item *items; /* [n], in order */
    size_t n;
    perm_element_fn *element; /* a row's number from its place */
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
