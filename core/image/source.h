/* SPDX-License-Identifier: ISC */
/*
 * Where images are from, one after another: a directory, a list of paths, one
 * picture, a tar archive, or any of the last three from standard input.  What
 * it is its content says, not its name.
 *
 * A directory's are the files whose names end as torchvision's ImageFolder
 * asks, in its order: by class (the first directory below), then by directory,
 * then by name, each by bytes.  A class's label is its place among those that
 * hold images; in no directory, the class is "" and the label -1.
 * In an archive (WebDataset's) names that end in .png, .jpg or .jpeg are
 * images; the label is the integer in KEY.cls, before or after them, where KEY
 * is the name up to the first dot after its last slash.  Lists have neither.
 * Source: torchvision 0.14 datasets/folder.py; webdataset 0.2 tariterators.py.
 */
#ifndef CORE_IMAGE_SOURCE_H
#define CORE_IMAGE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/hash.h"
#include "core/str.h"

#define SOURCE_MAX_BYTES ((size_t)1 << 30) /* of an image's file, of a list */

/* An image.  Starts as { 0 }, may be filled again and again, and ends with
 * source_image_free(). */
struct source_image {
    struct str path; /* to open it by; in an archive, its name there */
    size_t name_at;  /* in path: after the source's directory */
    struct str class;
    int64_t label;    /* -1: none */
    size_t nbytes;    /* of a file that was read */
    bool is_read;     /* 'bytes' has them, but of more than the most */
    struct str bytes; /* [nbytes] */
};
void source_image_free(struct source_image *image);

struct image_source;

/*
 * image_source_open() finds out what 'path' is, "-": standard input; lists the
 * directory, or reads the list or the picture.  0, or -1 with 'err' set:
 * EX_NOINPUT, EX_DATAERR (there is no image, or it is nothing of these),
 * EX_IOERR, "PATH: ...".
 * Owner: the caller, until image_source_close().  Memory: the names.
 */
int image_source_open(struct image_source **source, const char *path,
                      struct err *err);
void image_source_close(struct image_source *source); /* NULL is fine */

/* image_source_name() is how messages call it.  image_source_count() is how
 * many images there are, or 0: not known, of an archive. */
const char *image_source_name(const struct image_source *source);
size_t image_source_count(const struct image_source *source);

/*
 * image_source_next() is the next image, without its bytes but where the source
 * is itself a stream: 1, 0 after the last, or -1 with 'err' set (EX_DATAERR,
 * EX_IOERR).  One thread at a time.
 * image_source_read() reads its file, where that is still to do; any thread. 0,
 * or -1 with 'err' set, as image_source_bad() has it (EX_DATAERR; EX_IOERR).
 */
int image_source_next(struct image_source *source, struct source_image *image,
                      struct err *err);
int image_source_read(const struct image_source *source,
                      struct source_image *image, struct err *err);

/* image_source_bad() makes of why an image is bad "SOURCE: IMAGE: WHY": -1. */
int image_source_bad(const struct image_source *source,
                     const struct source_image *image, const struct err *why,
                     struct err *err);

/*
 * source_image_hash() adds an image to the hash of all of a run: its name, a 0,
 * its size as u64, and, with 'bytes', these.
 * image_source_hash() does so for all, before the first image_source_next(),
 * where their number is known; a file that cannot be opened has no bytes. 0, or
 * -1 with 'err' set (EX_IOERR).  Cost: with 'bytes', reads all files.
 */
void source_image_hash(struct hash *hash, const struct source_image *image,
                       bool bytes);
int image_source_hash(struct image_source *source, struct hash *hash,
                      bool bytes, struct err *err);

#endif
