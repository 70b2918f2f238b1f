/*
 * What --view, --layer and --imgs select of a dump.
 */
#ifndef SAEV_READ_TARGET_H
#define SAEV_READ_TARGET_H

#include <stddef.h>

#include "cmd/saev-read/cmd.h"
#include "core/format/saevdir.h"

/* range_parse(): "A-B" or "A" in 'n' bytes; -1 if it is not that, or B < A. */
int range_parse(struct index_range *range, const char *s, size_t n);

/*
 * n_rows rows, which are first .. first + n_rows - 1 of 'view'.  Row numbers
 * that users see and that other functions here take count from 'first'. Stays
 * where it is: 'view' points into 'dir'.
 */
struct dump_target {
    struct saevdir dir;
    struct saev_view view;
    size_t first, n_rows;
};

/* target_open(): -1 with 'err' set, as saevdir_open(), or EX_DATAERR: the dump
 * has no such view, layer or images.  Owner: the caller, until target_close().
 */
int target_open(struct dump_target *t, const struct read_cmd *cmd,
                const char *path, struct err *err);
void target_close(struct dump_target *t); /* a zeroed struct is fine */

static inline struct saev_place
target_at(const struct dump_target *t, size_t row)
{
    return saev_view_at(&t->view, t->first + row);
}

#endif
