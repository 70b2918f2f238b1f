/*
 * metadata.json, from the files of its layers.
 */
#ifndef LUT_PRECOMPUTE_INDEX_H
#define LUT_PRECOMPUTE_INDEX_H

#include <stdbool.h>

#include "core/err.h"

/*
 * index_folder() writes metadata.json from the files.  What it said of layers
 * whose files cannot say it is kept; 'prune': only while the file is there, and
 * a damaged one, which is left out, is an error (EX_DATAERR) when the rest is
 * done.
 */
int index_folder(const char *dir, bool prune, struct err *err);

/* index_check(): may there be an index in DIR?  Asked before the first product:
 * one of routed experts, or a damaged one, is refused. */
int index_check(const char *dir, struct err *err);

#endif
