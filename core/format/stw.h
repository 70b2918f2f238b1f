/* SPDX-License-Identifier: ISC */
/*
 * safetensors, writing: compact JSON, __metadata__ first with its keys sorted,
 * tensors by dtype (largest alignment first) then name, header padded with
 * spaces to a multiple of 8; the file appears whole or not at all.
 */
#ifndef CORE_FORMAT_STW_H
#define CORE_FORMAT_STW_H

#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/out.h"

struct stw;

/* stw_new() starts an empty description; metadata {"format":"pt"} unless
 * stw_meta() is called.  Owner: the caller, until stw_free(). */
struct stw *stw_new(void);
void stw_free(struct stw *w); /* NULL is fine; an open file is aborted */

/*
 * stw_meta() sets a metadata entry (UTF-8 strings); the first call drops the
 * default, a second one with the same key replaces the value.
 */
void stw_meta(struct stw *w, const char *key, const char *value);

/*
 * stw_add() declares a tensor and returns its handle (0, 1, ..), or -1 with
 * 'err' set (EX_DATAERR: a name used twice, not UTF-8 or reserved, a size that
 * overflows).  All of them come before stw_open().
 */
int stw_add(struct stw *w, const char *name, enum dtype dtype, size_t n_dims,
            const uint64_t *shape, struct err *err);

/*
 * stw_open() fixes the layout, opens 'path' (flags as out_open(); not "-",
 * which is TU_USAGE), reserves the room and writes the header.
 * stw_write() fills a tensor's bytes, little-endian, from 'offset' within it,
 * each once, in any order, from one thread at a time.  stw_commit() checks that
 * as many were written as every tensor has (EX_SOFTWARE if not) and publishes
 * the file.  Each: 0, or -1 with 'err' set; then only stw_free() helps.
 */
int stw_open(struct stw *w, const char *path, int flags, struct err *err);
int stw_write(struct stw *w, int tensor, const void *data, size_t nbytes,
              size_t offset, struct err *err);
int stw_commit(struct stw *w, struct err *err);

/* stw_write_mapped() is stw_write() of a part of a mapped file: copied first,
 * as write(2) reports a page that was cut off as a bad address. */
int stw_write_mapped(struct stw *w, int tensor, const void *data, size_t nbytes,
                     size_t offset, struct err *err);

/* stw_write_numbers() is stw_write() of all of a tensor's n numbers, of 'item'
 * bytes each, 4 or 8, in this machine's order; stw_write_some() writes n of
 * them from number 'first' on. */
int stw_write_numbers(struct stw *w, int tensor, const void *numbers, size_t n,
                      size_t item, struct err *err);
int stw_write_some(struct stw *w, int tensor, size_t first, const void *numbers,
                   size_t n, size_t item, struct err *err);

/*
 * stw_late() gives a metadata entry its value after stw_open(), where one of
 * as many bytes stood in for it.  0, or -1 with 'err' set (EX_SOFTWARE: another
 * size; EX_IOERR).
 */
int stw_late(struct stw *w, const char *key, const char *value,
             struct err *err);

#endif
