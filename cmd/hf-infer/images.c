/* SPDX-License-Identifier: ISC */
/*
 * --images: pictures become pixels in threads of their own, pixels go through a
 * vision encoder some at a time, and what the tap was passed is written as
 * --acts writes it: [image, layer, token, dim].
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/acts.h"
#include "cmd/hf-infer/images_queue.h"
#include "core/clock.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/model.h"
#include "core/model/vision.h"
#include "core/tool.h"

#define AHEAD       8                 /* images that may be ready, at least */
#define SLOTS_BYTES ((size_t)1 << 28) /* of their pixels, unless of two */

/* A run of --images. */
struct images {
    struct acts acts; /* what is written */
    struct images_meta meta;
    struct processor processor;
    struct config config;
    struct image_source *source;
    struct images_queue *queue;
    struct vision *vision; /* NULL: pixels alone */
    struct hash *sum;      /* of images, as they come; or NULL */
    size_t batch, n_pixels, n_features;
    float *features;     /* [batch, n_features], or NULL */
    uint8_t le[1 << 16]; /* some numbers, as in a file */
    struct images_slot *slots[MAX_WINDOWS];
    size_t n_slots; /* good images, whose pixels follow each other */
    size_t n_turned, n_grey16;
    double decode_s, model_s;
};

/* ---- what is written ---- */

/* Keeps the tokens that are written of what the tap is passed. */
static void
keep(void *ctx, struct session *session, int64_t layer, size_t first, size_t n,
     const float *rows)
{
    const struct acts_tap *tap = ctx;
    const struct acts *a = tap->acts;
    const struct images *im = (const struct images *)a; /* its first */
    const struct vision_shape *s = &im->vision->shape;
    size_t place, n_first = s->cls + s->n_registers;
    const struct acts_dump *d = acts_place(tap, layer, &place);

    (void)session;
    for (size_t i = first; d && i < first + n; i++, rows += d->dim) {
        size_t image = i / s->n_tokens, token = i % s->n_tokens;
        bool is_cls = im->meta.cls && token == 0;

        if (token < n_first && !is_cls)
            continue;
        token = is_cls ? 0 : token - n_first + im->meta.cls;
        cvt_from_f32(d->acts +
                         ((image * d->spec.n + place) * a->n_tokens + token) *
                             d->dim * 4,
                     DT_F32, rows, d->dim);
    }
}

/* "row\tlabel\tclass\tpath", names with \t, \n and \\. */
static int
write_row(struct out *to, size_t row, const struct source_image *image,
          struct err *err)
{
    const struct str *const names[] = { &image->class, &image->path };
    struct str line = { 0 };
    int rc;

    str_addf(&line, "%zu\t%lld", row, (long long)image->label);
    for (int i = 0; i < 2; i++) {
        str_addc(&line, '\t');
        for (size_t k = 0; k < names[i]->n; k++) {
            char c = names[i]->s[k];

            if (c == '\t' || c == '\n' || c == '\\')
                str_addf(&line, "\\%c", c == '\t' ? 't' : c == '\n' ? 'n' : c);
            else
                str_addc(&line, c);
        }
    }
    str_addc(&line, '\n');
    rc = out_write(to, line.s, line.n, err);
    str_free(&line);
    return rc;
}

/* An image's n numbers. */
static int
write_floats(struct images *im, struct array_out *to, const float *v, size_t n,
             struct err *err)
{
    int rc = 0;

    for (size_t i = 0, k; i < n && rc == 0; i += k) {
        k = smaller(n - i, sizeof(im->le) / 4);
        cvt_from_f32(im->le, DT_F32, v + i, k);
        rc = array_out_write(to, i == 0, im->le, k * 4, err);
    }
    return rc;
}

