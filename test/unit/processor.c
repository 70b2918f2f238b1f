/* SPDX-License-Identifier: ISC */
/*
 * Pictures resized as PIL does, byte for byte, and pixel_values by the rules
 * of transformers' slow image processors: test/ref/pixels.py computes both.
 * What preprocessor_config.json may not say is refused by name.
 */
#include "core/image/processor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/image/resize.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/out.h"
#include "test/unit/ref.h"

static struct picture
picture_at(const char *p, size_t width, size_t height)
{
    return (struct picture){ .rgb = (uint8_t *)(uintptr_t)p,
                             .width = width,
                             .height = height,
                             .orientation = 1 };
}

/* Are the rows of a window those of the whole result?  Floats: within 2e-5 x
 * 255 / 4.5, as they are before they are rescaled and normalized. */
static bool
window_is(const struct picture *from, const struct resize *want,
          const char *whole)
{
    size_t stride = 3 * want->width, size = want->floats ? 4 : 1;
    struct resizer r;
    struct err err;
    bool good = resize_open(&r, from, want, &err) == 0;

    for (size_t y = 0; y < want->n_rows && good; y++) {
        const void *row = resize_next(&r);
        const char *right =
            whole + size * ((want->top + y) * stride + 3 * want->left);

        if (!want->floats)
            good = memcmp(row, right, 3 * want->n_cols) == 0;
        for (size_t i = 0; want->floats && i < 3 * want->n_cols; i++) {
            float x;
            uint32_t bits = le32(right + 4 * i);

            memcpy(&x, &bits, 4);
            good = good && fabsf(((const float *)row)[i] - x) < 5e-4f;
        }
    }
    resize_close(&r);
    return good;
}

static void
test_resize(const char *dir)
{
    static const char *const names[] = { "nearest", "lanczos", "bilinear",
                                         "bicubic", "box",     "hamming" };
    int n[6][2] = { { 0 } }, bad[6][2] = { { 0 } };
    struct str text = { 0 };
    const char *p, *end;

    if (!ref_read(dir, "resize", "", &text))
        return;
    for (p = text.s, end = p + text.n; p < end;) {
        struct picture from = picture_at(p + 24, le32(p), le32(p + 4));
        struct resize want = { .filter = le32(p + 16),
                               .floats = le32(p + 20),
                               .width = le32(p + 8),
                               .height = le32(p + 12) };
        const char *right = p + 24 + 3 * from.width * from.height;
        bool good;

        want.n_rows = want.height;
        want.n_cols = want.width;
        good = window_is(&from, &want, right);
        want.top = want.height / 3;
        want.left = want.width / 2;
        want.n_rows = (want.height + 1) / 2;
        want.n_cols = (want.width + 1) / 2;
        good = good && window_is(&from, &want, right);
        n[want.filter][want.floats]++;
        bad[want.filter][want.floats] += !good;
        if (!good)
            printf("# %zu x %zu -> %zu x %zu\n", from.width, from.height,
                   want.width, want.height);
        p = right + 3 * want.width * want.height * (want.floats ? 4 : 1);
    }
    for (int i = 0; i < 6; i++)
        tap_ok(n[i][0] == 100 && bad[i][0] == 0,
               "%s: each byte of 100 pictures, and of a window of each, is "
               "PIL's",
               names[i]);
    for (int i = RESAMPLE_BILINEAR; i <= RESAMPLE_BICUBIC; i++)
        tap_ok(n[i][1] == 100 && bad[i][1] == 0,
               "%s: floats are those of torch's antialiased interpolation",
               names[i]);
    str_free(&text);
}

