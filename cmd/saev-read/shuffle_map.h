/*
 * Shards as they lie in the page cache, mapped for a shuffle.  mapped_open() is
 * true if all of the rows are there, and no more than 'room' bytes in all.
 */
#ifndef SAEV_READ_SHUFFLE_MAP_H
#define SAEV_READ_SHUFFLE_MAP_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/saev-read/shuffle.h"
#include "cmd/saev-read/target.h"
#include "core/map.h"

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
const char *mapped_row(const struct mapped *m, const struct dump_target *t,
                       size_t row);

/* mapped_pass(): rows before this one are not asked for any more, and are not
 * memory of this process from now on. */
void mapped_pass(struct mapped *m, const struct dump_target *t, size_t row);

#endif
