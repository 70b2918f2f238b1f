/* SPDX-License-Identifier: ISC */
/* What picture.c shares with the readers of the two formats. */
#ifndef CORE_IMAGE_DECODE_H
#define CORE_IMAGE_DECODE_H

#include "core/image/picture.h"

/*
 * picture_png() and picture_jpeg() are picture_decode() of a file that begins
 * as these do, into a zeroed struct; after -1 p->rgb may be set.
 */
int picture_png(struct picture *p, const uint8_t *data, size_t n,
                size_t max_pixels, struct err *err);
int picture_jpeg(struct picture *p, const uint8_t *data, size_t n,
                 size_t max_pixels, struct err *err);

/* picture_make() allocates a picture of a header's size, if it is within the
 * limits. */
int picture_make(struct picture *p, size_t width, size_t height,
                 size_t max_pixels, struct err *err);

/*
 * exif_orientation() is the Orientation of a TIFF header and its first
 * directory, or 1 where that has none or is damaged before it.  As in Pillow's
 * TiffImagePlugin.py: the last one counts, and its first value, if it is of an
 * integer type.
 */
int exif_orientation(const uint8_t *tiff, size_t n);

#endif
