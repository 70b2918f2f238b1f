/* SPDX-License-Identifier: ISC */
#include "core/image/picture.h"

#include <stdlib.h>
#include <string.h>

#include "core/image/decode.h"
#include "core/mem.h"

int
picture_make(struct picture *p, size_t width, size_t height, size_t max_pixels,
             struct err *err)
{
    if (width > PICTURE_MAX_SIDE || height > PICTURE_MAX_SIDE)
        return err_set(err, EX_DATAERR,
                       "%zu x %zu pixels (at most %d on a side)", width, height,
                       PICTURE_MAX_SIDE);
    if (width * height > max_pixels)
        return err_set(err, EX_DATAERR,
                       "%zu x %zu = %zu pixels (at most %zu: --max-pixels)",
                       width, height, width * height, max_pixels);
    p->rgb = mem_try(width * height, 3, "a picture", err);
    p->width = width;
    p->height = height;
    return p->rgb ? 0 : -1;
}

int
picture_decode(struct picture *p, const void *data, size_t n, size_t max_pixels,
               struct err *err)
{
    static const char png[] = "\211PNG\r\n\032\n", jpeg[] = "\377\330\377";
    int rc;

    *p = (struct picture){ .orientation = 1 };
    if (n >= sizeof(png) - 1 && !memcmp(data, png, sizeof(png) - 1))
        rc = picture_png(p, data, n, max_pixels, err);
    else if (n >= sizeof(jpeg) - 1 && !memcmp(data, jpeg, sizeof(jpeg) - 1))
        rc = picture_jpeg(p, data, n, max_pixels, err);
    else
        rc = err_set(err, EX_DATAERR,
                     n > 0 ? "neither a PNG nor a JPEG" : "it is empty");
    if (rc < 0)
        picture_free(p);
    return rc;
}

void
picture_free(struct picture *p)
{
    free(p->rgb);
    *p = (struct picture){ 0 };
}

/* Colour by colour, so that only one needs another place. */
int
picture_turn(struct picture *p, struct err *err)
{
    enum { TILE = 64 }; /* its rows and columns stay in the cache */
    size_t n = p->width * p->height, width = p->width, height = p->height;
    int o = p->orientation;
    bool turned = o >= 5, mirrored = o == 2 || o == 3 || o == 6 || o == 7,
         upside_down = o == 3 || o == 4 || o == 7 || o == 8;
    ptrdiff_t row = (ptrdiff_t)(turned ? height : width);
    /* Where the first pixel goes, and the steps to the next and to the one
     * below. */
    ptrdiff_t first =
        (mirrored ? row - 1 : 0) + (upside_down ? (ptrdiff_t)n - row : 0);
    ptrdiff_t across = mirrored ? -1 : 1, down = upside_down ? -row : row;
    uint8_t *from;

    if (o == 1)
        return 0;
    from = mem_try(n, 1, "the turning of a picture", err);
    if (!from)
        return -1;
    if (turned) {
        p->width = height;
        p->height = width;
        across = down;
        down = mirrored ? -1 : 1;
    }
    for (uint8_t *to = p->rgb; to < p->rgb + 3; to++) {
        for (size_t i = 0; i < n; i++)
            from[i] = to[3 * i];
        for (size_t top = 0; top < height; top += TILE)
            for (size_t x = 0; x < width; x++)
                for (size_t y = top; y < smaller(top + TILE, height); y++)
                    to[3 * (first + (ptrdiff_t)x * across +
                            (ptrdiff_t)y * down)] = from[y * width + x];
    }
    free(from);
    p->orientation = 1;
    return 0;
}

/* An integer of 1 to 8 bytes. */
static uint64_t
integer(const uint8_t *b, size_t n, bool big)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v = v << 8 | b[big ? i : n - 1 - i];
    return v;
}

int
exif_orientation(const uint8_t *tiff, size_t n)
{
    /* Bytes of a value of each type, and the types that are integers. */
    static const uint8_t sizes[] = { 0, 1, 1, 2, 4, 8, 1, 1, 2,
                                     4, 8, 4, 8, 4, 0, 0, 8 };
    static const uint32_t integers =
        1 << 3 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 16;
    bool big = n > 0 && tiff[0] == 'M';
    uint64_t found = 1, at, n_entries;

    if (n < 8 || (memcmp(tiff, "MM", 2) != 0 && memcmp(tiff, "II", 2) != 0) ||
        (memcmp(tiff + 2, "\0*", 2) != 0 && memcmp(tiff + 2, "*", 2) != 0 &&
         memcmp(tiff, "MM\0+", 4) != 0))
        return 1;
    at = integer(tiff + 4, 4, big);
    if (at + 2 > n)
        return 1;
    n_entries = integer(tiff + at, 2, big);
    at += 2;
    for (; n_entries > 0 && at + 12 <= n; n_entries--, at += 12) {
        uint64_t type = integer(tiff + at + 2, 2, big);
        uint64_t size = type < sizeof(sizes) ? sizes[type] : 0;
        uint64_t nbytes = size * integer(tiff + at + 4, 4, big);
        uint64_t value = at + 8;

        if (nbytes > 4) {
            value = integer(tiff + at + 8, 4, big);
            if (value > n || nbytes > n - value)
                break; /* what comes after damage is not read */
        }
        if (nbytes > 0 && integer(tiff + at, 2, big) == 0x0112)
            found = integers >> type & 1 ? integer(tiff + value, size, big) : 1;
    }
    return found >= 1 && found <= 8 ? (int)found : 1;
}
