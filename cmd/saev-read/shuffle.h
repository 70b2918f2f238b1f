/*
 * Rows in another order than the dump's: what shuffle.c (in memory),
 * shuffle_ext.c (by way of the disk), window.c and sample.c share.
 */
#ifndef SAEV_READ_SHUFFLE_H
#define SAEV_READ_SHUFFLE_H

#include "cmd/saev-read/read.h"
#include "core/map.h"

/* Bytes of a row that is not copied: to a pipe, where pages are lent, or as a
 * piece of a longer write; and of a row that is found in its mapped shard. */
#define LEND_MIN  ((size_t)1 << 10)
#define PIECE_MIN ((size_t)2 << 10)
#define MAP_MIN   ((size_t)256)

/* All rows of a target on their way out. */
struct shuffle {
    const struct cmd *cmd;
    const struct target *t;
    const struct perm *perm;
    size_t n, row_nbytes; /* 0 bytes: --index, where rows are their numbers */
    size_t skip;          /* rows of the order that do not go out */
    struct gather gather;
    struct par *par; /* gather's; NULL: one thread */
    struct emit emit;
    struct places places;
};

/*
 * shuffle_map.c: shards as they lie in the page cache.  mapped_open() is true
 * if all of the rows are there, and no more than 'room' bytes in all.
 */
struct mapped {
    struct map *maps; /* [n], of shards from 'first' on */
    size_t first, n;
};

bool mapped_open(struct mapped *m, struct shuffle *s, size_t room);

/* mapped_check(): are the shards as long as they were?  -1 with 'err' set. */
int mapped_check(const struct mapped *m, const struct shuffle *s,
                 struct err *err);
void mapped_close(struct mapped *m); /* a zeroed struct is fine */

/* mapped_row() is where a row of the target lies. */
const char *mapped_row(const struct mapped *m, const struct target *t,
                       size_t row);

/* mapped_pass(): rows before this one are not asked for any more, and are not
 * memory of this process from now on. */
void mapped_pass(struct mapped *m, const struct target *t, size_t row);

/* Rows in memory, and the order in which they go out. */
struct block {
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
int block_put(struct shuffle *s, const struct block *block, struct err *err);

/* shuffle_external() is for rows that do not fit in cmd->mem. */
int shuffle_external(struct shuffle *s, struct err *err);

/* shuffle_window() goes through cmd->window slots instead. */
int shuffle_window(struct shuffle *s, struct err *err);

/* shuffle_main() answers --shuffle and --window: all rows of 't' in the order
 * of cmd->perm, or drawn by it.  sample_main() answers --sample. */
int shuffle_main(struct cmd *cmd, const struct target *t, struct err *err);
int sample_main(struct cmd *cmd, const struct target *t, struct err *err);

#endif
