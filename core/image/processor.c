/* SPDX-License-Identifier: ISC */
#include "core/image/processor.h"

#include <math.h>
#include <string.h>

#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

/* What the class of a processor has where its file is silent. */
struct defaults {
    const char *class;             /* the name begins so */
    const char *model_types[2];    /* whose files may have no name */
    bool has_shortest, has_number; /* forms of size that the class takes */
    bool number_is_shortest;       /* a number is, and so is the default */
    bool crops, floats;
    enum resample resample;
    double mean[3], std[3];
};

#define CROPPED                                                           \
    .has_shortest = true, .has_number = true, .number_is_shortest = true, \
    .crops = true, .resample = RESAMPLE_BICUBIC,                          \
    .mean = { 0.48145466, 0.4578275, 0.40821073 },                        \
    .std = { 0.26862954, 0.26130258, 0.27577711 }
#define HALF     .mean = { 0.5, 0.5, 0.5 }, .std = { 0.5, 0.5, 0.5 }
#define IMAGENET .mean = { 0.485, 0.456, 0.406 }, .std = { 0.229, 0.224, 0.225 }

static const struct defaults classes[] = {
    { "CLIP", { "clip", "clip_vision_model" }, CROPPED },
    { "Siglip",
      { "siglip", "siglip_vision_model" },
      .resample = RESAMPLE_BICUBIC,
      HALF },
    { "Bit", { "dinov2", "dinov2_with_registers" }, CROPPED },
    { "ViT",
      { "vit", "vit" },
      .has_number = true,
      .resample = RESAMPLE_BILINEAR,
      HALF },
    { "DINOv3ViT",
      { "dinov3_vit", "dinov3_vit" },
      .has_shortest = true,
      .has_number = true,
      .floats = true,
      .resample = RESAMPLE_BILINEAR,
      IMAGENET },
};

#define DEFAULT_SIZE 224
#define STRIP_NBYTES ((size_t)64 << 20)

/* Of crop_size, whatever the class. */
static const struct defaults crop_forms = { .has_number = true };