static void
test_case(const char *dir, const char *name)
{
    struct str path = { 0 }, text = { 0 }, model_type = { 0 };
    struct processor p;
    struct err err = { 0 };
    double most = 0;
    bool fits = true;

    str_addf(&path, "%s/%s", dir, name);
    if (!ref_read(path.s, "model_type", "", &model_type) ||
        !tap_ok(processor_read(&p, path.s, model_type.s, &err) == 0,
                "processor %s is read", name) ||
        !ref_read(path.s, "pictures", "", &text)) {
        printf("# %s\n", err.what);
        return;
    }
    if (le32(text.s))
        processor_set_size(&p, le32(text.s), le32(text.s + 4));
    for (const char *at = text.s + 8, *end = text.s + text.n; at < end;) {
        struct picture from = picture_at(at + 16, le32(at), le32(at + 4));
        size_t width = le32(at + 8), height = le32(at + 12);
        float *v = xcalloc(p.height * p.width, 3 * sizeof(*v));

        fits = fits && p.height == height && p.width == width &&
               processor_run(&p, &from, v, &err) == 0;
        at += 16 + 3 * from.width * from.height;
        for (size_t i = 0; i < 3 * height * width && fits; i++) {
            uint64_t bits = le64(at + 8 * i);
            double x;

            memcpy(&x, &bits, 8);
            most = fmax(most, fabs(v[i] - x) / fmax(1, fabs(x)));
        }
        at += 24 * height * width;
        free(v);
    }
    tap_ok(fits && most <= (p.floats ? 2e-5 : 5e-7),
           "processor %s: pixel_values are the reference's (%.1e)", name, most);
    str_free(&path);
    str_free(&text);
    str_free(&model_type);
}

static bool
put(const char *dir, const char *name, const char *json)
{
    struct err err;

    return out_put(ref_path(dir, name), OUT_FORCE | OUT_NO_SYNC, json,
                   strlen(json), &err) == 0;
}

struct rule {
    const char *json;
    const char *model_type;
    const char *bad; /* what the message says; NULL: valid */
};

#define CLIP   "\"image_processor_type\": \"CLIPImageProcessor\""
#define SIGLIP "\"image_processor_type\": \"SiglipImageProcessor\""
#define DINOV3 "\"image_processor_type\": \"DINOv3ViTImageProcessorFast\""
#define ONE_OF                                              \
    " (expected CLIPImageProcessor, SiglipImageProcessor, " \
    "BitImageProcessor, ViTImageProcessor or DINOv3ViTImageProcessor)"

static const struct rule rules[] = {
    { "{}", "swin", "image_processor_type is missing" ONE_OF },
    { "{}", NULL, "image_processor_type is missing" ONE_OF },
    { "{\"image_processor_type\": \"ConvNextImageProcessor\"}", "vit",
      "image_processor_type is \"ConvNextImageProcessor\"" ONE_OF },
    { "{\"image_processor_type\": \"ViTImageProcessorX\"}", "vit",
      "image_processor_type is \"ViTImageProcessorX\"" ONE_OF },
    { "{\"image_processor_type\": 3}", NULL,
      "image_processor_type is 3 (expected a string)" },
    { "[]", "vit", "the document is an empty array (expected an object)" },
    { "{" CLIP ", \"size\": {\"longest_edge\": 224}}", NULL,
      "size.longest_edge is 224 (expected none: it is not supported)" },
    { "{" CLIP ", \"size\": {\"shortest_edge\": 2, \"longest_edge\": null}}",
      NULL, NULL },
    { "{" CLIP ", \"size\": {\"max_height\": 9, \"max_width\": 9}}", NULL,
      "size.max_height is 9" },
    { "{" CLIP ", \"size\": {\"height\": 9}}", NULL,
      "size is an object (expected height and width, or shortest_edge)" },
    { "{" CLIP ", \"size\": {}}", NULL, "size is an object" },
    { "{" CLIP ", \"size\": {\"height\": 9, \"width\": 9, "
      "\"shortest_edge\": 9}}",
      NULL, "size is an object" },
    { "{" CLIP ", \"size\": 0}", NULL,
      "size is 0 (expected a whole number from 1 to 8192)" },
    { "{" CLIP ", \"size\": 8193}", NULL, "size is 8193" },
    { "{" CLIP ", \"size\": [224, 224]}", NULL, "size is an array" },
    { "{" CLIP ", \"crop_size\": 8193}", NULL, "crop_size is 8193" },
    { "{" CLIP ", \"crop_size\": {\"shortest_edge\": 9}}", NULL,
      "crop_size.shortest_edge is 9 (expected height and width)" },
    { "{" CLIP ", \"do_center_crop\": false}", NULL,
      "do_center_crop is false (expected true, or pictures have many sizes)" },
    { "{" CLIP ", \"do_center_crop\": 1}", NULL,
      "do_center_crop is 1 (expected true or false)" },
    { "{" CLIP ", \"do_pad\": true}", NULL,
      "do_pad is true (expected false: it is not supported)" },
    { "{" CLIP ", \"do_pad\": false, \"do_convert_rgb\": false}", NULL, NULL },
    { "{" CLIP ", \"resample\": 6}", NULL,
      "resample is 6 (expected a whole number from 0 to 5)" },
    { "{" CLIP ", \"rescale_factor\": NaN}", NULL,
      "rescale_factor is \"NaN\" (expected a number)" },
    { "{" CLIP ", \"rescale_factor\": 1e300}", NULL,
      "rescale_factor is 1e+300" },
    { "{" CLIP ", \"image_mean\": [0.5, 0.5]}", NULL,
      "image_mean is an array (expected a number, or three)" },
    { "{" CLIP ", \"image_std\": 0}", NULL, "image_std is 0" },
    { "{" CLIP ", \"image_std\": [0.5, 0.5, 0]}", NULL, "image_std[2] is 0" },
    { "{" CLIP ", \"image_std\": [0.5, 0.5, 1e-300]}", NULL,
      "image_std[2] is 1e-300" },
    { "{" SIGLIP ", \"size\": 224}", NULL,
      "size is 224 (expected height and width)" },
    { "{" SIGLIP ", \"size\": {\"shortest_edge\": 224}}", NULL,
      "size.shortest_edge is 224 (expected height and width)" },
    { "{" SIGLIP ", \"do_resize\": false}", NULL, "do_center_crop is missing" },
    { "{" SIGLIP ", \"do_center_crop\": true}", NULL,
      "crop_size is missing (expected height and width)" },
    { "{" DINOV3 ", \"resample\": 1}", NULL,
      "resample is 1 (expected 2 or 3)" },
};

