/* SPDX-License-Identifier: ISC */
/* For the fuzzers of picture files: what picture_decode() promises of any. */
#ifndef TEST_FUZZ_PICTURE_H
#define TEST_FUZZ_PICTURE_H

#include <string.h>

#include "core/image/picture.h"
#include "test/fuzz/must.h"

#define FUZZ_MAX_PIXELS 40000 /* libFuzzer calls 10 s a hang */

static void
fuzz_picture(const uint8_t *data, size_t n)
{
    struct picture p;
    struct err err = { 0 };
    size_t width, height;

    if (picture_decode(&p, data, n, FUZZ_MAX_PIXELS, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what && !p.rgb);
        return;
    }
    width = p.orientation >= 5 ? p.height : p.width;
    height = p.orientation >= 5 ? p.width : p.height;
    MUST(width > 0 && height > 0 && width * height <= FUZZ_MAX_PIXELS);
    MUST(p.orientation >= 1 && p.orientation <= 8);
    MUST(picture_turn(&p, &err) == 0 && p.orientation == 1);
    MUST(p.width == width && p.height == height);
    picture_free(&p);
}

#endif
