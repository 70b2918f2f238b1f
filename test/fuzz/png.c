/* SPDX-License-Identifier: ISC */
/* PNG of any bytes; and with each chunk's checksum made right, as no mutation
 * gets beyond a wrong one. */
#include <zlib.h>

#include "test/fuzz/picture.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n + 1);

    fuzz_picture(data, n);
    memcpy(copy, data, n);
    for (size_t at = 8, nbytes; n >= 12 && at <= n - 12; at += nbytes + 12) {
        uLong crc;

        nbytes = (size_t)copy[at] << 24 | copy[at + 1] << 16 |
                 copy[at + 2] << 8 | copy[at + 3];
        if (nbytes > n - 12 - at)
            break;
        crc = crc32(0, copy + at + 4, (uInt)nbytes + 4);
        for (int i = 0; i < 4; i++)
            copy[at + 8 + nbytes + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
    }
    fuzz_picture(copy, n);
    free(copy);
    return 0;
}
