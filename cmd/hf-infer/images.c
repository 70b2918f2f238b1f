/* SPDX-License-Identifier: ISC */
/*
 * --images: pictures become pixels in threads of their own, pixels go through a
 * vision encoder some at a time, and what the tap was passed is written as
 * --acts writes it: [image, layer, token, dim].
 */
#include "cmd/hf-infer/images.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/acts_run.h"
#include "cmd/hf-infer/images_queue.h"
#include "core/clock.h"
#include "core/js.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
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
    size_t batch, n_pixels;
    struct acts_array pixels, features; /* .out NULL without */
    float *feature_rows;                /* [batch, n_features] */
    uint8_t le[1 << 16];                /* some numbers, as in a file */
    struct out *rows;                   /* of --acts-images, or NULL */
    struct images_slot *slots[MAX_WINDOWS];
    size_t n_slots; /* good images, whose pixels follow each other */
    size_t n_turned, n_grey16;
    double decode_s, model_s;
};

int
images_parse_size(struct run *run, const char *arg, struct err *err)
{
    size_t *const to[] = { &run->image_height, &run->image_width };
    const char *at = arg;
    char *end = NULL;

    for (int i = 0; i < 2 && at; i++) {
        unsigned long v = *at >= '1' && *at <= '9' ? strtoul(at, &end, 10) : 0;

        if (v < 1 || v > PROCESSOR_MAX_SIZE || (*end && (i || *end != 'x')))
            return err_set(err, TU_USAGE,
                           "--image-size %s: must be N or HxW, of numbers from "
                           "1 to %d",
                           arg, PROCESSOR_MAX_SIZE);
        *to[i] = v;
        if (i == 0)
            run->image_width = v;
        at = *end ? end + 1 : NULL;
    }
    return 0;
}

/* ---- what is written ---- */

/* Keeps the tokens that are written of what the tap is passed. */
static void
keep(void *ctx, struct session *session, int64_t layer, size_t first, size_t n,
     const float *rows)
{
    const struct acts_tap *tap = ctx;
    struct acts *a = tap->acts;
    const struct images *im = (const struct images *)a; /* its first */
    const struct vision_shape *s = &im->vision->shape;
    size_t place = tap->place[layer + 1], others = s->cls + s->n_registers;
    struct acts_dump *d = a->dumps;

    (void)session;
    if (place == SIZE_MAX)
        return;
    if (a->n_dumps > 1) {
        d += place;
        place = 0;
    }
    for (size_t i = 0, k; i < n; i += k) {
        size_t image = (first + i) / s->n_tokens;
        size_t token = (first + i) % s->n_tokens;
        bool is_cls = s->cls && token == 0;
        size_t to = is_cls ? 0 : token - others + im->meta.cls;

        k = is_cls           ? 1
            : token < others ? smaller(others - token, n - i)
                             : smaller(s->n_tokens - token, n - i);
        if (is_cls ? !im->meta.cls : token < others)
            continue;
        cvt_from_f32(d->acts +
                         ((image * d->spec.n + place) * a->n_tokens + to) *
                             d->dim * 4,
                     DT_F32, rows + i * d->dim, k * d->dim);
    }
}

/* "row\tlabel\tclass\tpath", names with \t, \n and \\. */
static int
write_row(struct images *im, size_t row, const struct source_image *image,
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
    rc = out_write(im->rows, line.s, line.n, err);
    str_free(&line);
    return rc;
}

static int
write_floats(struct images *im, struct acts_array *x, const float *v, size_t n,
             struct err *err)
{
    int rc = 0;

    for (size_t i = 0, k; i < n && rc == 0; i += k) {
        k = smaller(n - i, sizeof(im->le) / 4);
        cvt_from_f32(im->le, DT_F32, v + i, k);
        rc = acts_write_array(x, i == 0, im->le, k * 4, err);
    }
    return rc;
}

