/* SPDX-License-Identifier: ISC */
/*
 * Which rows of a dump are data.  hf-infer --pad makes a window of each
 * document, with zeros after its end, and says so in the metadata ("windows":
 * "padded" in "data"): tokens at the end whose rows are 0 in all layers are
 * padding there, and no others may be 0.  Rows of other dumps are all data.
 * Source: man/saev.5, PADDING.
 */
#ifndef CORE_FORMAT_SAEV_DATA_H
#define CORE_FORMAT_SAEV_DATA_H

#include <stddef.h>

#include "core/err.h"
#include "core/format/saevdir.h"

/*
 * saev_data_open(): *before [n_imgs + 1] is how many tokens of data images have
 * before each, as saev_view_data() takes it; NULL where all are data.  It reads
 * some log2(tokens) rows of each image, with up to n_threads threads, but of
 * shards without any of the images first .. last none: these have no data then.
 * 0, or -1 with 'err' set (EX_IOERR, EX_SOFTWARE).  Owner: the caller, free().
 */
int saev_data_open(size_t **before, const struct saevdir *dir, size_t first,
                   size_t last, int n_threads, struct err *err);

#endif
