/* SPDX-License-Identifier: ISC */
/* A picture in memory: 8-bit RGB. */
#ifndef CORE_IMAGE_PICTURE_H
#define CORE_IMAGE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct picture {
    uint8_t *rgb; /* [height, width, 3] */
    size_t width, height;
    int orientation; /* EXIF's, 1 .. 8; 1: none */
    bool grey16;     /* it was 16-bit grey */
};

#endif