/* Runs and writes the images of the slots, and gives these back. */
static int
run_slots(struct images *im, struct err *err)
{
    struct acts *a = &im->acts;
    size_t n = im->n_slots, first = a->n_written;
    double started = clock_s();
    int rc = 0;

    if (n == 0)
        return 0;
    if (im->vision)
        vision_run(im->vision, im->slots[0]->pixels, n,
                   a->n_taps ? a->taps : NULL, im->feature_rows);
    im->model_s += clock_s() - started;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (im->rows)
            rc = write_row(im, first + i, &im->slots[i]->image, err);
        if (rc == 0 && im->pixels.out)
            rc = write_floats(im, &im->pixels, im->slots[i]->pixels,
                              im->n_pixels, err);
        if (rc == 0 && im->features.out) {
            size_t n_features = im->vision->shape.n_features;

            rc = write_floats(im, &im->features,
                              im->feature_rows + i * n_features, n_features,
                              err);
        }
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
        if (!run->skip_bad || s->err.status != EX_DATAERR) {
            *err = s->err;
            return -1;
        }
        err_warn("%s: skipped", s->err.what);
        im->meta.n_skipped++;
        images_done(im->queue, 1);
    }
    if (s->rc < 0) {
        *err = s->err;
        return -1;
    }
    return run_slots(im, err);
}

/* ---- from begin to end ---- */

/* clip, siglip and vit have positions for one size; the others interpolate
 * them without being asked. */
static int
check_size(struct images *im, struct err *err)
{
    const struct run *run = im->acts.run;
    const struct config_vision *v = &im->config.vision;
    const struct processor *p = &im->processor;

    if (run->image_height || im->config.form.layer_scale ||
        (p->height == (size_t)v->height && p->width == (size_t)v->width))
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s/%s: makes images of %zu x %zu (expected %lld x %lld, "
                   "config.json's image_size; --image-size interpolates "
                   "positions)",
                   run->dir, p->file, p->height, p->width, (long long)v->height,
                   (long long)v->width);
}

/* _name_or_path of config.json, or the directory's name. */
static int
read_ckpt(struct images *im, struct err *err)
{
    struct str path = { 0 };
    char *real = realpath(im->acts.run->dir, NULL);
    const char *name = real ? strrchr(real, '/') + 1 : "";
    json_t *v;

    if (!real)
        return err_sys(err, EX_IOERR, "%s", im->acts.run->dir);
    str_addf(&path, "%s/config.json", im->acts.run->dir);
    v = js_load(path.s, err);
    if (v) {
        struct js root = js_root(v, path.s),
                  js = js_get(&root, "_name_or_path");

        if (js_is(&js, JSON_STRING) && json_string_length(js.v) > 0)
            name = json_string_value(js.v);
        im->meta.ckpt = xstrdup(name);
    }
    json_decref(v);
    free(real);
    str_free(&path);
    return v ? 0 : -1;
}

static int
no_special(void *ctx, bool *is_special, size_t n, struct err *err)
{
    (void)ctx;
    (void)is_special;
    (void)n;
    return err_set(err, EX_DATAERR, "images have no tokens of text");
}

/* Positions that an SAE leaves out are those of a text. */
static int
check_saes(const struct splices *ss, struct err *err)
{
    for (size_t i = 0; i < splices_count(ss); i++)
        if (sae_without_any(splices_without(ss, i)))
            return err_set(err, EX_DATAERR,
                           "%s: leaves out rows of a text (expected an SAE of "
                           "all rows)",
                           splices_file(ss, i));
    return 0;
}

