/* SPDX-License-Identifier: ISC */
/*
 * preprocessor_config.json, and what it asks for: a picture resized, cropped,
 * rescaled and normalized into the pixel_values of a vision encoder, as
 * transformers' slow image processors make them.
 */
#ifndef CORE_IMAGE_PROCESSOR_H
#define CORE_IMAGE_PROCESSOR_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/image/picture.h"
#include "core/image/resize.h"

#define PROCESSOR_MAX_SIZE 8192 /* of a side, resized or cropped */

struct processor {
    const char *file;     /* where all of this is said, in the directory */
    size_t height, width; /* of pixel_values */
    bool resizes;
    size_t shortest_edge;               /* 0: each picture becomes exactly */
    size_t resize_height, resize_width; /* that */
    bool crops;                         /* to height and width, central */
    enum resample resample;
    bool floats; /* resized after rescaling, unrounded: DINOv3 */
    /* value = (v * rescale_factor - mean) / std; 1, 0 and 1 where the
     * processor does not rescale or normalize */
    double rescale_factor, mean[3], std[3];
    float values[3][256]; /* of each byte v */
};

/*
 * processor_read() reads preprocessor_config.json of a model's directory, or
 * image_processor of its processor_config.json, where transformers 5 has it.
 * Where that does not say whose it is, 'model_type' decides (NULL: unknown),
 * as in config.json.  All pictures come out in one size, or it is refused.
 *
 * Returns 0, or -1 with 'err' set: EX_NOINPUT, EX_IOERR, EX_DATAERR (the file,
 * the key, what it is and what was expected).
 * Source: transformers' image_processing_{clip,siglip,bit,vit}.py and
 * image_processing_dinov3_vit_fast.py.
 */
int processor_read(struct processor *p, const char *dir, const char *model_type,
                   struct err *err);

/*
 * processor_set_size() is for pictures of another size, 1 to
 * PROCESSOR_MAX_SIZE: what the file says of size and crop_size becomes that.
 * Of a square one the shortest edge stays the rule where the file has it;
 * others are resized to exactly that.
 */
void processor_set_size(struct processor *p, size_t height, size_t width);

/*
 * processor_run() is a picture's pixel_values, [3, height, width].
 *
 * Returns 0, or -1 with 'err' set (EX_SOFTWARE: memory).
 * Memory: 64 MiB at most, and for 500 x 375 to 224 some 30 KiB.
 * Threads: any number may share the processor.
 */
int processor_run(const struct processor *p, const struct picture *picture,
                  float *pixels, struct err *err);

#endif