/* Runs and writes the images of the slots, and gives these back. */
static int
run_slots(struct images *im, struct err *err)
{
    struct acts *a = &im->acts;
    struct out *rows = a->files[ACTS_IMAGES].out;
    size_t n = im->n_slots, first = a->n_written;
    double started = clock_s();
    int rc = 0;

    if (n == 0)
        return 0;
    if (im->vision)
        vision_run(im->vision, im->slots[0]->pixels, n,
                   a->n_taps ? a->taps : NULL, im->features);
    im->model_s += clock_s() - started;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct images_slot *s = im->slots[i];

        if (rows)
            rc = write_row(rows, first + i, &s->image, err);
        if (rc == 0 && a->files[ACTS_PIXELS].out)
            rc = write_floats(im, &a->files[ACTS_PIXELS], s->pixels,
                              im->n_pixels, err);
        if (rc == 0 && im->features)
            rc = write_floats(im, &a->files[ACTS_FEATURES],
                              im->features + i * im->n_features, im->n_features,
                              err);
    }
    if (rc == 0)
        rc = acts_write(a, n, n * a->n_tokens, err);
    images_done(im->queue, n);
    im->n_slots = 0;
    progress_at(&a->progress, a->n_written + im->meta.n_skipped);
    return rc;
}

static int
run_all(struct images *im, struct err *err)
{
    const struct run *run = im->acts.run;
    struct images_slot *s;

    while ((s = images_next(im->queue))->rc > 0) {
        bool good = s->err.status == 0; /* run_slots() gives slots back */

        im->decode_s += s->seconds;
        if (good) {
            im->n_turned += s->orientation > 1;
            im->n_grey16 += s->grey16;
            im->slots[im->n_slots++] = s;
            if (im->n_slots < im->batch && !images_is_last(im->queue, s))
                continue;
        }
        if (run_slots(im, err) < 0)
            return -1;
        if (good)
            continue;
        if (!run->skip_bad || s->err.status != EX_DATAERR)
            break;
        err_warn("%s: skipped", s->err.what);
        im->meta.n_skipped++;
        images_done(im->queue, 1);
    }
    if (s->rc == 0)
        return run_slots(im, err);
    *err = s->err;
    return -1;
}

/* ---- from begin to end ---- */

/* What images become: clip, siglip and vit have positions for one size; the
 * others interpolate them without being asked. */
static int
open_processor(struct images *im, struct err *err)
{
    const struct run *run = im->acts.run;
    const struct config *c = &im->config;
    size_t height = (size_t)c->vision.height, width = (size_t)c->vision.width;
    struct processor *p = &im->processor;

    if (processor_read(p, run->dir, c->family->model_type, err) < 0)
        return -1;
    if (run->image_height)
        processor_set_size(p, run->image_height, run->image_width);
    else if (!c->form.layer_scale && (p->height != height || p->width != width))
        return err_set(err, EX_DATAERR,
                       "%s/%s: makes images of %zu x %zu (expected %zu x %zu, "
                       "config.json's image_size; --image-size interpolates "
                       "positions)",
                       run->dir, p->file, p->height, p->width, height, width);
    im->n_pixels = 3 * p->height * p->width;
    return 0;
}

static int
open_model(struct images *im, struct err *err)
{
    struct run *run = im->acts.run;
    const struct opt_list *saes = &run->saes.specs[SPLICE_SAE];
    const struct vision_options o = { .height = im->processor.height,
                                      .width = im->processor.width,
                                      .batch = (size_t)run->batch,
                                      .compute = run->arithmetic.compute,
                                      .splices = saes->n ? &run->saes : NULL };
    const struct vision_shape *s;

    if (!run->acts && !run->features)
        return saes->n ? err_set(err, TU_USAGE,
                                 "--sae: --pixels alone runs no model")
                       : 0;
    run->saes.screen = true;
    if (par_open(&run->par, run->n_threads, err) < 0 ||
        vision_open(&im->vision, run->dir, run->par, &o, err) < 0)
        return -1;
    run->config = &im->vision->model->config;
    run->splices = im->vision->splices;
    s = &im->vision->shape;
    im->batch = im->vision->batch;
    im->n_features = s->n_features;
    im->meta.cls = s->cls && !run->no_cls;
    im->acts.n_tokens = s->n_patches + im->meta.cls;
    if (run->verbose)
        tool_say("%s, %zu layer%s, hidden %zu, %zu x %zu patches; %s, %s, %d "
                 "thread%s",
                 run->config->family->model_type, s->n_layers,
                 plural(s->n_layers), s->hidden, s->rows, s->columns,
                 tool_host(), isa_name(cpu_isa()), run->n_threads,
                 plural((uint64_t)run->n_threads));
    return 0;
}

