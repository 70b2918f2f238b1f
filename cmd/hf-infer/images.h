/* SPDX-License-Identifier: ISC */
/*
 * --images: pictures to pixels, to the activations of a vision encoder, as
 * --acts has them of text, and to its features.
 */
#ifndef HF_INFER_IMAGES_H
#define HF_INFER_IMAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/hf-infer/run.h"
#include "core/hash.h"
#include "core/image/processor.h"
#include "core/str.h"

/* What a dump's metadata says of images. */
struct images_meta {
    const char *source;
    char *ckpt; /* the model's name */
    bool cls;   /* rows begin with the CLS token */
    bool turned;
    const struct processor *processor;
    char xxh3[HASH_MAX_HEX]; /* of the images; "" not known */
    bool skips;              /* those that are bad, of which so many so far */
    size_t n_skipped;
};

/* images_parse_size(): --image-size, "N" or "HxW".  0, or -1 with 'err' set
 * (TU_USAGE). */
int images_parse_size(struct run *run, const char *arg, struct err *err);

#endif
