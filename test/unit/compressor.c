/* SPDX-License-Identifier: ISC */
/* core/model/compressor_mlp against numpy: test/ref/kvc_ref.py. */
#include "core/model/compressor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/le.h"
#include "core/str.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

static const char *dir;

/* Case i: its MLPs' results follow each other in I.y. */
static void
test_forward(int i)
{
    struct str x = { 0 }, y = { 0 };
    struct kvc k;
    struct err err = { 0 };
    char name[20];
    size_t at = 0, bad = 0;

    snprintf(name, sizeof(name), "%d.x", i);
    ref_read(dir, name, "", &x);
    snprintf(name, sizeof(name), "%d.y", i);
    ref_read(dir, name, "", &y);
    snprintf(name, sizeof(name), "%d.bin", i);
    if (!tap_ok(kvc_open(&k, ref_path(dir, name), &err) == 0,
                "kvc %d: opens %s", i, err.what))
        return;
    for (size_t j = 0; j < k.n_blocks / KVC_SLOTS; j++) {
        size_t per = k.header.weight_count_per_layer / KVC_SLOTS;
        size_t d = k.header.head_dim, n = x.n / 4 / d;
        float *got = calloc(n * d, sizeof(*got)), *scratch;
        struct compressor_mlp mlp;

        compressor_mlp_load(&mlp, &k, j / per, (enum kvc_prefix)(j % per),
                            &err);
        scratch = calloc(compressor_mlp_scratch(&mlp), sizeof(*scratch));
        for (size_t m = 0; m < x.n / 4; m++)
            got[m] = f32_from_bits(le32(x.s + m * 4));
        n = compressor_mlp_run(&mlp, got, got, n, scratch);
        for (size_t m = 0; m < n * d; m++, at++)
            bad += at * 4 >= y.n || f32_bits(got[m]) != le32(y.s + at * 4);
        free(got);
        free(scratch);
        compressor_mlp_free(&mlp);
    }
    tap_ok(at * 4 == y.n && bad == 0, "kvc %d: %zu numbers are numpy's", i, at);
    kvc_close(&k);
    str_free(&x);
    str_free(&y);
}

/* A layer of six 2 x 2 blocks but the first, 2 x 5: five dims are no number of
 * tokens of two; and the fifth, 2 x 3, for two of which there is no third. */
static void
test_dims(void)
{
    struct str s = { 0 };
    struct err err = { 0 };
    struct compressor_mlp mlp;
    struct kvc k;
    FILE *f = fopen(ref_path(dir, "dims.bin"), "wb");

    ref_read(dir, "0.bin", "", &s);
    s.n = KVC_HEADER_BYTES;
    put_le32(s.s + 12, 1);
    put_le32(s.s + 36, 2 * KVC_SLOTS);
    put_le32(s.s + 40, 0);
    for (uint32_t i = 0; i < 2 * KVC_SLOTS; i++) {
        char block[KVC_BLOCK_BYTES + 20] = { 0 };
        uint32_t cols = i == 0 ? 5 : i == 4 ? 3 : 2;

        put_le32(block, 2);
        put_le32(block + 4, cols);
        str_add(&s, block, KVC_BLOCK_BYTES + 2 * cols * 2);
    }
    if (f) {
        fwrite(s.s, 1, s.n, f);
        fclose(f);
    }
    tap_ok(kvc_open(&k, ref_path(dir, "dims.bin"), &err) == 0, "kvc: opens %s",
           err.what);
    tap_ok(compressor_mlp_load(&mlp, &k, 0, 0, &err) < 0 &&
               strstr(err.what, "5 columns are not a number of tokens of 2"),
           "kvc: dims that do not divide: %s", err.what);
    tap_ok(compressor_mlp_load(&mlp, &k, 0, 1, &err) < 0 &&
               strstr(err.what, "has 3 columns (expected 2, the rows before"),
           "kvc: dims that do not follow: %s", err.what);
    tap_ok(compressor_mlp_load(&mlp, &k, 1, 0, &err) < 0 &&
               strstr(err.what, "no blocks 0 .. 2 of layer 1 (1 layers of 6)"),
           "kvc: a layer behind the last: %s", err.what);
    kvc_close(&k);
    str_free(&s);
}

int
main(void)
{
    dir = ref_dir();
    if (!dir)
        return tap_done();
    if (ref_kept("kvc_ref.py", dir, "numpy")) {
        for (int i = 0; i < 4; i++)
            test_forward(i);
        test_dims();
    }
    ref_remove(dir);
    return tap_done();
}