/* _name_or_path of config.json, or the directory's name. */
static int
read_ckpt(struct images *im, struct err *err)
{
    const char *dir = im->acts.run->dir, *name;
    char *real = realpath(dir, NULL);
    struct config_file f = { 0 };
    int rc = real ? config_file_open(&f, dir, err)
                  : err_sys(err, EX_IOERR, "%s", dir);
    struct js js = js_get(&f.root, "_name_or_path");

    if (rc == 0) {
        name = js_is(&js, JSON_STRING) ? json_string_value(js.v) : "";
        im->meta.ckpt = xstrdup(*name ? name : strrchr(real, '/') + 1);
    }
    config_file_close(&f);
    free(real);
    return rc;
}

static int
open_acts(struct images *im, struct err *err)
{
    struct run *run = im->acts.run;
    struct acts *a = &im->acts;

    a->images = &im->meta;
    im->meta.processor = &im->processor;
    return acts_open_output(a, err) < 0 ||
                   (run->acts_meta &&
                    (acts_sources(&a->sources, run, err) < 0 ||
                     read_ckpt(im, err) < 0)) ||
                   acts_open_dumps(a, keep, err) < 0 ||
                   acts_room(a, im->batch * a->n_tokens, err) < 0
               ? -1
               : 0;
}

/* The files beside the dump. */
static int
open_files(struct images *im, struct err *err)
{
    static const char head[] = "row\tlabel\tclass\tpath\n";
    const struct run *run = im->acts.run;
    struct array_out *files = im->acts.files;
    struct out **rows = &files[ACTS_IMAGES].out;

    files[ACTS_PIXELS] =
        (struct array_out){ .dtype = DT_F32,
                            .n_dims = 4,
                            .shape = { 0, 3, im->processor.height,
                                       im->processor.width } };
    files[ACTS_FEATURES] = (struct array_out){ .dtype = DT_F32,
                                               .n_dims = 2,
                                               .shape = { 0, im->n_features } };
    if (run->features)
        im->features = mem_try(im->batch, im->n_features * 4, "features", err);
    return (run->features && !im->features) ||
                   (run->features &&
                    array_out_open(&files[ACTS_FEATURES], "features",
                                   run->features, run->out_flags, err) < 0) ||
                   (run->pixels &&
                    array_out_open(&files[ACTS_PIXELS], "pixels", run->pixels,
                                   run->out_flags, err) < 0) ||
                   (run->acts_images &&
                    (out_open(rows, run->acts_images, run->out_flags, false,
                              err) < 0 ||
                     out_write(*rows, head, sizeof(head) - 1, err) < 0))
               ? -1
               : 0;
}

/* The sum of all images, before the first or, of an archive, as they come, if
 * metadata can wait for that. */
static int
begin_sum(struct images *im, struct err *err)
{
    const struct run *run = im->acts.run;
    bool counted = image_source_count(im->source) > 0;
    bool waits = run->output && strcmp(run->output, "-") != 0;
    int rc;

    if (!run->acts_meta || (!counted && !waits))
        return 0;
    im->sum = hash_new(HASH_XXH3);
    if (!counted)
        return 0;
    rc = image_source_hash(im->source, im->sum, run->hash_images, err);
    hash_end(im->sum, im->meta.xxh3);
    im->sum = NULL;
    return rc;
}

