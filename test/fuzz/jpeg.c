/* SPDX-License-Identifier: ISC */
/* JPEG of any bytes, with EXIF among them. */
#include "test/fuzz/picture.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_picture(data, n);
    return 0;
}
