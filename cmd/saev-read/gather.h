/*
 * Rows of a target by their numbers, into memory, as they are in the files: f32
 * little-endian.  Some 8 MiB of its own, whatever n.
 */
#ifndef SAEV_READ_GATHER_H
#define SAEV_READ_GATHER_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/saev-read/shards.h"
#include "cmd/saev-read/target.h"

struct want {
    size_t row, at; /* the place in the answer */
};

struct gather {
    const struct dump_target *t;
    size_t row_nbytes;
    struct shards shards;
    struct want *wants;   /* [2 * MAX_WANTS] */
    struct piece *pieces; /* [MAX_WANTS] */
};

/* gather_open(): as shards_open(); 't' stays open meanwhile. */
int gather_open(struct gather *g, const struct dump_target *t, int n_threads,
                bool direct, struct err *err);
void gather_close(struct gather *g); /* a zeroed struct is fine */

/* gather_rows(): row rows[i] < n_rows to to[i * row_nbytes]; in any order,
 * duplicates are fine.  Best with many at once, as they are sorted for the
 * disk.  gather_range(): rows first .. first + n - 1, read in their order.  -1
 * with 'err' set, as shards_read(). */
int gather_rows(struct gather *g, const size_t *rows, size_t n, void *to,
                struct err *err);
int gather_range(struct gather *g, size_t first, size_t n, void *to,
                 struct err *err);

/* gather_run(): how many rows from 'row' on lie together in one file. */
size_t gather_run(const struct dump_target *t, size_t row);

#endif
