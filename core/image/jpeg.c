/* SPDX-License-Identifier: ISC */
/* JPEG by libjpeg-turbo. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "core/image/decode.h"
#include "core/mem.h"

#define MAX_SCANS 500
#define MAX_WORK  100 /* samples that scans go over, for each pixel */

struct jpeg_reader {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr error;
    struct jpeg_progress_mgr progress;
    int scan; /* the last that 'work' has */
    size_t work, most;
    bool exif;
    uint8_t *line; /* of CMYK */
    struct picture *picture;
    struct err *err;
    jmp_buf env;
};

static _Noreturn void
failed(j_common_ptr c)
{
    struct jpeg_reader *r = c->client_data;
    bool no_memory = c->err->msg_code == JERR_OUT_OF_MEMORY;
    char what[JMSG_LENGTH_MAX];

    c->err->format_message(c, what);
    err_set(r->err, no_memory ? EX_SOFTWARE : EX_DATAERR, "%sJPEG: %s",
            no_memory ? "" : "broken ", what);
    longjmp(r->env, 1);
}

/* libjpeg warns of data that is missing, damaged or extraneous, and guesses;
 * and of headers that are unusual and do no harm. */
static void
warned(j_common_ptr c, int level)
{
    struct jpeg_reader *r = c->client_data;

    switch (level < 0 ? c->err->msg_code : JMSG_NOMESSAGE) {
    case JMSG_NOMESSAGE:
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
        return;
    case JWRN_EXTRANEOUS_DATA:
        if (r->c.input_scan_number == 0)
            return;
    }
    failed(c);
}

/* Called for each row of blocks or pixels: what a scan costs is added as it
 * begins. */
static void
count_work(j_common_ptr c)
{
    struct jpeg_reader *r = c->client_data;

    if (r->c.input_scan_number == r->scan)
        return;
    r->scan = r->c.input_scan_number;
    for (int i = 0; i < r->c.comps_in_scan; i++)
        r->work += (size_t)r->c.cur_comp_info[i]->width_in_blocks *
                   r->c.cur_comp_info[i]->height_in_blocks * DCTSIZE2;
    if (r->scan > MAX_SCANS)
        err_set(r->err, EX_DATAERR, "broken JPEG: more than %d scans",
                MAX_SCANS);
    else if (r->work > r->most)
        err_set(r->err, EX_DATAERR,
                "broken JPEG: %d scans go over more than %d times its pixels",
                r->scan, MAX_WORK);
    else
        return;
    longjmp(r->env, 1);
}

/* An APP1 segment: the first with EXIF counts.  All of the file is there. */
static boolean
read_app1(j_decompress_ptr c)
{
    struct jpeg_reader *r = c->client_data;
    const uint8_t *p = c->src->next_input_byte;
    size_t n = c->src->bytes_in_buffer;
    size_t nbytes = n < 2 ? n + 1 : (size_t)p[0] << 8 | p[1];

    if (nbytes > n)
        ERREXIT(c, JERR_INPUT_EOF);
    if (nbytes < 2)
        ERREXIT(c, JERR_BAD_LENGTH);
    if (!r->exif && c->input_scan_number == 0 && nbytes >= 7 &&
        !memcmp(p + 2, "Exif", 5)) {
        r->exif = true;
        if (nbytes >= 8 && !p[7])
            r->picture->orientation = exif_orientation(p + 8, nbytes - 8);
    }
    c->src->next_input_byte += nbytes;
    c->src->bytes_in_buffer -= nbytes;
    return TRUE;
}

/* A row of inverted CMYK, as Pillow's Convert.c computes it. */
static void
cmyk_to_rgb(uint8_t *rgb, const uint8_t *cmyk, size_t n)
{
    for (size_t i = 0; i < n; i++, cmyk += 4)
        for (int k = 0; k < 3; k++) {
            int t = (255 - cmyk[k]) * cmyk[3] + 128;
            int v = cmyk[3] - (((t >> 8) + t) >> 8);

            *rgb++ = (uint8_t)(v < 0 ? 0 : v);
        }
}

static size_t
round_up(size_t n, int factor)
{
    size_t unit = (size_t)factor * DCTSIZE;

    return (n + unit - 1) / unit * unit;
}

static void
decode(struct jpeg_reader *r, const uint8_t *data, size_t n, size_t max_pixels)
{
    j_decompress_ptr c = &r->c;
    struct picture *p = r->picture;

    jpeg_create_decompress(c);
    jpeg_mem_src(c, data, n);
    jpeg_set_marker_processor(c, JPEG_APP0 + 1, read_app1);
    c->progress = &r->progress;
    jpeg_read_header(c, TRUE);
    if (c->num_components == 2 || c->num_components > 4) {
        err_set(r->err, EX_DATAERR,
                "JPEG of %d components (expected 1, 3 or 4)",
                c->num_components);
        longjmp(r->env, 1);
    }
    if (picture_make(p, c->image_width, c->image_height, max_pixels, r->err) <
        0)
        longjmp(r->env, 1);
    r->most = MAX_WORK * round_up(p->width, c->max_h_samp_factor) *
              round_up(p->height, c->max_v_samp_factor);
    c->dct_method = JDCT_ISLOW;
    c->do_fancy_upsampling = TRUE;
    c->out_color_space = JCS_RGB;
    if (c->num_components == 4) {
        c->out_color_space = JCS_CMYK;
        r->line = mem_try(p->width, 4, "a row of a picture", r->err);
        if (!r->line)
            longjmp(r->env, 1);
    }
    jpeg_start_decompress(c);
    while (c->output_scanline < c->output_height) {
        uint8_t *to = p->rgb + 3 * p->width * c->output_scanline;

        jpeg_read_scanlines(c, r->line ? &r->line : &to, 1);
        if (r->line)
            cmyk_to_rgb(to, r->line, p->width);
    }
    jpeg_finish_decompress(c);
}

/* Nothing of this frame changes between setjmp() and longjmp(). */
static int
decode_or_fail(struct jpeg_reader *r, const uint8_t *data, size_t n,
               size_t max_pixels)
{
    if (setjmp(r->env))
        return -1;
    decode(r, data, n, max_pixels);
    return 0;
}

int
picture_jpeg(struct picture *p, const uint8_t *data, size_t n,
             size_t max_pixels, struct err *err)
{
    struct jpeg_reader r = { .picture = p, .err = err };
    int rc;

    r.c.err = jpeg_std_error(&r.error);
    r.c.client_data = &r;
    r.error.error_exit = failed;
    r.error.emit_message = warned;
    r.progress.progress_monitor = count_work;
    rc = decode_or_fail(&r, data, n, max_pixels);
    jpeg_destroy_decompress(&r.c);
    free(r.line);
    return rc;
}