static int
find_class(const struct defaults **class, const struct js *root,
           const char *model_type, struct err *err)
{
    static const char *const ends[] = { "ImageProcessor", "ImageProcessorFast",
                                        "ImageProcessorPil",
                                        "FeatureExtractor" };
    struct js name = js_get(root, "image_processor_type");
    struct js old = js_get(root, "feature_extractor_type");
    const char *s = NULL;

    if (js_absent(&name) && !js_absent(&old))
        name = old;
    if (!js_absent(&name) && js_str(&name, &s, NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
        size_t n = strlen(classes[i].class);

        *class = &classes[i];
        for (size_t k = 0; s && k < sizeof(ends) / sizeof(*ends); k++)
            if (!strncmp(s, classes[i].class, n) && !strcmp(s + n, ends[k]))
                return 0;
        for (size_t k = 0; !s && model_type && k < 2; k++)
            if (!strcmp(model_type, classes[i].model_types[k]))
                return 0;
    }
    return js_bad(&name,
                  "CLIPImageProcessor, SiglipImageProcessor, "
                  "BitImageProcessor, ViTImageProcessor or "
                  "DINOv3ViTImageProcessor",
                  err);
}

struct sides {
    int64_t shortest_edge, height, width; /* 0: absent */
};

/* size or crop_size, in a form that the class takes. */
static int
read_sides(struct sides *sides, const struct js *root, const char *key,
           const struct defaults *class, struct err *err)
{
    const char *expected = class->has_shortest
                               ? "height and width, or shortest_edge"
                               : "height and width";
    struct js js = js_get(root, key), shortest = js_get(&js, "shortest_edge");
    bool is_number = class->has_number && js_is(&js, JSON_INTEGER);
    int64_t n = DEFAULT_SIZE;
    json_t *v;

    *sides = (struct sides){ 0 };
    if (is_number && js_i64(&js, 1, PROCESSOR_MAX_SIZE, &n, err) < 0)
        return -1;
    if (is_number || js_absent(&js)) {
        if (class->number_is_shortest)
            sides->shortest_edge = n;
        else
            sides->height = sides->width = n;
        return 0;
    }
    if (!js_is(&js, JSON_OBJECT))
        return js_bad(&js, expected, err);
    json_object_foreach((json_t *)(uintptr_t)js.v, key, v)
    {
        struct js side = js_get(&js, key);
        int64_t *to = !strcmp(key, "height")          ? &sides->height
                      : !strcmp(key, "width")         ? &sides->width
                      : !strcmp(key, "shortest_edge") ? &sides->shortest_edge
                                                      : NULL;

        if (js_absent(&side))
            continue;
        if (!to)
            return js_bad(&side, "none: it is not supported", err);
        if (js_i64(&side, 1, PROCESSOR_MAX_SIZE, to, err) < 0)
            return -1;
    }
    if (sides->shortest_edge && !class->has_shortest)
        return js_bad(&shortest, expected, err);
    if (!sides->height != !sides->width ||
        !sides->height == !sides->shortest_edge)
        return js_bad(&js, expected, err);
    return 0;
}

/* The numbers of all three channels, none beyond 10^6. */
static int
read_three(const struct js *root, const char *key, double least, double *to,
           struct err *err)
{
    struct js js = js_get(root, key);

    if (js_absent(&js))
        return 0;
    if (!json_is_number(js.v) &&
        (!js_is(&js, JSON_ARRAY) || json_array_size(js.v) != 3))
        return js_bad(&js, "a number, or three", err);
    for (size_t i = 0; i < 3; i++) {
        struct js item = json_is_number(js.v) ? js : js_at(&js, i);

        if (js_f64(&item, &to[i], err) < 0)
            return -1;
        if (!(fabs(to[i]) >= least && fabs(to[i]) <= 1e6))
            return js_bad(&item,
                          least > 0 ? "1e-6 to 1e6, or -1e6 to -1e-6"
                                    : "-1e6 to 1e6",
                          err);
    }
    return 0;
}

/* Steps that no class of ours has change pictures; other keys do not. */
static int
refuse_steps(const struct js *root, struct err *err)
{
    static const char *const known[] = { "do_resize",      "do_center_crop",
                                         "do_rescale",     "do_normalize",
                                         "do_convert_rgb", NULL };
    const char *key;

    for (void *at = NULL; (key = js_unknown(root, known, &at));) {
        struct js js = js_get(root, key);

        if (!strncmp(key, "do_", 3))
            return js_bad(&js, "false: it is not supported", err);
    }
    return 0;
}

static int
read_root(struct processor *p, const struct js *root, const char *model_type,
          struct err *err)
{
    const struct defaults *class;
    struct js crop = js_get(root, "crop_size");
    struct js resample = js_get(root, "resample");
    struct js factor = js_get(root, "rescale_factor");
    struct js crops = js_get(root, "do_center_crop");
    struct sides sides = { 0 };
    bool rescales, normalizes;
    int64_t filter;

    if (!js_is(root, JSON_OBJECT))
        return js_bad(root, "an object", err);
    if (find_class(&class, root, model_type, err) < 0 ||
        refuse_steps(root, err) < 0 ||
        js_bool_or(root, "do_resize", true, &p->resizes, err) < 0 ||
        js_bool_or(root, "do_center_crop", class->crops, &p->crops, err) < 0 ||
        js_bool_or(root, "do_rescale", true, &rescales, err) < 0 ||
        js_bool_or(root, "do_normalize", true, &normalizes, err) < 0)
        return -1;
    p->floats = class->floats;
    if (p->resizes && read_sides(&sides, root, "size", class, err) < 0)
        return -1;
    p->shortest_edge = (size_t)sides.shortest_edge;
    p->resize_height = (size_t)sides.height;
    p->resize_width = (size_t)sides.width;
    if (p->crops && !class->crops && js_absent(&crop))
        return js_bad(&crop, "height and width", err);
    if (p->crops && read_sides(&sides, root, "crop_size", &crop_forms, err) < 0)
        return -1;
    p->height = (size_t)sides.height;
    p->width = (size_t)sides.width;
    if (p->height == 0)
        return js_bad(&crops, "true, or pictures have many sizes", err);
    p->resample = class->resample;
    if (!js_absent(&resample)) {
        if (js_i64(&resample, 0, RESAMPLE_HAMMING, &filter, err) < 0)
            return -1;
        p->resample = (enum resample)filter;
    }
    if (p->floats && p->resizes && p->resample != RESAMPLE_BILINEAR &&
        p->resample != RESAMPLE_BICUBIC) /* torch has no others on floats */
        return js_bad(&resample, "2 or 3", err);
    p->rescale_factor = 1 / 255.0;
    memcpy(p->mean, class->mean, sizeof(p->mean));
    memcpy(p->std, class->std, sizeof(p->std));
    if (!js_absent(&factor) && js_f64(&factor, &p->rescale_factor, err) < 0)
        return -1;
    if (!(fabs(p->rescale_factor) <= 1e6))
        return js_bad(&factor, "-1e6 to 1e6", err);
    if (read_three(root, "image_mean", 0, p->mean, err) < 0 ||
        read_three(root, "image_std", 1e-6, p->std, err) < 0)
        return -1;
    if (!rescales)
        p->rescale_factor = 1;
    for (int c = 0; c < 3 && !normalizes; c++) {
        p->mean[c] = 0;
        p->std[c] = 1;
    }
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++)
            p->values[c][v] =
                (float)((v * p->rescale_factor - p->mean[c]) / p->std[c]);
    return 0;
}

