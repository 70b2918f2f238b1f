/* SPDX-License-Identifier: ISC */
/*
 * Seconds of CPU to decode a picture, and to make pixel_values of it:
 *   bench/pictures PICTURE DIR
 * DIR has a preprocessor_config.json.  pictures.py makes both, and has PIL do
 * the same in turn.
 */
#include <stdio.h>

#include "core/image/picture.h"
#include "core/image/processor.h"
#include "core/map.h"
#include "core/mem.h"
#include "test/bench/bench.h"

enum { ROUNDS = 21 };

int
main(int argc, char **argv)
{
    double decode_s[ROUNDS], pixels_s[ROUNDS];
    struct picture picture;
    struct processor p;
    struct str file = { 0 };
    struct err err = { 0 };
    float *pixels;

    if (argc != 3 || file_read_all(argv[1], 1 << 24, &file, &err) < 0 ||
        processor_read(&p, argv[2], NULL, &err) < 0)
        goto failed;
    pixels = xcalloc(p.height * p.width, 3 * sizeof(*pixels));
    for (int i = 0; i < ROUNDS; i++) {
        double start = cpu_s(), decoded;

        if (picture_decode(&picture, file.s, file.n, PICTURE_MAX_PIXELS, &err))
            goto failed;
        decoded = cpu_s();
        if (processor_run(&p, &picture, pixels, &err) < 0)
            goto failed;
        pixels_s[i] = cpu_s() - decoded;
        decode_s[i] = decoded - start;
        picture_free(&picture);
    }
    printf("%.9f %.9f\n", median(decode_s, ROUNDS), median(pixels_s, ROUNDS));
    free(pixels);
    str_free(&file);
    return 0;
failed:
    fprintf(stderr, "bench: pictures: %s\n", err.what);
    return 1;
}