static int
begin(struct images *im, struct err *err)
{
    struct run *run = im->acts.run;
    struct acts *a = &im->acts;
    struct images_options o = { .processor = &im->processor,
                                .max_pixels = (size_t)run->max_pixels,
                                .turn = run->exif,
                                .sum_bytes = run->hash_images,
                                .n_threads = run->n_threads };

    if (config_load(&im->config, run->dir, err) < 0)
        return -1;
    run->config = &im->config;
    if (!im->config.family->vision)
        return err_set(err, TU_USAGE,
                       "--images: %s is a language model (%s), which takes "
                       "text",
                       run->dir, im->config.family->model_type);
    im->batch = run->batch ? (size_t)run->batch : AHEAD;
    if (open_processor(im, err) < 0 || open_model(im, err) < 0)
        return -1;
    o.n_slots = smaller(larger(2 * im->batch, AHEAD),
                        larger(SLOTS_BYTES / (im->n_pixels * 4), 2));
    im->batch = smaller(smaller(im->batch, MAX_WINDOWS), o.n_slots / 2);
    if ((run->acts && open_acts(im, err) < 0) || open_files(im, err) < 0 ||
        image_source_open(&im->source, run->images, err) < 0 ||
        begin_sum(im, err) < 0)
        return -1;
    o.sum = im->sum;
    im->meta.source = image_source_name(im->source);
    a->n_expected = run->skip_bad ? 0 : image_source_count(im->source);
    a->progress = (struct progress){ .what = "images",
                                     .unit = "image",
                                     .total = image_source_count(im->source),
                                     .quiet = run->quiet };
    return acts_start(a, err) < 0
               ? -1
               : images_open(&im->queue, im->source, &o, err);
}

static int
end(struct images *im, struct err *err)
{
    struct acts *a = &im->acts;
    const struct run *run = a->run;
    const char *name = im->meta.source;
    double seconds = clock_s() - a->started;
    size_t n = a->n_written, n_bad = im->meta.n_skipped;
    bool tells = a->progress.dirty || run->verbose;

    progress_end(&a->progress);
    if (im->sum)
        hash_end(im->sum, im->meta.xxh3);
    im->sum = NULL;
    if (n == 0)
        return err_set(err, EX_DATAERR,
                       "%s: no image is left, as %zu %s broken", name, n_bad,
                       n_bad == 1 ? "is" : "are");
    if (n_bad)
        err_warn("%s: %zu broken image%s skipped, %zu left", name, n_bad,
                 plural(n_bad), n);
    if (im->n_turned && !run->exif)
        err_warn("%s: %zu image%s an orientation that is not applied (--exif "
                 "applies it)",
                 name, im->n_turned, im->n_turned == 1 ? " has" : "s have");
    if (im->n_grey16)
        err_warn("%s: %zu image%s of 16-bit grey: the high byte counts (where "
                 "PIL makes all from 256 on white)",
                 name, im->n_grey16, im->n_grey16 == 1 ? " is" : "s are");
    if (tells)
        tool_say("%zu image%s in %.3f s (%.1f images/s): decoding took %.3f s "
                 "in %d thread%s, the model %.3f s",
                 n, plural(n), seconds, (double)n / seconds, im->decode_s,
                 run->n_threads, plural((uint64_t)run->n_threads), im->model_s);
    return 0;
}

int
run_images(struct run *run, struct err *err)
{
    static struct images im; /* threads may outlive this call */
    int rc;

    im.acts.run = run;
    rc = begin(&im, err);
    if (rc == 0)
        rc = run_all(&im, err);
    if (rc == 0)
        rc = end(&im, err);
    if (rc == 0)
        rc = acts_publish(&im.acts, err);
    acts_close(&im.acts);
    if (rc == 0 || !im.queue) { /* else one may wait for a pipe */
        images_close(im.queue);
        image_source_close(im.source);
        hash_free(im.sum);
    }
    vision_close(im.vision);
    free(im.meta.ckpt);
    free(im.features);
    config_free(&im.config);
    run->config = NULL;
    run->splices = NULL;
    return rc;
}