static int
open_model(struct images *im, struct err *err)
{
    struct run *run = im->acts.run;
    const struct splices_options saes = {
        .specs = { &run->sae, &run->steer, &run->ablate, &run->ablate_each },
        .zero = run->sae_zero,
        .center = run->sae_center,
        .screen = true,
        .special = no_special
    };
    const struct vision_options o = { .height = im->processor.height,
                                      .width = im->processor.width,
                                      .batch = (size_t)run->batch,
                                      .compute = run->compute,
                                      .splices = run->sae.n ? &saes : NULL };

    if (!run->acts && !run->features)
        return run->sae.n ? err_set(err, TU_USAGE,
                                    "--sae: --pixels alone runs no model")
                          : 0;
    if (par_open(&run->par, run->n_threads, err) < 0 ||
        vision_open(&im->vision, run->dir, run->par, &o, err) < 0 ||
        check_saes(im->vision->splices, err) < 0)
        return -1;
    run->config = &im->vision->model->config;
    im->batch = im->vision->batch;
    if (run->verbose)
        tool_say("%s, %lld layer%s, hidden %lld, %zu x %zu patches; %s, %s, %d "
                 "thread%s",
                 run->config->family->model_type,
                 (long long)run->config->n_layers,
                 plural((uint64_t)run->config->n_layers),
                 (long long)run->config->hidden_size, im->vision->shape.rows,
                 im->vision->shape.columns, tool_host(), isa_name(cpu_isa()),
                 run->n_threads, plural((uint64_t)run->n_threads));
    return 0;
}

/* The sum of all images, before the first or, of an archive, as they come, if
 * metadata can wait for that. */
static int
begin_sum(struct images *im, struct err *err)
{
    const struct run *run = im->acts.run;
    bool waits = run->output && strcmp(run->output, "-") != 0;
    int rc = 0;

    if (!run->acts_meta)
        return 0;
    im->sum = hash_new(HASH_XXH3);
    if (image_source_count(im->source) > 0) {
        rc = image_source_hash(im->source, im->sum, run->hash_images, err);
        hash_end(im->sum, im->meta.xxh3);
        im->sum = NULL;
    } else if (!waits) {
        hash_free(im->sum);
        im->sum = NULL;
    }
    return rc;
}

static int
open_acts(struct images *im, struct err *err)
{
    struct run *run = im->acts.run;
    struct acts *a = &im->acts;
    const struct vision_shape *s = &im->vision->shape;

    if (acts_spec_parse(&a->spec, run->acts, run->config, err) < 0 ||
        acts_open_output(a, err) < 0)
        return -1;
    if (a->spec.n_again > 0)
        err_warn("--acts: %s, written once%s", a->spec.again.s,
                 a->spec.n_again > 1 ? ", and so are others" : "");
    im->meta.cls = s->cls && !run->no_cls;
    a->n_tokens = s->n_patches + im->meta.cls;
    if ((run->acts_meta &&
         (acts_sources(&a->sources, run, err) < 0 || read_ckpt(im, err) < 0)) ||
        acts_open_dumps(a, keep, err) < 0 ||
        acts_room(a, im->batch * a->n_tokens, err) < 0)
        return -1;
    return run->acts_meta && !a->dir.dir
               ? out_open(&a->meta, run->acts_meta, run->out_flags, false, err)
               : 0;
}

static void
add_other(struct acts *a, struct out *out)
{
    if (out)
        a->others[a->n_others++] = out;
}

/* The files beside the dump. */
static int
open_others(struct images *im, struct err *err)
{
    static const char head[] = "row\tlabel\tclass\tpath\n";
    const struct run *run = im->acts.run;
    const struct processor *p = &im->processor;
    struct acts *a = &im->acts;
    int rc = 0;

    im->pixels = (struct acts_array){ .npy = true,
                                      .dtype = DT_F32,
                                      .n_dims = 4,
                                      .shape = { 0, 3, p->height, p->width } };
    im->features =
        (struct acts_array){ .npy = true, .dtype = DT_F32, .n_dims = 2 };
    if (run->features) {
        im->features.shape[1] = im->vision->shape.n_features;
        im->feature_rows =
            mem_try(im->batch, im->features.shape[1] * 4, "features", err);
        rc = im->feature_rows
                 ? acts_open_npy(&im->features, "features", run->features,
                                 run->out_flags, err)
                 : -1;
        add_other(a, im->features.out);
    }
    if (rc == 0 && run->pixels)
        rc = acts_open_npy(&im->pixels, "pixels", run->pixels, run->out_flags,
                           err);
    add_other(a, im->pixels.out);
    if (rc == 0 && run->acts_images)
        rc = out_open(&im->rows, run->acts_images, run->out_flags, false, err);
    add_other(a, im->rows);
    return rc == 0 && im->rows
               ? out_write(im->rows, head, sizeof(head) - 1, err)
               : rc;
}

