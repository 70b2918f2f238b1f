/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/images_queue.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/compat.h"
#include "core/image/picture.h"
#include "core/mem.h"
#include "core/par.h"

enum { FREE, TAKEN, READY };

struct images_queue {
    struct image_source *source;
    struct images_options o;
    size_t n_pixels; /* floats of an image */
    float *pixels;   /* [n_slots, n_pixels] */
    struct images_slot *slots;
    size_t n_given, n_back; /* by images_next(), images_done() */
    pthread_mutex_t lock;   /* of the source, and */
    size_t n_taken;         /* slots for images that were taken from it */
    bool ended;
    atomic_bool quit;
    struct par_worker **workers;
};

static void
set_state(struct images_slot *s, unsigned state)
{
    atomic_store(&s->state, state);
    word_wake(&s->state, INT_MAX); /* a thread and the caller may wait */
}

/* What is wrong is said with the image's name. */
static void
decode(const struct images_queue *q, struct images_slot *s)
{
    struct picture picture = { 0 };
    struct err why = { 0 };
    int rc = image_source_read(q->source, &s->image, &s->err);

    if (rc < 0)
        return;
    rc = picture_decode(&picture, s->image.bytes.s, s->image.bytes.n,
                        q->o.max_pixels, &why);
    str_free(&s->image.bytes);
    s->orientation = picture.orientation;
    s->grey16 = picture.grey16;
    if (rc == 0 && q->o.turn)
        rc = picture_turn(&picture, &why);
    if (rc == 0)
        rc = processor_run(q->o.processor, &picture, s->pixels, &why);
    picture_free(&picture);
    if (rc < 0)
        image_source_bad(q->source, &s->image, &why, &s->err);
}

/* Takes the next image into the next slot, once that is free; NULL at the end.
 */
static struct images_slot *
take(struct images_queue *q)
{
    struct images_slot *s;
    unsigned state;

    pthread_mutex_lock(&q->lock);
    s = &q->slots[q->n_taken % q->o.n_slots];
    while (!q->ended && !atomic_load(&q->quit) &&
           (state = atomic_load(&s->state)) != FREE)
        word_wait(&s->state, state);
    if (q->ended || atomic_load(&q->quit)) {
        s = NULL;
    } else {
        atomic_store(&s->state, TAKEN);
        q->n_taken++;
        s->err = (struct err){ 0 };
        s->rc = image_source_next(q->source, &s->image, &s->err);
        q->ended = s->rc <= 0;
        if (s->rc > 0 && q->o.sum)
            source_image_hash(q->o.sum, &s->image, q->o.sum_bytes);
    }
    pthread_mutex_unlock(&q->lock);
    return s;
}

static void
work(void *ctx)
{
    struct images_queue *q = ctx;
    struct images_slot *s;

    while ((s = take(q))) {
        double started = clock_s();

        if (s->rc > 0)
            decode(q, s);
        s->seconds = clock_s() - started;
        set_state(s, READY);
    }
}

int
images_open(struct images_queue **queue, struct image_source *source,
            const struct images_options *options, struct err *err)
{
    struct images_queue *q = xcalloc(1, sizeof(*q));
    int rc = 0;

    q->source = source;
    q->o = *options;
    q->n_pixels = 3 * q->o.processor->height * q->o.processor->width;
    q->slots = xcalloc(q->o.n_slots, sizeof(*q->slots));
    q->workers = xcalloc((size_t)q->o.n_threads, sizeof(*q->workers));
    pthread_mutex_init(&q->lock, NULL);
    q->pixels =
        mem_big(q->o.n_slots, q->n_pixels * sizeof(*q->pixels), "pixels", err);
    if (!q->pixels)
        rc = -1;
    for (size_t i = 0; rc == 0 && i < q->o.n_slots; i++)
        q->slots[i].pixels = q->pixels + i * q->n_pixels;
    for (int i = 0; rc == 0 && i < q->o.n_threads; i++)
        if ((rc = par_worker_open(&q->workers[i], err)) == 0)
            par_submit(q->workers[i], work, q);
    if (rc < 0) {
        images_close(q);
        q = NULL;
    }
    *queue = q;
    return rc;
}

void
images_close(struct images_queue *q)
{
    if (!q)
        return;
    atomic_store(&q->quit, true);
    for (size_t i = 0; i < q->o.n_slots; i++)
        set_state(&q->slots[i], FREE);
    for (int i = 0; i < q->o.n_threads; i++)
        par_worker_close(q->workers[i]);
    for (size_t i = 0; i < q->o.n_slots; i++)
        source_image_free(&q->slots[i].image);
    if (q->pixels)
        mem_big_free(q->pixels, q->o.n_slots, q->n_pixels * sizeof(float));
    pthread_mutex_destroy(&q->lock);
    free(q->workers);
    free(q->slots);
    free(q);
}

struct images_slot *
images_next(struct images_queue *q)
{
    struct images_slot *s = &q->slots[q->n_given++ % q->o.n_slots];
    unsigned state;

    while ((state = atomic_load(&s->state)) != READY)
        word_wait(&s->state, state);
    return s;
}

void
images_done(struct images_queue *q, size_t n)
{
    while (n-- > 0)
        set_state(&q->slots[q->n_back++ % q->o.n_slots], FREE);
}

bool
images_is_last(const struct images_queue *q, const struct images_slot *s)
{
    return s == &q->slots[q->o.n_slots - 1];
}
