/* SPDX-License-Identifier: ISC */
/* PNG by libpng, which sees the chunks that the picture needs alone. */
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "core/image/decode.h"

/* Bytes of IDAT from the last row on, for a pixel of it, in chunks of a byte;
 * and for what comes after it. */
#define ROW_BYTES  128
#define TAIL_BYTES 8192

struct png_reader {
    const uint8_t *data;
    size_t n;
    size_t at, end; /* what libpng has of the chunk that it reads */
    bool idat;      /* one was read */
    bool in_idat;   /* the chunk is one */
    size_t n_idat;  /* bytes of these that libpng may still have */
    bool no_memory;
    size_t max_pixels;
    struct picture *picture;
    struct err *err;
    png_structp png;
    png_infop info;
    jmp_buf env;
};

static void *
get_memory(png_structp png, png_alloc_size_t n)
{
    struct png_reader *r = png_get_mem_ptr(png);
    void *p = malloc(n);

    r->no_memory |= !p;
    return p;
}

static void
free_memory(png_structp png, void *p)
{
    (void)png;
    free(p);
}

static _Noreturn void
failed(png_structp png, const char *what)
{
    struct png_reader *r = png_get_error_ptr(png);

    err_set(r->err, r->no_memory ? EX_SOFTWARE : EX_DATAERR, "%sPNG: %s",
            r->no_memory ? "" : "broken ", what);
    longjmp(r->env, 1);
}

static void
ignored(png_structp png, const char *what)
{
    (void)png;
    (void)what;
}

static size_t
be32(const uint8_t *b)
{
    return (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
}

/*
 * Goes to the next chunk that libpng is to read.  Before the pixels it gets no
 * ancillary chunk, and no palette but of what has indices: among these are
 * texts and profiles that inflate to anything.  From there on it sees all, to
 * know where the pixels end, but stores nothing more.  It never hears of a
 * chunk that the file does not hold whole: some it would allocate memory for.
 */
static void
next_chunk(struct png_reader *r)
{
    for (size_t n; r->at == r->end && r->n - r->at >= 12;) {
        const uint8_t *chunk = r->data + r->at, *name = chunk + 4;

        n = be32(chunk);
        if (n > r->n - r->at - 12)
            return;
        r->end = r->at + n + 12;
        r->in_idat = !memcmp(name, "IDAT", 4);
        r->idat |= r->in_idat;
        if (!memcmp(name, "eXIf", 4))
            r->picture->orientation = exif_orientation(chunk + 8, n);
        if (!r->idat &&
            (name[0] & 0x20 || (!memcmp(name, "PLTE", 4) && r->at > 25 &&
                                r->data[25] != PNG_COLOR_TYPE_PALETTE)))
            r->at = r->end;
    }
}

static void
read_bytes(png_structp png, uint8_t *to, size_t n)
{
    struct png_reader *r = png_get_io_ptr(png);

    while (n > 0) {
        size_t part = r->end - r->at < n ? r->end - r->at : n;

        /* libpng would inflate the rest, gigabytes, before it says so */
        if (r->in_idat && part > r->n_idat)
            png_error(png, "IDAT: Too much image data");
        r->n_idat -= r->in_idat ? part : 0;
        memcpy(to, r->data + r->at, part);
        r->at += part;
        to += part;
        n -= part;
        if (n > 0 && r->at == r->end)
            next_chunk(r);
        if (n > 0 && r->at == r->end)
            png_error(png, "the file ends too early");
    }
}

/* The colours of bytes, in place: the bytes are the last third of the picture.
 */
static void
look_up(struct png_reader *r, bool indexed)
{
    struct picture *p = r->picture;
    size_t n = p->width * p->height;
    const uint8_t *from = p->rgb + 2 * n;
    png_colorp palette = NULL;
    int n_colours = 0;

    if (!indexed) {
        for (size_t i = 0; i < n; i++)
            memset(p->rgb + 3 * i, from[i], 3);
        return;
    }
    png_get_PLTE(r->png, r->info, &palette, &n_colours);
    for (size_t i = 0; i < n; i++) {
        int c = from[i];

        if (c >= n_colours) {
            err_set(r->err, EX_DATAERR,
                    "broken PNG: a pixel has colour %d of a palette of %d", c,
                    n_colours);
            longjmp(r->env, 1);
        }
        p->rgb[3 * i] = palette[c].red;
        p->rgb[3 * i + 1] = palette[c].green;
        p->rgb[3 * i + 2] = palette[c].blue;
    }
}

static void
decode(struct png_reader *r)
{
    struct picture *p = r->picture;
    size_t n_channels;
    uint8_t *row;
    png_structp png;
    int type;

    r->png = png = png_create_read_struct_2(
        PNG_LIBPNG_VER_STRING, r, failed, ignored, r, get_memory, free_memory);
    if (png)
        r->info = png_create_info_struct(png);
    if (!r->info) {
        err_set(r->err, EX_SOFTWARE, "PNG: out of memory");
        longjmp(r->env, 1);
    }
    png_set_read_fn(png, r, read_bytes);
    png_set_benign_errors(png, 0); /* IDAT with more than the pixels */
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png, 0); /* what libpng sees is not stored */
    png_read_info(png, r->info);
    if (picture_make(p, png_get_image_width(png, r->info),
                     png_get_image_height(png, r->info), r->max_pixels,
                     r->err) < 0)
        longjmp(r->env, 1);
    type = png_get_color_type(png, r->info);
    p->grey16 =
        type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, r->info) == 16;
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_packing(png);
    else if (type == PNG_COLOR_TYPE_GRAY)
        png_set_expand_gray_1_2_4_to_8(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    n_channels =
        type & PNG_COLOR_MASK_COLOR && type != PNG_COLOR_TYPE_PALETTE ? 3 : 1;
    int n_passes = png_set_interlace_handling(png);
    png_read_update_info(png, r->info);
    if (png_get_rowbytes(png, r->info) != p->width * n_channels)
        png_error(png, "a row has another size");
    for (; n_passes > 0; n_passes--) {
        row = p->rgb + (3 - n_channels) * p->width * p->height;
        for (size_t y = 0; y < p->height; y++, row += p->width * n_channels) {
            if (n_passes == 1 && y == p->height - 1)
                r->n_idat = ROW_BYTES * p->width + TAIL_BYTES;
            png_read_row(png, row, NULL);
        }
    }
    png_read_end(png, NULL);
    if (n_channels == 1)
        look_up(r, type == PNG_COLOR_TYPE_PALETTE);
}

/* Nothing of this frame changes between setjmp() and longjmp(). */
static int
decode_or_fail(struct png_reader *r)
{
    if (setjmp(r->env))
        return -1;
    decode(r);
    return 0;
}

int
picture_png(struct picture *p, const uint8_t *data, size_t n, size_t max_pixels,
            struct err *err)
{
    struct png_reader r = { .data = data,
                            .n = n,
                            .end = 8, /* the signature */
                            .n_idat = SIZE_MAX,
                            .max_pixels = max_pixels,
                            .picture = p,
                            .err = err };
    int rc = decode_or_fail(&r);

    png_destroy_read_struct(&r.png, &r.info, NULL);
    return rc;
}
