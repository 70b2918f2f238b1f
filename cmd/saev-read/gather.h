/* SPDX-License-Identifier: ISC */
/*
 * Rows of a target by their numbers, into memory, as they are in the files: f32
 * little-endian.  Some 8 MiB of its own, whatever n.
 *
 * As few reads as pay: what the page cache has is copied; of what it does not
 * have, pieces with small gaps between them are read at once, up to 1 MiB.
 */
#ifndef SAEV_READ_GATHER_H
#define SAEV_READ_GATHER_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/saev-read/select.h"
#include "core/par.h"

#define GATHER_OPEN 64 /* files open at once */

struct gather_file {
    size_t shard;
    int fd;      /* -1: none */
    size_t call; /* the last that needs it */
};

struct gather {
    const struct dump_target *t;
    size_t row_nbytes;
    struct par *par;
    int n_threads;
    bool direct;     /* O_DIRECT, where the file system has it */
    bool sequential; /* files opened from now on are read front to end */
    struct gather_file files[GATHER_OPEN]; /* shard i at i % GATHER_OPEN */
    size_t call;
    char *scratch;        /* of all threads */
    struct want *wants;   /* [2 * MAX_WANTS] */
    struct piece *pieces; /* [MAX_WANTS] */
};

/* gather_open(): -1 with 'err' set when threads or memory cannot be had.
 * Owner: the caller, until gather_close(); 't' stays open meanwhile. */
int gather_open(struct gather *g, const struct dump_target *t, int n_threads,
                bool direct, struct err *err);
void gather_close(struct gather *g); /* a zeroed struct is fine */

/* gather_rows(): row rows[i] < n_rows to to[i * row_nbytes]; in any order,
 * duplicates are fine.  Best with many at once, as they are sorted for the
 * disk.  gather_range(): rows first .. first + n - 1, read in their order.  -1
 * with 'err' set (EX_IOERR, EX_DATAERR: a file that ends before). */
int gather_rows(struct gather *g, const size_t *rows, size_t n, void *to,
                struct err *err);
int gather_range(struct gather *g, size_t first, size_t n, void *to,
                 struct err *err);

/* gather_run(): how many rows from 'row' on are adjacent in one file. */
size_t gather_run(const struct dump_target *t, size_t row);

/* gather_fd(): the file of a shard, open until another replaces it; -1 with
 * 'err' set. */
int gather_fd(struct gather *g, size_t shard, struct err *err);

#endif
