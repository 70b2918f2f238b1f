/* SPDX-License-Identifier: ISC */
/*
 * Vision encoders: images through the blocks of block.h, between an embedding
 * of their patches and a head that makes features.
 * Source: Hugging Face transformers' clip, siglip, dinov2,
 * dinov2_with_registers, dinov3_vit and vit.
 */
#ifndef CORE_MODEL_VISION_H
#define CORE_MODEL_VISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/block.h"
#include "core/model/engine.h"
#include "core/model/splice.h"
#include "core/par.h"

struct vision_shape {
    size_t height, width; /* of an image */
    size_t patch;         /* pixels of a patch's side; what is left on the right
                           * and below is not seen */
    size_t rows, columns; /* of patches */
    size_t n_patches;
    size_t n_registers;
    bool cls;
    size_t n_tokens; /* CLS, if there is one, registers, patches row by row */
    size_t hidden, n_layers;
    size_t n_features;
};

struct vision_options {
    size_t height, width; /* 0: config.json's image_size; others interpolate
                           * positions */
    size_t batch; /* images that go through the layers together; 0: as many as
                   * are fast.  Fewer where they take over 512 MiB */
    enum compute compute;
    const struct splices_options *splices; /* or NULL */
};

struct vision {
    struct model *model;
    struct splices *splices; /* NULL: none */
    struct engine *engine;
    struct vision_shape shape;
    size_t batch;
    struct session **images; /* [batch]: keys and values, of a layer */
    float *start;            /* [n_tokens, hidden]: all of the embedding but the
                              * product with the patches */
    float *query;            /* [hidden] of the probe */

    void *memory;
    size_t nbytes;
    float *patches; /* [batch, n_patches, 3, patch, patch] */
    float *kv;      /* [batch, n_tokens, 2 hidden] of attention in the head */
    float *queries; /* [batch, hidden] */
    float *pooled;  /* [batch, hidden] */
    float *added;   /* [batch, hidden] */
    float *inner;   /* [batch, intermediate] */
};

/*
 * vision_open() maps the model in a directory, as model_open_vision(), and
 * makes an engine for images of one size.  'par' is borrowed and may be NULL.
 * -1 with 'err' set: as model_open_vision() and splices_open(); EX_DATAERR for
 * a size that is smaller than a patch or has too many, or positions that cannot
 * be interpolated; EX_SOFTWARE.
 * One thread at a time may use it.  Owner: the caller, until vision_close().
 */
int vision_open(struct vision **vision, const char *dir, struct par *par,
                const struct vision_options *options, struct err *err);
void vision_close(struct vision *vision); /* NULL is fine */

/*
 * vision_run() puts n images through it: pixels [n, 3, height, width].
 * 'tap', which may be NULL, gets the rows [n_tokens, tap_dim()] of one image
 * after the other, layer by layer, 'batch' images at a time: its 'first' is
 * image * n_tokens.  TAP_NORM is of the layer n_layers - 1.  Without features
 * the layers after the tap's last_layer are not run.
 * 'features' [n, n_features] may be NULL.
 * An image's bits depend on it alone: not on the batch, nor on threads; in
 * COMPUTE_F32 not on the instruction set.
 */
void vision_run(struct vision *vision, const float *pixels, size_t n,
                const struct tap *tap, float *features);

#endif