int
processor_read(struct processor *p, const char *dir, const char *model_type,
               struct err *err)
{
    static const char *const files[] = { "processor_config.json",
                                         "preprocessor_config.json" };
    struct str path = { 0 };
    struct js root = { 0 };
    json_t *v = NULL;
    int rc = 0;

    *p = (struct processor){ 0 };
    for (size_t i = 0; i < 2 && rc == 0 && js_absent(&root); i++) {
        str_clear(&path);
        str_addf(&path, "%s/%s", dir, files[i]);
        if (i == 0 && file_missing(path.s))
            continue;
        json_decref(v);
        v = js_load(path.s, err);
        rc = v ? 0 : -1;
        root = js_root(v, path.s);
        if (i == 0)
            root = js_get(&root, "image_processor");
        p->file = files[i];
    }
    if (rc == 0)
        rc = read_root(p, &root, model_type, err);
    json_decref(v);
    str_free(&path);
    return rc;
}

void
processor_set_size(struct processor *p, size_t height, size_t width)
{
    bool edge = p->shortest_edge && height == width;

    p->shortest_edge = edge ? height : 0;
    p->resize_height = p->height = height;
    p->resize_width = p->width = width;
}

/* Columns of the window whose rows before they are resized in height take at
 * most STRIP_NBYTES: all but of the largest pictures. */
static size_t
strip_columns(const struct resize *want, const struct picture *picture)
{
    size_t n = 7 * (picture->height / want->height + 1); /* in one row */
    size_t nbytes = 3 * sizeof(float) * (smaller(n, picture->height) + 1);

    return smaller(want->n_cols, larger(1, STRIP_NBYTES / nbytes));
}

/* A window, whose first pixel goes to 'pixels'. */
static int
run_window(const struct processor *p, const struct picture *picture,
           const struct resize *want, float *pixels, struct err *err)
{
    struct resizer r;

    if (resize_open(&r, picture, want, err) < 0)
        return -1;
    for (size_t y = 0; y < want->n_rows; y++, pixels += p->width) {
        const void *row = resize_next(&r);
        const uint8_t *bytes = row;
        const float *floats = row;

        for (size_t c = 0; c < 3; c++) {
            float *to = pixels + c * p->height * p->width;

            for (size_t x = 0; x < want->n_cols; x++)
                to[x] = p->floats
                            ? (float)((floats[3 * x + c] * p->rescale_factor -
                                       p->mean[c]) /
                                      p->std[c])
                            : p->values[c][bytes[3 * x + c]];
        }
    }
    resize_close(&r);
    return 0;
}

int
processor_run(const struct processor *p, const struct picture *picture,
              float *pixels, struct err *err)
{
    size_t plane = p->height * p->width;
    size_t shorter = smaller(picture->width, picture->height);
    struct resize want = { .filter = p->resample,
                           .floats = p->floats,
                           .height = p->resize_height,
                           .width = p->resize_width };
    size_t top, left, n_cols, end;
    int rc = 0;

    if (!p->resizes) {
        want.height = picture->height;
        want.width = picture->width;
    } else if (p->shortest_edge) {
        want.height = p->shortest_edge * picture->height / shorter;
        want.width = p->shortest_edge * picture->width / shorter;
    }
    /* of what is missing, the larger half lies above and on the left */
    top = p->height > want.height ? (p->height - want.height + 1) / 2 : 0;
    left = p->width > want.width ? (p->width - want.width + 1) / 2 : 0;
    want.n_rows = smaller(want.height, p->height);
    want.n_cols = smaller(want.width, p->width);
    want.top = (want.height - want.n_rows) / 2;
    want.left = (want.width - want.n_cols) / 2;
    for (size_t c = 0; c < 3 && plane > want.n_rows * want.n_cols; c++)
        for (size_t i = 0; i < plane; i++)
            pixels[c * plane + i] = p->values[c][0];
    n_cols = strip_columns(&want, picture);
    pixels += top * p->width + left;
    for (end = want.left + want.n_cols; want.left < end && rc == 0;) {
        want.n_cols = smaller(n_cols, end - want.left);
        rc = run_window(p, picture, &want, pixels, err);
        want.left += want.n_cols;
        pixels += want.n_cols;
    }
    return rc;
}
