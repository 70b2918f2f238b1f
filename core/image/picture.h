/* SPDX-License-Identifier: ISC */
/*
 * A picture: the bytes of a PNG or JPEG file to 8-bit RGB, the same bytes as
 * PIL's convert("RGB").
 *
 * Transparency is dropped, not blended: the colours below it show.  Grey of 1,
 * 2 and 4 bits is scaled to 0 .. 255, palettes are looked up, of 16 bits the
 * high byte counts.  Gamma and colour profiles are ignored.  Four components
 * of a JPEG are CMYK, inverted as Adobe writes them.
 *
 * What PIL would show in part, or guess at, is refused: data that is missing,
 * damaged or more than the picture needs, a file without its end (IEND, EOI),
 * an index beyond the palette.  Bytes after the end are ignored.
 *
 * Source: the PNG and JPEG standards as libpng and libjpeg-turbo read them;
 * Pillow's PngImagePlugin.py, JpegImagePlugin.py and Convert.c.
 */
#ifndef CORE_IMAGE_PICTURE_H
#define CORE_IMAGE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define PICTURE_MAX_SIDE 65535
#define PICTURE_MAX_PIXELS                            \
    ((size_t)1 << 28) /* unless a user says otherwise \
                       */

struct picture {
    uint8_t *rgb;         /* [height, width, 3] */
    size_t width, height; /* 1 .. PICTURE_MAX_SIDE */
    int orientation;      /* EXIF's, 1 .. 8; 1: upright, or it says none */
    bool grey16;          /* it was 16-bit grey, of which PIL makes white */
};

/*
 * picture_decode() reads the file in data [n].  The size in its header is
 * compared with the limits before anything of that size is allocated.
 *
 * Returns 0, or -1 with 'err' set: EX_DATAERR (err->what is the reason alone,
 * without a name: "broken PNG: IDAT: CRC error"), EX_SOFTWARE (no memory).
 * Owner: the caller, until picture_free(); after -1 there is nothing to free.
 * Threads: any number may decode at once.
 * Cost: 3 bytes a pixel and a few rows.  A JPEG of several scans takes 2 bytes
 * for each of its components' samples as well, has at most 500 scans, and these
 * go over at most 100 samples a pixel.  A PNG is inflated to what its header
 * needs; where it has more, the file is read for some KiB, and not further.
 */
int picture_decode(struct picture *p, const void *data, size_t n,
                   size_t max_pixels, struct err *err);

/*
 * picture_turn() turns a picture upright by its orientation, which is 1 then,
 * as PIL's ImageOps.exif_transpose() does, with a byte a pixel of memory.
 * 0, or -1 with 'err' set (EX_SOFTWARE).
 */
int picture_turn(struct picture *p, struct err *err);
void picture_free(struct picture *p); /* a zeroed struct is fine */

#endif
