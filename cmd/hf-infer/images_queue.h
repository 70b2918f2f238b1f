/* SPDX-License-Identifier: ISC */
/*
 * Images that threads read, decode and resize beside whoever takes them: in
 * the source's order, its errors in that order, too.
 */
#ifndef HF_INFER_IMAGES_QUEUE_H
#define HF_INFER_IMAGES_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/hash.h"
#include "core/image/processor.h"
#include "core/image/source.h"

struct images_options {
    const struct processor *processor;
    size_t max_pixels;
    bool turn;        /* by the orientation tag */
    struct hash *sum; /* of all images, as source_image_hash(), or NULL */
    bool sum_bytes;
    int n_threads;
    size_t n_slots; /* images that may be ready */
};

/* An image in the queue. */
struct images_slot {
    atomic_uint state;
    int rc; /* 1; 0: after the last; -1: the source failed, see err */
    struct source_image image; /* its bytes are gone */
    float *pixels;             /* [3, height, width]; the next slot's follow */
    struct err err;            /* .status 0: the image is good */
    int orientation;
    bool grey16;
    double seconds; /* of reading, decoding and resizing */
};

struct images_queue;

/*
 * images_open() starts the threads on a source, which is theirs until
 * images_close().  0, or -1 with 'err' set (EX_SOFTWARE).
 * Memory: n_slots of pixels, and a file and a picture a thread.
 */
int images_open(struct images_queue **queue, struct image_source *source,
                const struct images_options *options, struct err *err);
void images_close(struct images_queue *queue); /* NULL is fine */

/*
 * images_next() waits for the next image: its slot, whose rc says if there is
 * one; it is the caller's until images_done(), which gives the n oldest back.
 * images_is_last(): are the next slot's pixels elsewhere?
 */
struct images_slot *images_next(struct images_queue *queue);
void images_done(struct images_queue *queue, size_t n);
bool images_is_last(const struct images_queue *queue,
                    const struct images_slot *slot);

#endif
