/* SPDX-License-Identifier: ISC */
/*
 * A hostile preprocessor_config.json, and the config.json's model_type after
 * "\n%%\n": it is refused, or its sizes are within bounds and every picture
 * becomes finite numbers.
 */
#include "core/image/processor.h"

#include <math.h>

#include "test/fuzz/files.h"

static void
check_run(const struct processor *p, size_t width, size_t height)
{
    static uint8_t rgb[32 * 32 * 3];
    struct picture picture = { .rgb = rgb, .width = width, .height = height };
    float *pixels = calloc(p->height * p->width, 3 * sizeof(*pixels));
    struct err err = { 0 };

    for (size_t i = 0; i < sizeof(rgb); i++)
        rgb[i] = (uint8_t)(i * 167);
    MUST(processor_run(p, &picture, pixels, &err) == 0);
    for (size_t i = 0; i < 3 * p->height * p->width; i++)
        MUST(isfinite(pixels[i]));
    free(pixels);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = { data, size };
    struct processor p;
    struct err err = { 0 };
    char model_type[32] = "";

    fuzz_file("preprocessor_config.json", next_part(&rest));
    memcpy(model_type, rest.data, rest.n < 31 ? rest.n : 31);
    if (processor_read(&p, fuzz_dir, model_type, &err)) {
        MUST(err.status == EX_DATAERR && *err.what);
        return 0;
    }
    MUST(p.height >= 1 && p.height <= PROCESSOR_MAX_SIZE);
    MUST(p.width >= 1 && p.width <= PROCESSOR_MAX_SIZE);
    MUST(p.crops || (p.resize_height == p.height && p.resize_width == p.width));
    MUST(p.resample <= RESAMPLE_HAMMING && isfinite(p.rescale_factor));
    for (int c = 0; c < 3; c++)
        MUST(isfinite(p.mean[c]) && isfinite(p.std[c]) && p.std[c] != 0);
    if (p.height * p.width > 1 << 14)
        processor_set_size(&p, 16, size % 2 ? 16 : 20);
    check_run(&p, 1 + size % 32, 1 + size / 32 % 32);
    return 0;
}