static void
test_rules(const char *dir)
{
    for (const struct rule *r = rules;
         r < rules + sizeof(rules) / sizeof(*rules); r++) {
        struct processor p;
        struct err err = { 0 };
        int rc;

        rc = put(dir, "preprocessor_config.json", r->json)
                 ? processor_read(&p, dir, r->model_type, &err)
                 : -1;
        if (!tap_ok(r->bad ? rc < 0 && err.status == EX_DATAERR &&
                                 strstr(err.what, r->bad)
                           : rc == 0,
                    "%s of %s is %s", r->json,
                    r->model_type ? r->model_type : "nobody",
                    r->bad ? "refused by name" : "read"))
            printf("# %s\n", err.what);
    }
}

/* The order of transformers 5's image_processing_base.py. */
static void
test_files(const char *dir)
{
    const char *name = "processor_config.json";
    const char *other = "{\"image_processor\": {\"size\": 20}, \"x\": {}}";
    struct processor p;
    struct err err;

    tap_ok(put(dir, "preprocessor_config.json", "{\"size\": 10}") &&
               put(dir, name, "{\"processor_class\": \"CLIPProcessor\"}") &&
               processor_read(&p, dir, "vit", &err) == 0 && p.width == 10,
           "a processor_config.json without an image_processor is passed over");
    tap_ok(put(dir, name, other) && processor_read(&p, dir, "vit", &err) == 0 &&
               p.width == 20,
           "an image_processor of processor_config.json comes first");
    tap_ok(put(dir, name, "{\"image_processor\": {\"size\": 0}}") &&
               processor_read(&p, dir, "vit", &err) < 0 &&
               strstr(err.what, "/processor_config.json: image_processor.size "
                                "is 0 (expected"),
           "what is wrong there is named");
    remove(ref_path(dir, name));
    remove(ref_path(dir, "preprocessor_config.json"));
    tap_ok(processor_read(&p, dir, "vit", &err) < 0 &&
               err.status == EX_NOINPUT &&
               strstr(err.what, "/preprocessor_config.json: "),
           "neither file is EX_NOINPUT");
}

int
main(void)
{
    char *dir = ref_dir();

    if (!dir)
        return tap_done();
    test_rules(dir);
    test_files(dir);
    ref_each(ref_kept, "pixels.py", dir, "PIL", test_case);
    test_resize(dir);
    ref_remove(dir);
    return tap_done();
}