static int
reserve(struct images *im, struct err *err)
{
    struct acts *a = &im->acts;
    int rc = 0;

    for (size_t i = 0; i < a->n_dumps && rc == 0; i++)
        rc = acts_reserve(&a->dumps[i].array, a->n_expected, err);
    if (rc == 0 && im->pixels.out)
        rc = acts_reserve(&im->pixels, a->n_expected, err);
    if (rc == 0 && im->features.out)
        rc = acts_reserve(&im->features, a->n_expected, err);
    return rc;
}

static int
begin(struct images *im, struct err *err)
{
    struct run *run = im->acts.run;
    struct acts *a = &im->acts;
    struct processor *p = &im->processor;
    struct images_options o = { .processor = p,
                                .max_pixels = (size_t)run->max_pixels,
                                .turn = run->exif,
                                .n_threads = run->n_threads };

    if (config_load(&im->config, run->dir, err) < 0)
        return -1;
    run->config = &im->config;
    if (!im->config.family->vision)
        return err_set(err, TU_USAGE,
                       "--images: %s is a language model (%s), which takes "
                       "text",
                       run->dir, im->config.family->model_type);
    if (processor_read(p, run->dir, im->config.family->model_type, err) < 0)
        return -1;
    if (run->image_height)
        processor_set_size(p, run->image_height, run->image_width);
    if (check_size(im, err) < 0)
        return -1;
    im->n_pixels = 3 * p->height * p->width;
    im->batch = run->batch ? (size_t)run->batch : AHEAD;
    if (open_model(im, err) < 0)
        return -1;
    o.n_slots = smaller(larger(2 * im->batch, AHEAD),
                        larger(SLOTS_BYTES / (im->n_pixels * 4), 2));
    im->batch = smaller(smaller(im->batch, MAX_WINDOWS), o.n_slots / 2);
    a->images = &im->meta;
    im->meta.turned = run->exif;
    im->meta.processor = p;
    im->meta.skips = run->skip_bad;
    if (run->acts && open_acts(im, err) < 0)
        return -1;
    if (open_others(im, err) < 0 ||
        image_source_open(&im->source, run->images, err) < 0)
        return -1;
    im->meta.source = image_source_name(im->source);
    if (begin_sum(im, err) < 0)
        return -1;
    a->n_expected = run->skip_bad ? 0 : image_source_count(im->source);
    a->progress = (struct progress){ .what = "images",
                                     .unit = "image",
                                     .total = image_source_count(im->source),
                                     .quiet = run->quiet };
    if (reserve(im, err) < 0)
        return -1;
    o.sum = im->sum;
    o.sum_bytes = run->hash_images;
    a->started = clock_s();
    progress_start(&a->progress);
    return images_open(&im->queue, im->source, &o, err);
}

static int
end(struct images *im, struct err *err)
{
    struct acts *a = &im->acts;
    const struct run *run = a->run;
    const char *name = image_source_name(im->source);
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
    if ((im->pixels.out && acts_write_head(&im->pixels, err) < 0) ||
        (im->features.out && acts_write_head(&im->features, err) < 0))
        return -1;
    return a->n_dumps && a->dumps->array.npy && !a->dir.dir
               ? acts_write_head(&a->dumps->array, err)
               : 0;
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
    progress_end(&im.acts.progress);
    out_abort(im.acts.meta);
    for (size_t i = 0; i < im.acts.n_others; i++)
        out_abort(im.acts.others[i]);
    acts_free_dumps(&im.acts);
    if (rc == 0 || !im.queue) { /* else one may wait for a pipe */
        images_close(im.queue);
        image_source_close(im.source);
        hash_free(im.sum);
    }
    vision_close(im.vision);
    str_free(&im.acts.sources.text);
    free(im.meta.ckpt);
    free(im.feature_rows);
    config_free(&im.config);
    run->config = NULL;
    return rc;
}
