/* SPDX-License-Identifier: ISC */
/*
 * st-convert-speed: a cached file of 0.3 GB in BF16 to packed weights, synced,
 * in ratio to a copy of it, synced as well, in turns in the same run.
 */
#include <unistd.h>

#include "core/dtype.h"
#include "core/format/stw.h"
#include "core/mem.h"
#include "core/par.h"
#include "core/rng.h"
#include "test/bench/bench.h"

enum { ROUNDS = 5, LAYERS = 8, SIDE = 4096 };

#define N_NUMBERS ((size_t)SIDE * SIDE) /* of a layer */

/* Sums of two uniform numbers in each layer. */
static int
make_file(const char *path, struct err *err)
{
    const uint64_t shape[] = { SIDE, SIDE };
    uint16_t *x = xcalloc(N_NUMBERS, sizeof(*x));
    struct stw *w = stw_new();
    char name[32];
    int rc = 0;

    for (size_t i = 0; i < N_NUMBERS; i++) {
        uint64_t r = rng_u64(1, 0, i);

        x[i] = f32_to_bf16(
            ((float)(r & 0xffff) + (float)(r >> 16 & 0xffff) - 65535) *
            0x1p-20f);
    }
    for (int i = 0; rc >= 0 && i < LAYERS; i++) {
        snprintf(name, sizeof(name), "layers.%d.up_proj.weight", i);
        rc = stw_add(w, name, DT_BF16, 2, shape, err);
    }
    if (rc >= 0)
        rc = stw_open(w, path, 0, err);
    for (int i = 0; rc == 0 && i < LAYERS; i++)
        rc = stw_write(w, i, x, N_NUMBERS * sizeof(*x), 0, err);
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    free(x);
    return rc;
}

int
main(void)
{
    static const struct {
        const char *what, *shape, *command;
    } rows[] = {
        { "cp(1), synced", "0.3 GB", "cp in.safetensors out && sync" },
        { "st-convert", "int8",
          "st-convert -q in.safetensors --weights int8 >table -o" },
        { "st-convert", "int4",
          "st-convert -q in.safetensors --weights int4 >table -o" },
    };
    char *dir = scratch_name("st-convert");
    double took[3][ROUNDS], copy = 0;
    struct err err;

    if (!mkdtemp(dir) || chdir(dir) < 0)
        return 1;
    if (make_file("in.safetensors", &err) < 0) {
        fprintf(stderr, "st-convert-speed: %s\n", err.what);
        return 1;
    }
    for (int i = 0; i < 3 * ROUNDS; i++) {
        double t = clock_s();

        bench_shell(rows[i % 3].command, "out");
        took[i % 3][i / 3] = clock_s() - t;
        unlink("out");
    }
    for (int i = 0; i < 3; i++) {
        double t = median(took[i], ROUNDS);

        copy = i ? copy : t;
        row(rows[i].what, rows[i].shape, isa_name(cpu_isa()),
            i ? par_default() : 1, LAYERS * N_NUMBERS * 2 / t * 1e-9, "GB/s",
            i ? copy / t : 0, rows[0].what);
    }
    bench_shell("rm -r", dir);
    free(dir);
    return 0;
}
